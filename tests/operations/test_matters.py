"""Matters are opened once and ended once, whatever order the looks come in."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, insert, select

from flows.database.connection import Database
from flows.errors import BugError
from flows.operations.matters import IS_OPEN, Matter, Place, _Look, follow, matters
from flows.reports import work_kinds as kinds
from flows.reports.work import Work
from flows.reports.work_kinds import every_kind
from schemas.database import JOURNAL, MATTER
from tests.memory import MemoryStore
from tests.night import BANK, NOON, edges


def work(kind: str, run: str = "", chunk: int | None = None) -> Work:
    return Work(due=NOON, kind=kind, issuer=BANK, since=NOON, run=run, chunk=chunk, rows=3)


A, B, C = (
    work(kinds.OVERDUE, "run-1", 1),
    work(kinds.OVERDUE, "run-1", 2),
    work(kinds.TO_UPLOAD, "run-1", 1),
)
NEWS = work("failed flows", "watch-bank")


@given(st.lists(st.sets(st.sampled_from([A, B, C])), max_size=12))
def test_after_any_looks_exactly_what_holds_is_open(looks: list[set[Work]]) -> None:
    standing: dict[Place, Matter] = {}

    for holding in looks:
        places = {(work.kind, work.subject): work for work in holding}
        for place, values in _Look(places, NOON).changes(standing).items():
            if "ended" in values:
                del standing[place]
            else:
                empty = dict.fromkeys(Matter._fields)
                named = {"number": 1, "kind": place[0], "subject": place[1]}
                standing[place] = Matter(**{**empty, **named, **values})

    assert standing.keys() == {(work.kind, work.subject) for work in (looks or [set()])[-1]}


def test_a_matter_keeps_its_number_until_it_is_over_and_the_next_gets_another(
    database: Database,
) -> None:
    adapters = edges(MemoryStore(), database)

    looks = [follow(adapters, BANK, holding) for holding in ([A], [A, B], [A, B], [B], [A, B])]

    numbers = [sorted(matter.number for matter in look.values()) for look in looks]
    assert [[1], [1, 2], [1, 2], [2], [2, 3]] == numbers
    with database.snapshot() as connection:
        entries = connection.execute(select(func.count()).select_from(JOURNAL)).scalar()
    assert 4 == entries  # nothing is entered where nothing changed


def test_whoever_does_not_know_the_news_leaves_them_open(database: Database) -> None:
    adapters = edges(MemoryStore(), database)
    follow(adapters, BANK, [A, NEWS], with_news=True)

    follow(adapters, BANK, [])
    kept = [matter.kind for matter in matters(adapters, BANK, IS_OPEN)]
    follow(adapters, BANK, [], with_news=True)

    assert ["failed flows"] == kept
    assert [] == matters(adapters, BANK, IS_OPEN)


def test_one_that_becomes_late_is_told_then(database: Database) -> None:
    adapters = edges(MemoryStore(), database)
    follow(adapters, BANK, [A._replace(alert=False)])
    [before] = matters(adapters, BANK)

    later = adapters._replace(now=lambda: NOON + timedelta(hours=1))
    follow(later, BANK, [A])
    [after] = matters(adapters, BANK)

    assert (1, None, 1, NOON + timedelta(hours=1)) == (
        before.number,
        before.late,
        after.number,
        after.late,
    )


def test_two_open_matters_about_one_thing_are_impossible(database: Database) -> None:
    row = {"issuer": BANK, "kind": "k", "subject": "s", "since": NOON, "text": "t"}

    def both(connection: object) -> None:
        for number in (1, 2):
            connection.execute(insert(MATTER).values(number=number, **row))  # type: ignore[attr-defined]

    with pytest.raises(BugError):
        database.act(BANK, both)


def test_every_kind_that_is_told_says_what_to_do() -> None:
    told = [kind for kind in every_kind() if kind.is_alert]

    assert [] == [kind.name for kind in told if not str(kind.then).rstrip().endswith(".")]
