"""Retention on real nights: what is due goes, once its time has come, and what went stays
provable.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from flows.extensions.alerts.metrics import write_metrics
from flows.extensions.deliveries.changes import CHANGED
from flows.extensions.deliveries.delivered import (
    DeliveryId,
    all_deliveries,
    line_of,
    read_changes,
    write_changes,
)
from flows.extensions.deliveries.formats import Delivery
from flows.extensions.deliveries.handover import make
from flows.extensions.deliveries.personal import purgeable
from flows.operations.history import history
from flows.operations.matters import watch
from flows.operations.purge import (
    _links_of_no_run,
    plan_purge,
    purge,
)
from flows.operations.remediation import abandon
from flows.operations.undecided_work import unfinished_purge
from flows.reports.across import reconcile_runs
from flows.reports.cardholder_trace import trace
from flows.reports.rebuild import rebuild
from flows.reports.verdicts import CLEAR
from flows.runs.business_date import local_day
from flows.runs.errors import AbandonedError, LedgerPurgedError
from flows.runs.journal import Act, enter
from flows.runs.keys import keys_of
from flows.runs.outbox import move, outboxes
from flows.runs.purges import purges
from flows.runs.single_links import prompted_singles
from flows.submissions.prior_state import survey_cards
from flows.submissions.submit import Submitted
from schemas.records import SingleAnswered, SingleAsked
from schemas.tables import parquet
from tests.builders import quick
from tests.memory import DROPPED
from tests.memory_bench import memory_bench
from tests.night import BANK, NOON, Bench, local_bench
from tests.operations.retention import (
    SOURCES,
    WEEK,
    YEAR,
    Killed,
    answered,
    cleaner,
    deleted,
    later,
    planned,
    sent,
)
from tests.singles import recorded


def test_sealed_chunks_go_a_week_after_the_last_answer_and_not_before(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    before = bench.snapshot()

    young = purge(later(bench, 6).context, cleaner(bench))
    kept = bench.snapshot()
    due = purge(later(bench, WEEK).context, cleaner(bench))

    assert ((), before.keys()) == (young.lots, kept.keys())
    gone = before.keys() - bench.snapshot().keys()
    assert (
        gone
        == {key for key in before if key.startswith(f"bank/runs/{run}/chunks/")}
        == deleted(due)
    )
    assert bench.snapshot().keys() <= before.keys()
    assert [(run, "chunks")] == [(one.run, one.part) for one in purges(bench.adapters, BANK)]


def test_after_the_ledger_only_what_proves_the_run_is_left_and_no_source_is_touched(
    tmp_path: Path,
) -> None:
    bench, run = answered(tmp_path)
    before = bench.snapshot()

    purge(later(bench, YEAR).context, cleaner(bench))

    after = bench.snapshot()
    left = {
        key.removeprefix(f"bank/runs/{run}/").split("/")[0]
        for key in after
        if key.startswith("bank/runs/")
    }
    assert set() == left
    same = [key for key in after if key in before and not key.startswith("bank/book/")]
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    assert all(key in after for key in before if key.startswith(SOURCES))


def test_a_purge_leaves_a_record_of_what_when_by_whom_and_by_which_setting(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    old = later(bench, YEAR)
    sizes = {entry.key: entry.size for entry in bench.store.keys(keys_of(run).chunks)}

    purge(old.context, cleaner(bench))

    chunks, ledger = (bench.stored(run).purged(part) for part in ("chunks", "ledger"))
    assert chunks
    assert ledger
    assert (run, {"chunks": 3}, sum(sizes.values())) == (chunks.run, chunks.objects, chunks.bytes)
    assert ("tester:1", "chunks_days = 7", "ledger_days = 395") == (
        chunks.by,
        chunks.setting,
        ledger.setting,
    )
    assert ("balanced", 50) == (ledger.verdict, ledger.rows["linked"])
    assert {"ledger", "report", "report/rows"} <= ledger.objects.keys()


@pytest.mark.parametrize("days", [0, WEEK, YEAR])
def test_a_dry_run_changes_nothing_and_names_exactly_what_a_real_one_deletes(
    tmp_path: Path, days: float
) -> None:
    bench, _ = answered(tmp_path)
    before, old = bench.snapshot(), later(bench, days)

    dry = plan_purge(old.context, cleaner(bench))
    untouched = bench.snapshot()
    purge(old.context, cleaner(bench))

    assert before == untouched
    assert deleted(dry) == before.keys() - bench.snapshot().keys()


def test_a_run_cancelled_as_a_whole_needs_no_report_to_go(tmp_path: Path) -> None:
    bench, run = sent(tmp_path)
    move(bench.context.adapters, run, "cancelled", reason="the issuer sent another")

    purge(later(bench, YEAR).context, cleaner(bench))

    found = bench.stored(run).status
    assert ("cancelled (purged)", 50, 50) == (found.state, found.read, found.awaiting)


# the first is the question whether it may delete
@pytest.mark.parametrize("deletions", quick(1, [2, 1, 5]))
def test_a_purge_killed_after_its_record_is_finished_by_the_next_one(
    tmp_path: Path, deletions: int
) -> None:
    bench, run = answered(tmp_path)
    whole = later(answered(tmp_path / "whole")[0], YEAR)
    purge(whole.context, cleaner(whole))
    old = later(bench, YEAR)
    with pytest.raises(KeyboardInterrupt):
        purge(old.context, Killed(cleaner(bench), deletions))
    first = bench.stored(run).purged("chunks")
    stopped = unfinished_purge(old.context)

    again = purge(later(bench, YEAR + 1).context, cleaner(bench))

    assert first == bench.stored(run).purged("chunks")
    assert again.lots[0].resumed
    assert (run, None) == (stopped and stopped.run, unfinished_purge(old.context))
    assert _left(whole) == _left(bench)
    assert () == plan_purge(later(bench, YEAR + 2).context, cleaner(bench)).lots


def _left(bench: Bench) -> set[str]:
    """Return what is left of the runs and of their purges."""
    there = [key for key in bench.snapshot() if key.startswith("bank/runs/")]
    records = {f"{one.run} {one.part}" for one in purges(bench.adapters, BANK)}
    return {*there} | records


def test_a_run_that_was_never_committed_is_abandoned_and_goes_after_the_ledgers_term(
    tmp_path: Path,
) -> None:
    bench, run = planned(tmp_path)

    young = plan_purge(later(bench, YEAR - 10).context, cleaner(bench))
    due = purge(later(bench, YEAR).context, cleaner(bench))

    assert ((), [("chunks", "ledger_days = 395"), ("ledger", "ledger_days = 395")]) == (
        young.lots,
        [(lot.record.part, lot.record.setting) for lot in due.lots],
    )
    assert "abandoned" == bench.stored(run).status.state
    with pytest.raises(AbandonedError, match="never committed, ledger_days = 395"):
        later(bench, YEAR).submit("bank-20261120.csv")


def test_an_abandoned_run_goes_with_the_chunks_term(tmp_path: Path) -> None:
    bench, run = planned(tmp_path)
    abandon(bench.context.adapters, run, "the issuer sent another")

    due = purge(later(bench, WEEK).context, cleaner(bench))

    assert [("chunks", "chunks_days = 7"), ("ledger", "chunks_days = 7")] == [
        (lot.record.part, lot.record.setting) for lot in due.lots
    ]


def test_what_dead_processes_left_goes_and_what_is_young_stays(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    half = f"bank/runs/{run}/report/.tmp-0123456789abcdef"
    (tmp_path / "store" / half).write_bytes(b"half")
    (tmp_path / "store" / "bank" / "extracts" / ".tmp-of-the-issuer").write_bytes(
        b"half an extract"
    )

    young = purge(later(bench, 0).context, cleaner(bench))
    due = purge(later(bench, 2).context, cleaner(bench))

    assert () == young.leftovers
    assert [half] == [entry.key for entry in due.leftovers]
    assert not (tmp_path / "store" / half).exists()
    assert (tmp_path / "store" / "bank" / "extracts" / ".tmp-of-the-issuer").exists()


def test_a_purged_run_is_told_as_one_by_every_command_and_alarms_nobody(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    before = bench.stored(run).status
    old = later(bench, YEAR)
    purge(old.context, cleaner(bench))

    stands = bench.stored(run).status
    across = reconcile_runs(old.context)
    known = survey_cards(old.context).known

    assert before._replace(state=f"{before.state} (purged)") == stands
    assert (0, CLEAR) == (across["outstanding"]["count"], across["verdict"])
    assert list(outboxes(old.runs)) == []
    assert [] == [
        change
        for change in watch(old.context)
        if change.kind in ("results overdue", "break UNKNOWN_CUID")
    ]
    assert "cardlink_rows" in write_metrics(old.context)
    assert {"chunks purged", "ledger purged"} <= {one.what for one in history(bench.adapters, run)}
    assert 0 == len(known)
    with pytest.raises(LedgerPurgedError, match=run):
        rebuild(old.context, old.stored(run))
    assert ((), (run,)) == trace(old.context.adapters, BANK, "C1")
    assert Submitted(bench.manifest(run), already=True) == old.submit("bank-20261120.csv")


def test_a_late_result_of_a_purged_run_is_a_break_that_says_so(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    bench.ingest()  # a copy is read again
    old = later(bench, YEAR)
    purge(old.context, cleaner(bench))
    [late, *_] = [key for key in bench.snapshot() if key.startswith("bank/results/")]
    bench.drop_result(bench.content(late), f"again-{run}-00001-result.csv")

    done = old.ingest()

    assert ((), 1) == (done.reports, len(done.breaks))
    assert f"run {run} is purged). Leave the file" in done.breaks[0]


def test_delivered_links_go_with_the_ledgers_term_and_the_deliveries_stay(tmp_path: Path) -> None:
    bench = later(local_bench(tmp_path), 0)
    folder = "bank/deliveries/000001/"
    links = {f"{folder}links{end}" for end in (".csv", "-00002.csv", ".parquet")}
    counts = dict.fromkeys(("after", "new", "replaced", "withdrawn", "living"), 0)
    record = Delivery(at=bench.now(), by="tester", files={}, **counts)
    changed = dict.fromkeys(CHANGED, None) | {"cuid": "c-1", "url": "x", "change": "new"}
    changes = pl.DataFrame([changed], CHANGED)

    def work(act: Act) -> None:
        make(act, line_of("bank", "default"), 1, record, tries=0)
        write_changes(act.connection, "bank", DeliveryId("default", 1), changes)

    def delivered() -> list[tuple[bool, int]]:
        with bench.database.snapshot() as connection:
            rows = read_changes(connection, "bank").height
        return [(id_.number == 1, rows) for id_ in all_deliveries(bench.adapters, "bank")]

    enter(bench.adapters, "bank", "delivery made", work)
    for key in links | {f"{folder}received"}:
        content = parquet(pl.DataFrame(schema=CHANGED)) if key.endswith(".parquet") else b"{}"
        bench.store.create(key, content)

    young = plan_purge(later(bench, 390).context, cleaner(bench))
    before = delivered()
    due = purge(later(bench, YEAR).context, cleaner(bench))

    assert ((), links) == (young.lots, deleted(due))
    assert {f"{folder}received"} == {entry.key for entry in bench.store.keys("bank/deliveries/")}
    assert ([(True, 1)], [(True, 0)]) == (before, delivered())


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("deliveries", "bank/deliveries/000001/links.csv"),
        ("acknowledgements", "bank/acknowledgements/000001/rows.csv"),
    ],
)
def test_links_of_no_run_go_from_the_moment_on_to_which_their_term_runs(
    kind: str, key: str
) -> None:
    bench = memory_bench()
    bench.store.create(key, b"{}")
    moments = [DROPPED + timedelta(microseconds=late) for late in (-1, 0, 1)]

    due = [purgeable(bench.context, moment)[kind] for moment in moments]

    assert [[], [key], [key]] == [[entry.key for entry in entries] for entries in due]


def test_a_purge_of_links_of_no_run_says_until_when_it_took_them() -> None:
    bench = memory_bench(lambda: NOON + timedelta(days=YEAR))
    days = {}
    for number in (2, 3, 1):
        key = f"bank/deliveries/{number:06d}/links.csv"
        bench.store.create(key, b"")
        days[key] = DROPPED + timedelta(days=number)
        bench.store.objects[key] = (bench.store.objects[key][0]._replace(modified=days[key]), b"")

    [lot] = _links_of_no_run(bench.context)

    assert DROPPED + timedelta(days=3) == lot.record.since


def test_links_asked_for_from_no_run_go_with_the_ledgers_term_unless_nobody_knows_what_came_of_them(
    tmp_path: Path,
) -> None:
    bench = later(local_bench(tmp_path), 0)
    known, unknown = "20261120T000000000001", "20261120T000000000002"
    asked = SingleAsked(
        row=None, cuid="c-1", last_4="4242", expiration="3012", at=bench.now(), by="tester"
    )
    refused = SingleAnswered(outcome="refused", at=bench.now())
    recorded(bench.adapters, known, asked, refused)
    recorded(bench.adapters, unknown, asked)

    young = plan_purge(later(bench, 390).context, cleaner(bench))
    due = purge(later(bench, YEAR).context, cleaner(bench))

    assert ((), [[f"single_link/{known}"]]) == (young.lots, [lot.names for lot in due.lots])
    assert [unknown] == [single.id for single in prompted_singles(bench.adapters, "bank")]
    assert [due.lots[0].record] == purges(bench.adapters, BANK)
    assert frozenset() == bench.runs.without_ledger


def test_a_link_of_no_run_stays_until_the_day_after_its_last(tmp_path: Path) -> None:
    bench = later(local_bench(tmp_path), 0)
    moment = later(bench, YEAR).now()
    today = local_day(moment, bench.issuer.time_zone)
    asked = SingleAsked(
        row=None, cuid="c-1", last_4="4242", expiration="3012", at=bench.now(), by="tester"
    )
    for number, ends in enumerate((today - timedelta(days=1), today, None)):
        answer = SingleAnswered(outcome="linked", at=bench.now(), url="x", expires_on=ends)
        recorded(bench.adapters, f"20261120T00000000000{number}", asked, answer)

    purge(replace(bench, now=lambda: moment).context, cleaner(bench))

    [kept] = prompted_singles(bench.adapters, "bank")
    assert "20261120T000000000001" == kept.id
