"""Rules of time and of precedence about runs, their removal, deliveries and decisions: the moment
itself and its neighbours, the first and the last, as in `test_neighbours.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.extensions.alerts import summaries
from flows.extensions.deliveries.due import _last_event
from flows.operations import (
    break_decisions,
    giving_up,
    manual_attribution,
    reread,
    reseal,
    retention,
)
from flows.operations.giving_up import Which, _of_reasons
from flows.reports.reconciled import Findings
from flows.runs import ledger_rewriting
from flows.runs.chunks import OutboxChunk
from flows.runs.events import ANSWERED
from flows.runs.store import Entry
from flows.runs.stored_run import StoredRun
from schemas.manifest import LedgerPart, ManifestChunk
from schemas.records import Attribution, RewrittenPart
from tests.memory import MemoryStore
from tests.memory_bench import memory_bench
from tests.night import DAY, NOON
from tests.planted import entered

SECOND = timedelta(seconds=1)
MOMENTS = (NOON - SECOND, NOON, NOON + SECOND)
NEIGHBOURS = tuple(DAY + timedelta(days=days) for days in (-1, 0, 1))


# Retention, summaries
# --------------------------------------------------------------------------------------------------

ENTRIES = [Entry(f"o/{at:%S}", 1, at, "") for at in (NOON, NOON + SECOND, NOON - SECOND)]


def test_a_run_that_was_never_committed_is_as_old_as_its_newest_object() -> None:
    run = cast(Any, SimpleNamespace(end=None, id="bank-20261120-00000000"))
    run.as_planned = lambda: SimpleNamespace(planned_at=NOON)

    state = retention.state_of(memory_bench().context, run, ENTRIES)

    assert NOON + SECOND == state.since


def test_a_report_is_stale_once_it_is_behind_and_where_it_lists_not_all_breaks() -> None:
    def reasons(*, behind: bool, more: int = 0, last_is_notice: bool = True) -> list[str]:
        outcomes = SimpleNamespace(state={"results": 1 + behind, "ingest": 7})
        run = cast(Any, SimpleNamespace(single_link_attempts=[], outcomes=outcomes))
        breaks = [{"notice": False}, {"notice": last_is_notice}]
        recorded = {"closed": 0, "results": 1, "ingest": 7}
        summary = {"more_breaks": more, "breaks": breaks, "open": {"recorded": recorded}}
        return list(retention._stale_report_reasons(run, summary))

    newer = [bool(reasons(behind=behind)) for behind in (True, False)]
    unlisted = [
        bool(reasons(behind=False, more=more, last_is_notice=notice))
        for more, notice in ((0, False), (1, True), (1, False))
    ]

    assert ([True, False], [False, False, True]) == (newer, unlisted)


def test_a_summary_is_of_the_last_answer_and_of_the_last_thing_known_of_a_run() -> None:
    answers = [entered(ANSWERED, entry.modified, results=["a"]) for entry in ENTRIES]
    counts = SimpleNamespace(read=1, submitted=1, rejected=0)
    manifest = SimpleNamespace(selection=None, counts=counts, chunks=(), run="r1")
    events = {"committed": [], ANSWERED: answers}
    run = cast(Any, SimpleNamespace(id="r1", manifest=manifest, history=answers, summary=None))
    run.events = events.__getitem__
    run.committed_at = NOON + SECOND

    [answered] = summaries._answers(run)
    [ended] = summaries._end_of(run, None)

    assert NOON + SECOND == answered.since == ended.since == _last_event(run)


def test_the_links_of_a_committed_run_keep_its_ledger_until_the_last_of_them_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = SimpleNamespace(report=str)
    entries = [Entry("summary.json", 1, NOON, "")]
    summary = {"more_breaks": 0, "breaks": [], "open": {"recorded": {}}}
    run = SimpleNamespace(
        outbox=[],
        keys=keys,
        history=[],
        summary=summary,
        closed_breaks=(),
        outcomes=SimpleNamespace(state={}),
        committed_at=NOON,
        single_link_attempts=[],
    )
    monkeypatch.setattr(retention, "_awaiting_rows", lambda _: {})
    monkeypatch.setattr(retention, "_open_breaks", lambda *_: [])
    monkeypatch.setattr(retention, "_links_until", lambda *_: iter(NEIGHBOURS[::-1]))

    assert NEIGHBOURS[-1] == retention._committed_state(cast(Any, run), entries).links_until


def test_a_part_of_a_ledger_is_written_anew_under_a_name_that_no_record_has() -> None:
    ledger = pl.DataFrame({"row": [1], "cuid_made": [True], "reasons": [["|x"]]})
    part = LedgerPart(name="l.parquet", rows=1, sha256="")
    earlier = {part.name: RewrittenPart("l.parquet", "l-erased-3.parquet", "")}
    keys = SimpleNamespace(ledger="ledger/")
    run = SimpleNamespace(
        store=MemoryStore(), keys=keys, rewritten_parts=earlier, ledger_part=lambda _: ledger
    )

    anew = ledger_rewriting._rewritten(cast(Any, run), part, [1])

    assert anew is not None
    assert "l-erased-4.parquet" == anew.now


# Sealing again
# --------------------------------------------------------------------------------------------------


def test_chunks_are_sealed_again_under_a_number_that_no_attempt_used() -> None:
    store = MemoryStore()
    for number in (2, 7, 4):
        store.create(f"resealed/{number}/c1.pgp", b"")
    reseals = [SimpleNamespace(generation=number) for number in (1, 3)]
    run = SimpleNamespace(store=store, keys=SimpleNamespace(resealed="resealed/"), reseals=reseals)

    assert 8 == reseal._next_generation(cast(Any, run))


def test_of_many_rows_that_come_out_otherwise_the_first_are_named() -> None:
    rows = pl.Series(range(99, 0, -1))

    assert [*range(1, reread.FIRST + 1)] == [*map(int, reread._first_rows(rows).split(", "))]


# Deliveries, and who is given up
# --------------------------------------------------------------------------------------------------


def test_a_card_that_is_given_up_stands_as_its_newest_issue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    issues = pl.DataFrame({"holder": "a", "last_4": "1", "standing": ["refused", "awaited"]})
    monkeypatch.setattr(giving_up, "counted_cards", lambda _: issues)
    book = cast(Any, SimpleNamespace(cards_undecided=lambda _: None))

    assert ["awaited"] == giving_up._counted_once(book, DAY)["standing"].to_list()


def test_of_a_row_that_was_decided_twice_the_last_decision_is_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = {"at": NOON, "by": "anna", "reason": "said so", "result": "x.csv", "digest": "1"}
    attributed, withdrawn = (
        Attribution(**facts, what=what, position=1, run="r1", row=1)
        for what in ("attributed", "withdrawn")
    )
    nothing = SimpleNamespace(files=(), reports=())
    ingested = iter([nothing])
    monkeypatch.setattr(manual_attribution, "examine", lambda *_: (None, None))
    monkeypatch.setattr(manual_attribution, "ingest", lambda _: next(ingested))
    file = cast(Any, SimpleNamespace(decided=(attributed, withdrawn)))

    manual_attribution._finished(memory_bench().context, file, attributed)
    before = list(ingested)
    ingested = iter([nothing])
    manual_attribution._finished(memory_bench().context, file, withdrawn)

    assert ([nothing], []) == (before, list(ingested))


def test_a_chunk_without_any_result_can_be_given_up_from_a_day_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = ManifestChunk(number=1, name="c1", rows=1, bytes=1, sha256="")
    clock = NOON - timedelta(days=14)
    chunk = OutboxChunk("run-1", named, "uploaded", clock, clock)
    run = SimpleNamespace(outbox=[chunk])
    monkeypatch.setattr(StoredRun, "by_id", lambda *_: run)
    findings = Findings((), pl.DataFrame(), pl.DataFrame({"chunk": [1], "row": [1]}))

    def may_be_given_up(now: datetime) -> bool:
        context = memory_bench(lambda: now, limits={"lost_after_days": 14}).context
        try:
            break_decisions._with_unanswered_chunk(context, "run-1", findings, "chunk 1")
        except break_decisions.TooEarlyError:
            return False
        return True

    assert [False, True, True] == list(map(may_be_given_up, MOMENTS))


def test_the_cards_of_runs_before_a_day_are_given_up_and_not_those_of_the_day() -> None:
    lacking = pl.DataFrame({"run": "r1", "as_of": NEIGHBOURS, "reason": "city.missing.x"})

    def meant(before: date | None) -> Sequence[date]:
        which = Which(codes=frozenset({"city.missing.x"}), before=before)
        return _of_reasons(lacking, which)["as_of"].to_list()

    assert [*NEIGHBOURS[:1]] == meant(DAY)
    assert [*NEIGHBOURS] == meant(None)
