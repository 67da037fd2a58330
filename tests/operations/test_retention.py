"""What is due to go by a run's state alone."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.book.known_runs import ClosedRun
from flows.operations.retention import (
    End,
    Kept,
    RunState,
    _committed_state,
    closed_state,
    open_reasons,
    part_of,
    verdict,
)
from flows.runs.chunks import OutboxChunk
from flows.runs.events import last_answer
from flows.runs.keys import RunId, RunKeys
from flows.runs.store import Entry
from flows.runs.stored_run import StoredRun
from schemas.issuer import Issuer
from schemas.manifest import ManifestChunk
from schemas.records import PARTS, Part
from schemas.settings import Retention
from tests.memory_bench import memory_bench
from tests.planted import entered

RUN = RunKeys(RunId("bank", date(2026, 11, 20), "3f9c21aa"))
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
ENDS: list[End] = ["committed", "abandoned", "never"]


@given(
    part=st.sampled_from(PARTS),
    end=st.sampled_from(ENDS),
    reasons=st.lists(st.sampled_from(["held", "unanswered", "break"]), max_size=2),
    age=st.integers(0, 5000),
    links=st.none() | st.integers(-50, 5000),
    chunks=st.integers(0, 400),
    ledgers=st.integers(400, 800),
)
def test_only_what_is_done_old_enough_and_has_no_living_link_is_due(
    part: Part, end: End, reasons: list[str], age: int, links: int | None, chunks: int, ledgers: int
) -> None:
    until = None if links is None else NOON.date() + timedelta(days=links)
    state = RunState(NOON, tuple(reasons), until, end)
    settings = Retention(chunks_days=chunks, ledger_days=ledgers)
    now = NOON + timedelta(days=age)

    kept = verdict(part, state, settings, now)

    shorter = end == "abandoned" or (part == "chunks" and end == "committed")
    alive = part == "ledger" and until is not None and until >= now.date()
    assert (kept is None) == (not reasons and age >= (chunks if shorter else ledgers) and not alive)
    assert kept is None or (kept.until is None) == bool(reasons)


MOMENT = timedelta(microseconds=1)


@pytest.mark.parametrize(("part", "days"), [("chunks", 7), ("ledger", 500)])
def test_a_part_is_due_from_the_moment_its_term_ends(part: Part, days: int) -> None:
    settings = Retention(chunks_days=7, ledger_days=500)
    end = NOON + timedelta(days=days)

    told = [verdict(part, RunState(NOON), settings, end + late) for late in (-MOMENT, 0 * MOMENT)]

    why = f"{part}_days = {days}: not before {end:%Y-%m-%d}"
    assert [Kept(why, end.date()), None] == told


@pytest.mark.parametrize(("since", "counts"), [(NOON, NOON), (None, NOON + timedelta(days=2))])
def test_a_closed_run_counts_from_its_last_answer_or_object_and_until_its_last_link(
    since: datetime | None, counts: datetime
) -> None:
    ends = {"2027-01-20": 1, "2027-02-20": 1, "2027-01-21": 1, "": 1}
    closed = ClosedRun(verdict="balanced", rows={}, chunks=1, submit={}, expires=ends, since=since)
    entries = [
        Entry(RUN.report(name), 1, NOON + timedelta(days=days), "v")
        for name, days in (("summary.json", 0), ("links.csv", 2), ("errors.csv", 1))
    ]

    state = closed_state(closed, StoredRun(memory_bench().context.adapters, RUN), entries)

    assert RunState(counts, (), date(2027, 2, 20)) == state


@pytest.mark.parametrize(("clocks", "since"), [((), 0), ((3, 2), 2)])
def test_a_run_without_an_answer_counts_from_its_first_chunk_or_without_any_from_its_commit(
    clocks: tuple[int, ...], since: int
) -> None:
    sealed = ManifestChunk(number=1, name="c1", rows=9, bytes=1, sha256="")
    chunks = [
        OutboxChunk(str(RUN.run), sealed, "cancelled", NOON, NOON + timedelta(days=days))
        for days in clocks
    ]
    run = SimpleNamespace(outbox=chunks, keys=RUN, history=[], summary=None, committed_at=NOON)

    state = _committed_state(cast(StoredRun, run), [])

    assert RunState(NOON + timedelta(days=since)) == state


def test_a_ledger_stays_until_the_day_after_the_last_of_its_links() -> None:
    settings = Retention(ledger_days=500)
    state = RunState(NOON, (), NOON.date() + timedelta(days=600))
    days = (599, 600, 601)

    told = [verdict("ledger", state, settings, NOON + timedelta(days=day)) for day in days]

    kept = Kept(f"it has links valid until {state.links_until}", state.links_until)
    assert [kept, kept, None] == told
    assert verdict("chunks", state, settings, NOON + timedelta(days=599)) is None


def test_a_break_that_was_closed_ends_the_wait_for_the_rows_of_its_own_chunk_alone() -> None:
    def chunk(number: int) -> OutboxChunk:
        sealed = ManifestChunk(number=number, name=f"c{number}", rows=9, bytes=1, sha256="")
        return OutboxChunk(str(RUN.run), sealed, "answered", NOON, NOON)

    awaiting = {1: 2, 2: 3}
    closed: list[set[int]] = [set(), {1}, {1, 2}, {0}]

    still = [open_reasons([chunk(1), chunk(2)], awaiting, (), numbers) for numbers in closed]

    in_words = "rows without an answer"
    assert [[f"5 {in_words}"], [f"3 {in_words}"], [], [f"5 {in_words}"]] == still


@given(part=st.sampled_from(PARTS), age=st.integers(-10, 1000), wait=st.integers(0, 100))
def test_what_the_business_date_keeps_its_last_answer_keeps_too(
    part: Part, age: int, wait: int
) -> None:
    answered = datetime(2026, 11, 20, tzinfo=UTC) + timedelta(days=wait)
    now = datetime(2026, 11, 20, tzinfo=UTC) + timedelta(days=age)

    early = verdict(part, RunState(datetime(2026, 11, 20, tzinfo=UTC)), Retention(), now)

    assert early is None or verdict(part, RunState(answered), Retention(), now) is not None


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("chunks/bank-20261120-3f9c21aa-00001.csv.pgp", "chunks"),
        ("sealed/2/bank-20261120-3f9c21aa-00001.csv.pgp", "chunks"),
        ("chunks/bank-20261119-3f9c21aa-00001.csv.pgp", None),
        ("chunks/sub/bank-20261120-3f9c21aa-00001.csv.pgp", None),
        ("ledger/part-00001.parquet", "ledger"),
        ("ledger/part-0001-00001.parquet", "ledger"),
        ("report/links-00002.csv", "ledger"),
        ("report/links/part-00001.parquet", "ledger"),
        ("report/links.csv.bak", None),
        ("exchanged/notes.parquet", None),
        ("manifest.json.old", None),
    ],
)
def test_an_object_is_known_by_its_whole_name(name: str, part: str | None) -> None:
    assert part == part_of(RUN, RUN.base + name)


def test_a_result_that_is_looked_at_again_and_again_counts_from_when_it_came() -> None:
    looks = [entered("answered", NOON + timedelta(days=day), digests=["a"]) for day in (1, 2, 3)]
    other = entered("answered", NOON + timedelta(days=2), digests=["a", "b"])
    told = entered("overdue", NOON + timedelta(days=9))

    assert NOON + timedelta(days=2) == last_answer(NOON, [*looks, other, told])
    assert NOON == last_answer(NOON, [told])


@pytest.mark.parametrize(
    "table", [{"ledger_days": 30}, {"chunks_days": 500}, {"chunks_days": -1}, {"links_days": 3}]
)
def test_terms_that_would_forget_who_has_a_link_are_refused(table: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="retention"):
        Issuer.model_validate(
            {"issuer": "bank", "root": "store", "test": True, "retention": table}
            | {"portal": {"sealed": False, "allowed_hosts": ["links.example.com"]}}
        )
