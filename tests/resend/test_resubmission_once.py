"""Whatever ends or overtakes a resubmission, and whatever is asked for: no card goes out twice,
none is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from threading import Barrier, Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.errors import CardlinkError
from flows.resend.resubmission import Request, StandingRowsError, plan_resubmit
from flows.resend.resubmission_run import NothingToSendError, resubmit
from flows.resend.selection import RowSelection
from flows.runs.commits import OvertakenError
from flows.runs.outbox import move
from flows.runs.store import Store
from flows.submissions.begun import OVERTAKEN
from flows.submissions.run_choice import RunInputs, pick
from flows.submissions.submit import Submitted
from schemas.manifest import Manifest, Selection, SourceIdentity
from schemas.reasons import ACTIONS
from tests.again import ERRORS, again, in_state, night
from tests.builders import quick, share_of
from tests.memory import MemoryStore
from tests.night import DAY, NOON, Bench
from tests.storms import FailingDatabase, FailingStore

BOUNDARIES = (
    "/selection.parquet",
    "/chunks/",
    "resubmitted",
    "committed",
)


class PowerCutError(Exception):
    """The machine is gone."""


class PowerCut:
    """Lets a store work until something was written at a boundary, and nothing from then on."""

    def __init__(self, boundary: str) -> None:
        self._boundary = boundary
        self._gone = False

    def __call__(self, operation: str, key: str) -> Exception | None:
        gone = self._gone
        self._gone |= operation in ("create", "replace") and self._boundary in key
        return PowerCutError() if gone else None

    def act(self, what: str) -> Exception | None:
        """Do the same where an act of that name was committed."""
        self._gone |= what == self._boundary
        return PowerCutError() if self._gone else None


@pytest.fixture
def failed(tmp_path: Path) -> tuple[Bench, str]:
    """Return a night with errors, and its run."""
    return night(tmp_path)


def sent_again(bench: Bench) -> list[Manifest]:
    """Return the committed resubmissions."""
    return [one for one in bench.runs.manifests() if one.selection is not None]


def cards_sent_again(bench: Bench) -> Counter[str]:
    """Return how often each card went out in resubmissions."""
    ledgers = [bench.ledger(one.run).filter(fate="submitted") for one in sent_again(bench)]
    return Counter(cuid for ledger in ledgers for cuid in ledger["cuid"])


@pytest.mark.parametrize("boundary", quick(2, BOUNDARIES))
def test_after_a_crash_at_any_boundary_the_same_command_finishes_the_same_run(
    failed: tuple[Bench, str], boundary: str
) -> None:
    bench, run = failed
    errors = in_state(bench, run, "error")
    power = PowerCut(boundary)
    dying = replace(
        bench,
        store=FailingStore(bench.store, power),
        database=FailingDatabase(bench.database, power.act, late=True),
    )

    with pytest.raises(PowerCutError):
        again(dying, run)
    assert (boundary == "committed") is bench.stored(run).is_report_behind
    later = replace(bench, now=lambda: NOON + timedelta(hours=1))
    done = again(later, run)

    assert [done.manifest.run] == [one.run for one in sent_again(bench)]
    assert errors == bench.ledger(done.manifest.run)["origin"].to_list()
    assert {1} == set(cards_sent_again(bench).values())
    assert not bench.stored(run).is_report_behind


def test_in_a_store_that_was_put_back_only_a_run_of_the_same_rows_gets_the_same_name() -> None:
    whole = "bank-20261120-01234567"
    source = SourceIdentity(key="x", version="1", size=1, sha256="01234567" * 8)
    context = Bench(MemoryStore()).context
    runs = [cast(Any, SimpleNamespace(run=whole, selection="", as_of=DAY))]
    runs.append(cast(Any, SimpleNamespace(run=f"{whole}-r2", selection="older", as_of=DAY)))

    def named(rows: str) -> str:
        meant = Selection(kind="resubmit", of=whole, rows=1, sha256=rows, reason="again")
        return pick(context, source, runs, RunInputs(NOON.date(), selection=meant)).run

    one, same, other = named("one"), named("one"), named("other")
    assert (one, ["r3", "r3"]) == (same, [name.split("-")[-1] for name in (one, other)])
    assert 3 == len({one, other, f"{whole}-r3"})


def test_who_was_overtaken_while_working_commits_nothing(failed: tuple[Bench, str]) -> None:
    bench, run = failed
    overtaken = replace(
        bench,
        store=Interrupted(bench.store, "/ledger/", lambda: again(bench, run, reason="faster")),
    )

    with pytest.raises(OvertakenError):
        again(overtaken, run, reason="slower")
    with pytest.raises(NothingToSendError):
        again(bench, run, reason="slower")

    assert [1] == sorted({*cards_sent_again(bench).values()})
    assert ["faster"] == [
        one.selection.reason for one in sent_again(bench) if one.selection is not None
    ]
    assert [("abandoned", OVERTAKEN)] == [
        (one.state, one.why) for one in bench.runs.statuses() if one.why
    ]


def test_of_two_overlapping_resubmissions_at_once_no_card_goes_out_twice(
    failed: tuple[Bench, str],
) -> None:
    bench, run = failed
    first, *others = in_state(bench, run, "error")
    start, told = Barrier(2), list[Submitted | CardlinkError]()

    def race(wanted: RowSelection, reason: str) -> None:
        start.wait()
        try:
            told.append(resubmit(bench.context, Request(run, wanted, reason)))
        except CardlinkError as error:
            told.append(error)

    wishes = (
        (ERRORS, "all of them"),
        (RowSelection(rows=frozenset({first, others[0]})), "two of them"),
    )
    racers = [Thread(target=race, args=wish) for wish in wishes]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()

    assert {1} == set(cards_sent_again(bench).values())
    lost = [type(one) for one in told if isinstance(one, CardlinkError)]
    assert set(lost) <= {OvertakenError, NothingToSendError, StandingRowsError}
    assert any(isinstance(one, Submitted) for one in told)


ASKED = st.builds(
    RowSelection,
    st.booleans(),
    st.frozensets(
        st.sampled_from(["card", "cardholder.cuid", "address.postal_code", "card.pan.unsupported"])
    ),
    st.frozensets(st.sampled_from(sorted(set(ACTIONS.values())))),
    st.booleans(),
    st.booleans(),
    st.frozensets(st.integers(1, 30), max_size=4),
)


@cache
def mixed_night() -> tuple[Bench, str]:
    """Return a night with rows linked, in error, refused, cancelled and awaiting, some of it in a
    second run.
    """
    bench, run = night(Path(mkdtemp(prefix="mixed-night-")), fail=0.5, chunk=4)
    again(bench, run, RowSelection(rows=frozenset(in_state(bench, run, "error")[:2])))
    bench.answer()
    again(bench, run, RowSelection(rows=frozenset(in_state(bench, run, "error")[2:4])))
    other = bench.submit(bench.drop(12, "bank-20261121.csv", bad=0.3, seed=9)).manifest.run
    move(bench.context.adapters, other, "cancelled", [1], "another key")
    return bench, run


@settings(max_examples=share_of(0.08), suppress_health_check=[HealthCheck.too_slow])
@given(ASKED.filter(any))
def test_whatever_is_asked_for_no_linked_or_awaiting_card_goes_out_without_an_override(
    wanted: RowSelection,
) -> None:
    bench, run = mixed_night()
    stand = set(in_state(bench, run, "linked")) | set(in_state(bench, run, "awaiting"))
    for one in sent_again(bench):
        stand |= {*bench.ledger(one.run)["origin"]}  # linked or awaiting, each of them

    if wanted.rows & stand:
        with pytest.raises(StandingRowsError):
            plan_resubmit(bench.context, Request(run, wanted, ""))
    else:
        assert (
            not set(plan_resubmit(bench.context, Request(run, wanted, "")).outgoing["origin"])
            & stand
        )


class Interrupted(FailingStore):
    """Lets something else happen right before the first object at a boundary is created."""

    def __init__(self, store: Store, boundary: str, meanwhile: Callable[[], object]) -> None:
        self._waiting = [meanwhile]

        def happen(operation: str, key: str) -> None:
            if operation == "create" and boundary in key and self._waiting:
                self._waiting.pop()()

        super().__init__(store, happen)
