import csv
import io
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path

import pytest

from flows.reports.across import reconcile_runs
from flows.runs.journal import enter
from flows.runs.keys import reconciliation
from flows.runs.outbox import move
from flows.runs.purges import add_purge
from schemas.portal import CITY, PAN
from schemas.records import Purged
from tests.again import again, in_state, of_rows
from tests.facts import people
from tests.night import NOON, Bench, local_bench, made_once


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.moment = NOON

    def __call__(self) -> datetime:
        return self.moment

    def on(self, **span: float) -> None:
        self.moment += timedelta(**span)


def sent(folder: Path, rows: int = 60) -> tuple[Bench, Clock, str]:
    clock = Clock()
    bench, run = _sent(folder, rows)
    return replace(bench, now=clock), clock, run


@made_once
def _sent(folder: Path, /, rows: int) -> tuple[Bench, str]:
    bench = local_bench(folder, portal={"rows_per_chunk": 20})
    return bench, bench.submit(bench.drop(rows)).manifest.run


def listed(bench: Bench, name: str) -> list[dict[str, str]]:
    content = bench.content(reconciliation("bank") + name).decode()
    return list(csv.DictReader(io.StringIO(content)))


def test_silence_shows_as_open_items_with_an_age_before_any_result_came(tmp_path: Path) -> None:
    bench, clock, run = sent(tmp_path)
    clock.on(hours=30)

    facts = reconcile_runs(bench.context)

    outstanding = facts["outstanding"]
    assert (3, 60) == (outstanding["count"], outstanding["rows"])
    assert {"count": 3, "rows": 60} == outstanding["ages"]["1 to 2 days"]
    assert "answers awaited" == facts["verdict"]
    assert [run] * 3 == [row["run"] for row in listed(bench, "worklist.csv")]


def test_an_answer_that_arrived_is_outstanding_no_more(tmp_path: Path) -> None:
    bench, clock, run = sent(tmp_path)
    clock.on(hours=49)
    late = reconcile_runs(bench.context)
    bench.answer()
    bench.ingest()

    done = reconcile_runs(bench.context)

    assert ("answers overdue", {"count": 3, "rows": 60}) == (
        late["verdict"],
        late["outstanding"]["overdue"],
    )
    assert [("chunks to upload", run, 60)] == [
        (work["kind"], work["run"], work["rows"]) for work in late["worklist"]
    ]
    assert "nothing outstanding" == done["verdict"]


def test_no_answer_is_due_for_chunks_that_are_held(tmp_path: Path) -> None:
    bench, clock, run = sent(tmp_path)
    clock.on(hours=49)
    move(bench.context.adapters, run, "held", [1, 2, 3], "asked by the issuer")

    facts = reconcile_runs(bench.context)

    assert 0 == facts["outstanding"]["overdue"]["count"]


def test_no_answer_is_due_for_a_run_that_was_purged_unanswered(tmp_path: Path) -> None:
    bench, clock, run = sent(tmp_path)
    clock.on(hours=49)
    rows = {
        "read": 60,
        "linked": 0,
        "error": 0,
        "awaiting": 60,
        "rejected": 0,
        "duplicate": 0,
        "suppressed": 0,
    }
    gone = {
        "setting": "ledger_days = 365",
        "objects": {},
        "bytes": 0,
        "verdict": "balanced, answers awaited",
    }
    who = {"run": run, "part": "ledger", "at": clock(), "by": "tester", "since": clock()}
    record = Purged.model_validate({**who, **gone, "rows": rows})
    enter(bench.adapters, "bank", "purged", lambda act: add_purge(act, record), run=run)

    facts = reconcile_runs(bench.context)

    assert (0, 60) == (facts["outstanding"]["count"], facts["rows"]["awaiting"])


def test_the_clock_of_an_answer_starts_with_the_upload_where_somebody_noted_it(
    tmp_path: Path,
) -> None:
    bench, clock, run = sent(tmp_path)
    clock.on(hours=40)
    move(bench.adapters, run, "uploaded", [1, 2])
    clock.on(hours=20)

    facts = reconcile_runs(bench.context)

    assert {"count": 1, "rows": 20} == facts["outstanding"]["overdue"]
    assert {"1": "20 h", "2": "20 h", "3": "2 d 12 h"} == {
        work["chunk"]: work["age"] for work in listed(bench, "worklist.csv")
    }


def test_a_chunk_that_is_held_or_cancelled_is_open_but_never_overdue(tmp_path: Path) -> None:
    bench, clock, run = sent(tmp_path)
    move(bench.context.adapters, run, "held", [1], "asked by the issuer")
    move(bench.context.adapters, run, "cancelled", [2], "sent by hand")
    clock.on(hours=90)

    facts = reconcile_runs(bench.context)

    outstanding = facts["outstanding"]
    assert (2, 1) == (
        outstanding["missing"]["on hold or cancelled"]["count"],
        outstanding["missing"]["no result"]["count"],
    )
    assert {"count": 1, "rows": 20} == outstanding["overdue"]
    assert {"1": "chunks on hold", "": "rows of cancelled chunks", "3": "chunks to upload"} == {
        work["chunk"]: work["kind"] for work in listed(bench, "worklist.csv")
    }


def test_only_runs_of_the_dates_asked_for_are_looked_at(tmp_path: Path) -> None:
    bench, _, run = sent(tmp_path)
    later = bench.submit(bench.drop(10, name="bank-20261122.csv", seed=1)).manifest.run

    upto = reconcile_runs(bench.context, None, date(2026, 11, 20))
    since = reconcile_runs(bench.context, date(2026, 11, 21), None)

    assert [run] == [line["run"] for line in upto["runs"]]
    assert [later] == [line["run"] for line in since["runs"]]


def test_the_report_of_a_period_leaves_that_of_all_runs_as_it_is(tmp_path: Path) -> None:
    bench, _, run = sent(tmp_path)
    reconcile_runs(bench.context)
    folder = reconciliation("bank")
    before = {key: data for key, data in bench.snapshot().items() if key.startswith(folder)}

    reconcile_runs(bench.context, date(2026, 11, 1), date(2026, 11, 15))
    reconcile_runs(bench.context, None, date(2026, 11, 20))

    after = {key: data for key, data in bench.snapshot().items() if key.startswith(folder)}
    names = {key.removeprefix(folder).partition("/")[0] for key in after.keys() - before.keys()}
    assert before == {key: after[key] for key in before}
    assert {"period-20261101-20261115", "period-first-20261120"} == names
    assert run in after[f"{folder}period-first-20261120/worklist.csv"].decode()


def test_a_cardholder_whose_every_attempt_failed_is_listed_and_leaves_the_list_with_a_link(
    tmp_path: Path,
) -> None:
    bench, clock, _ = sent(tmp_path, rows=20)
    bench.answer(fail_share=1.0)
    bench.ingest()
    failed = reconcile_runs(bench.context)
    clock.on(days=1)
    bench.submit(bench.drop(10, name="bank-20261121.csv"))
    waiting = reconcile_runs(bench.context)
    bench.answer()
    bench.ingest()

    linked = reconcile_runs(bench.context)

    assert [20, 10, 10] == [facts["unlinked"]["cardholders"] for facts in (failed, waiting, linked)]
    assert 10 == len(listed(bench, "unlinked.csv"))


def test_silence_of_last_year_still_shows_and_so_do_its_cardholders(
    tmp_path: Path,
) -> None:
    bench, clock, _ = sent(tmp_path)
    clock.on(days=365)

    facts = reconcile_runs(bench.context)

    assert (3, {"to upload": 60}) == (facts["outstanding"]["overdue"]["count"], people(facts))


def test_looking_changes_no_report_of_a_run(tmp_path: Path) -> None:
    bench, clock, _ = sent(tmp_path)
    bench.answer()
    bench.ingest()
    before = {key: data for key, data in bench.snapshot().items() if "/report/" in key}
    clock.on(days=9)

    reconcile_runs(bench.context)

    assert before == {key: data for key, data in bench.snapshot().items() if "/report/" in key}


def test_an_issuer_without_runs_has_nothing_outstanding(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)

    facts = reconcile_runs(bench.context._replace(forms_url="https://forms.example.com/"))

    page = bench.content(reconciliation("bank") + "report.html")
    assert ("nothing outstanding", []) == (facts["verdict"], facts["runs"])
    assert b"Outstanding chunks" in page
    assert b'href="https://forms.example.com/' in page


@pytest.mark.slow
def test_every_cardholder_counts_once_by_its_last_state_whatever_the_number_of_runs(
    tmp_path: Path,
) -> None:
    bench, run = of_rows(tmp_path, {}, {}, {CITY: None}, {PAN: None}, {})
    bench.answer(fail_share=0.5, seed=2)
    bench.ingest()
    again(bench, run)

    facts = reconcile_runs(bench.context)

    linked = len(in_state(bench, run, "linked"))
    assert linked in (1, 2)
    assert {"to upload": 3 - linked, "not sent": 2, "linked": linked} == people(facts)
    assert 2 == facts["unlinked"]["cardholders"]


def test_a_cardholder_of_a_cancelled_chunk_is_listed_with_that_reason(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {})
    move(bench.context.adapters, run, "cancelled", reason="the issuer asked for it")

    facts = reconcile_runs(bench.context)
    cards = listed(bench, "unlinked.csv")

    assert {"cancelled": 2} == people(facts)
    assert [("0", "0", run, "outbox", "row.chunk.cancelled", "nothing")] * 2 == [
        (card["attempts"], card["sent"], card["run"], card["stage"], card["reason"], card["action"])
        for card in cards
    ]
    assert ["rows of cancelled chunks"] == [line["kind"] for line in facts["worklist"]]


@pytest.mark.slow
def test_a_cancelled_chunk_leaves_its_cardholders_where_they_were(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {})
    bench.answer(fail_share=1.0)
    bench.ingest()
    second = again(bench, run).manifest.run
    move(bench.context.adapters, second, "cancelled", reason="another key")

    facts = reconcile_runs(bench.context)

    assert {"refused": 2} == people(facts)
    assert 2 == facts["unlinked"]["cardholders"]
