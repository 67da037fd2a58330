"""Retention removes ledgers: whom it removes from the book is counted, once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.book.book import read_book
from flows.book.people import Balance, balance
from flows.book.removals import _by_ledger
from flows.book.standing import NAMES
from flows.book.upkeep import forget_book
from flows.operations.purge import plan_purge, purge
from flows.runs.purges import purges
from schemas.portal import CUID, NICKNAME, PAN
from schemas.records import Removed, SingleAnswered, SingleAsked
from tests.again import PANS
from tests.bench.growth import Clock
from tests.builders import portal_rows, share_of
from tests.clocked import ClockedStore
from tests.night import Bench, issuer, portal_csv
from tests.operations.retention import Killed, cleaner
from tests.singles import recorded

START = datetime(2026, 11, 20, 12, tzinfo=UTC)


def clocked(folder: Path) -> tuple[Bench, Clock]:
    """Return a bench on a store as old as its clock says; a ledger stays as short as it can."""
    (folder / "store").mkdir(parents=True)
    clock = Clock(START)
    settings = issuer(
        retention={"ledger_days": 63, "chunks_days": 7},
        limits={"max_seen_before": 1.0, "max_reject_rate": 0.5, "max_error_rate": 0.5},
    )
    return Bench(ClockedStore(folder / "store", clock), settings, clock), clock


def send(bench: Bench, people: str) -> str:
    """Send a row for each of these cardholders, a letter each, and answer them; return the run."""
    number = len(bench.runs.ids)
    cells = [
        {CUID: name, PAN: PANS[ord(name) % len(PANS)], NICKNAME: f"night {number}"}
        for name in people
    ]
    extract = f"bank-{bench.now():%Y%m%d}-{number}.csv"
    run = bench.submit(bench.drop_bytes(portal_csv(portal_rows(*cells)), extract)).manifest.run
    bench.answer()
    bench.ingest()
    return run


def counted(bench: Bench) -> Balance:
    """Return the balance over people, as it is now."""
    book = read_book(bench.context.adapters, "bank")
    return balance(book.cards(bench.now().date()), book.opening)


def later(clock: Clock, days: int) -> None:
    clock.moment += timedelta(days=days)


@pytest.mark.slow
def test_who_was_named_by_no_other_ledger_is_counted_by_the_state_they_stood_in(
    tmp_path: Path,
) -> None:
    bench, clock = clocked(tmp_path)
    send(bench, "ab")
    later(clock, 70)
    send(bench, "bc")
    before = counted(bench)

    purge(bench.context, cleaner(bench))

    after = counted(bench)
    assert (3, 3, {}) == (before.named, before.listed, before.opening.people)
    assert (3, 2, {"expired": 1}) == (after.named, after.listed, after.opening.people)
    assert {"expired": 1} == after.opening.cards
    assert "2 of 2 cardholders have a link; nobody waits." == after.sentence
    assert "Retention removed 1 more (1 expired)." == after.opening.sentence


@pytest.mark.slow
def test_who_is_named_again_after_that_is_new(tmp_path: Path) -> None:
    bench, clock = clocked(tmp_path)
    send(bench, "a")
    later(clock, 70)
    purge(bench.context, cleaner(bench))
    send(bench, "a")

    assert (2, 1) == (counted(bench).named, counted(bench).listed)


@pytest.mark.slow
def test_whom_two_ledgers_name_is_counted_with_the_last_of_them(tmp_path: Path) -> None:
    bench, clock = clocked(tmp_path)
    send(bench, "ab")
    later(clock, 65)
    send(bench, "bc")
    later(clock, 70)

    plan = plan_purge(bench.context, cleaner(bench))

    by_ledger = [lot.record.removed for lot in plan.lots if lot.record.part == "ledger"]
    assert [{"expired": 1}, {"expired": 2}] == [each.people for each in by_ledger if each]


def test_a_purge_that_is_killed_and_finished_counts_once(tmp_path: Path) -> None:
    bench, clock = clocked(tmp_path)
    send(bench, "ab")
    later(clock, 65)
    send(bench, "bc")
    later(clock, 70)

    for deletions in (1, 12, 20):
        with suppress(KeyboardInterrupt):
            purge(bench.context, Killed(cleaner(bench), deletions))
        assert 3 == counted(bench).named
    purge(bench.context, cleaner(bench))

    assert (3, 0) == (counted(bench).named, counted(bench).listed)


def single(bench: Bench, cuid: str, days: int) -> None:
    """Record a single link whose fields were typed in, and that can be opened so many days."""
    asked = SingleAsked(
        row=None, cuid=cuid, last_4="4242", expiration="3012", at=bench.now(), by="tester"
    )
    until = bench.now().date() + timedelta(days=days)
    answered = SingleAnswered(outcome="linked", at=bench.now(), url="x", expires_on=until)
    recorded(bench.adapters, f"{bench.now():%Y%m%dT%H%M%S}-{cuid}", asked, answered)


def test_who_had_a_single_link_of_no_run_is_counted_once_it_has_ended(tmp_path: Path) -> None:
    bench, clock = clocked(tmp_path)
    single(bench, "short", 30)
    single(bench, "long", 300)
    later(clock, 70)

    purge(bench.context, cleaner(bench))

    after = counted(bench)
    assert (2, 1, {"expired": 1}) == (after.named, after.listed, after.opening.people)


def test_a_rebuild_keeps_the_opening_balance(tmp_path: Path) -> None:
    bench, clock = clocked(tmp_path)
    send(bench, "ab")
    later(clock, 70)
    purge(bench.context, cleaner(bench))
    before = counted(bench)

    forget_book(bench.context.adapters, "bank")

    assert (2, before) == (before.named, counted(bench))


@pytest.mark.slow
def test_the_record_of_a_purge_has_counts_and_nobody_in_it(tmp_path: Path) -> None:
    bench, clock = clocked(tmp_path)
    send(bench, "ab")
    later(clock, 70)

    purge(bench.context, cleaner(bench))

    removed = [record.removed for record in purges(bench.adapters, "bank")]
    expired = Removed(people={"expired": 2}, cards={"expired": 2})
    assert [expired] == [each for each in removed if each is not None]


def kill_purge(bench: Bench, clock: Clock) -> None:
    with suppress(KeyboardInterrupt):
        purge(bench.context, Killed(cleaner(bench), 5))


STEPS: dict[str, Callable[[Bench, Clock], object]] = {
    "send ab": lambda bench, clock: send(bench, "ab"),
    "send bc": lambda bench, clock: send(bench, "bc"),
    "send cd": lambda bench, clock: send(bench, "cd"),
    "a month goes by": lambda bench, clock: later(clock, 35),
    "two months go by": lambda bench, clock: later(clock, 65),
    "purge": lambda bench, clock: purge(bench.context, cleaner(bench)),
    "a purge is killed": kill_purge,
    "forget": lambda bench, clock: forget_book(bench.context.adapters, "bank"),
    "a single link": lambda bench, clock: single(bench, "s", 62),
}


@settings(deadline=None, max_examples=share_of(0.2))
@given(st.lists(st.sampled_from(["purge", *STEPS]), min_size=3, max_size=5))
def test_those_ever_named_never_become_fewer_and_nobody_counts_twice(steps: list[str]) -> None:
    with TemporaryDirectory() as folder:
        bench, clock = clocked(Path(folder))
        before = counted(bench)
        for step in steps:
            STEPS[step](bench, clock)
            clock.moment += timedelta(minutes=1)
            now = counted(bench)
            assert now.named >= before.named
            if not step.startswith(("send", "a single")):
                assert now.named == before.named
            before = now


def test_who_left_with_a_ledger_is_counted_in_the_order_of_the_states() -> None:
    states = NAMES.categories.to_list()
    gone = pl.DataFrame({"holder": states[::-1]}).with_columns(
        standing=pl.col("holder").cast(NAMES)
    )
    traces = gone.select("holder", place=pl.lit(0))

    removed = _by_ledger(gone, traces, ["holder"])

    assert [(state, 1) for state in states] == [*removed[0].items()]
