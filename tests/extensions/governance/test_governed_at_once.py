"""Settings in force when two processes meet a change at once, or one is killed around it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select

from flows.database.connection import Database
from flows.errors import CardlinkError
from flows.extensions.governance.in_force import (
    SettingsNotAgreedError,
    agree,
    compared,
    govern,
)
from flows.extensions.governance.tables import SETTINGS_IN_FORCE
from flows.runs.context import IssuerContext, overlaid
from flows.runs.journal import entries
from flows.wiring import SettingsMovedError
from tests.night import Bench, issuer, local_bench

WHY = "so it was agreed"
TWO = {"acts": ["settings"]}


class Killed(BaseException):
    """The process is gone."""


class Dying:
    """A database whose process is killed before an act is committed, or right after it."""

    def __init__(self, below: Database, when: str) -> None:
        self._below = below
        self._when = when
        self.place = below.place
        self.snapshot = below.snapshot
        self.rehearsal = below.rehearsal

    def act(self, issuer: str, work: Callable[[Connection], Any]) -> Any:
        def dying(connection: Connection) -> Any:
            result = work(connection)
            if self._when == "before":
                raise Killed
            return result

        self._below.act(issuer, dying)
        raise Killed


@pytest.fixture
def bench(tmp_path: Path, database: Database) -> Bench:
    return replace(local_bench(tmp_path / "bank"), database=database)


def dying(bench: Bench, when: str) -> IssuerContext:
    context = bench.context
    return context._replace(
        adapters=context.adapters._replace(database=Dying(bench.database, when))
    )


def at_once(bench: Bench, act: Callable[[IssuerContext, str], Any]) -> list[Any]:
    """Let two processes act at once; return what came of each: a result, or the kind of error."""

    def done_by(actor: str) -> Any:
        other = Database(bench.database._url.render_as_string(hide_password=False))
        try:
            return act(replace(bench, actor=actor, database=other).context, actor)
        except CardlinkError as error:
            return type(error)
        finally:
            other.close()

    with ThreadPoolExecutor(2) as people:
        return list(people.map(done_by, ("anna", "bert")))


def with_limit(bench: Bench, limit: float, **changes: Any) -> Bench:
    return replace(bench, issuer=issuer(limits={"max_reject_rate": limit}, **changes))


def in_force(bench: Bench) -> list[tuple[int, str]]:
    """Return number and origin of the settings that were in force."""
    query = select(SETTINGS_IN_FORCE.c.number, SETTINGS_IN_FORCE.c.what)
    with bench.database.snapshot() as connection:
        return [(number, what) for number, what in connection.execute(query.order_by("number"))]


def said(bench: Bench) -> list[str]:
    return [entry.what for entry in entries(bench.adapters, "bank")]


def test_of_two_processes_that_meet_settings_at_once_one_records_them_and_both_go_on(
    bench: Bench,
) -> None:
    govern(bench.context, is_rehearsal=False)
    bench = with_limit(bench, 0.2)

    told = at_once(bench, lambda context, _: govern(context, is_rehearsal=False))

    assert [0, 1] == sorted(map(len, told))
    assert [(1, "found"), (2, "changed")] == in_force(bench)
    assert ["settings recorded"] * 2 == said(bench)
    assert compared(bench.context).is_same


def test_of_two_who_agree_at_once_one_wins_and_the_other_is_told(bench: Bench) -> None:
    bench = with_limit(bench, 0.1, four_eyes=TWO)
    govern(bench.context, is_rehearsal=False)
    bench = with_limit(bench, 0.2, four_eyes=TWO)
    comparison = compared(bench.context)

    told = at_once(bench, lambda context, _: agree(context, comparison, WHY))

    assert {None, SettingsMovedError} == set(told)
    assert [(1, "found"), (2, "agreed")] == in_force(bench)


def test_a_change_that_needs_two_after_another_was_faster_is_refused(bench: Bench) -> None:
    """Compared with settings that asked for nobody, while another records some that do."""
    govern(bench.context, is_rehearsal=False)
    agreed = with_limit(bench, 0.1, four_eyes=TWO)
    govern(agreed.context, is_rehearsal=False)

    with pytest.raises(SettingsNotAgreedError):
        govern(with_limit(bench, 0.9, four_eyes=TWO).context, is_rehearsal=False)

    assert [(1, "found"), (2, "changed")] == in_force(bench)


@pytest.mark.parametrize("when", ["before", "after"])
def test_who_was_killed_recording_settings_has_recorded_them_whole_or_not_at_all(
    bench: Bench, when: str
) -> None:
    with pytest.raises(Killed):
        govern(dying(bench, when), is_rehearsal=False)

    killed = in_force(bench)
    govern(bench.context, is_rehearsal=False)

    assert {"before": [], "after": [(1, "found")]}[when] == killed
    assert [(1, "found")] == in_force(bench)
    assert ["settings recorded"] == said(bench)


def test_a_dry_run_agrees_for_itself_alone(bench: Bench) -> None:
    dry = overlaid(bench.context)

    agree(dry, compared(dry), WHY)

    assert compared(dry).is_same
    assert ([], []) == (in_force(bench), said(bench))
