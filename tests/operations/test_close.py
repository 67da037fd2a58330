"""Breaks closed by hand: shown with who and why, no matter of balance any more, open again where
they grow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from flows.operations.break_decisions import (
    close_break,
    reopen_break,
    runs_to_close,
)
from flows.operations.history import history
from flows.reports.behind import runs_behind
from flows.reports.ingestion import ingest
from flows.reports.rebuild import rebuild
from flows.reports.reconciled import find_breaks
from flows.reports.verdicts import OUT_OF_BALANCE, WAITING
from flows.results.decisions import sort_breaks
from flows.runs.adapters import NoReasonError
from flows.runs.context import overlaid
from flows.runs.errors import NotFoundError
from flows.runs.keys import keys_of
from flows.runs.shown_rows import OtherRowsError
from flows.runs.store import StoreBusyError
from flows.steps import Step
from schemas.breaks import break_of
from schemas.expressions import PUBLISHED
from schemas.records import Closing
from tests.night import NOON, Bench, forget_results, local_bench, made_once
from tests.storms import FailingStore

WHY = "the partner lost them and says so"


@pytest.fixture
def short(tmp_path: Path) -> tuple[Bench, str]:
    """A run of two chunks of ten rows, the first answered for six of them, the second for all."""
    return _short(tmp_path)


@made_once
def _short(tmp_path: Path) -> tuple[Bench, str]:
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 10})
    run = bench.submit(bench.drop(20)).manifest.run
    bench.answer(fail_share=0.0)
    [first, _] = sorted((tmp_path / "store" / "bank" / "results").iterdir())
    first.write_bytes(b"".join(first.read_bytes().splitlines(keepends=True)[:7]))
    bench.ingest()
    return bench, run


def unreporting(bench: Bench) -> Bench:
    """Return a bench whose commands are stopped before they write a report."""
    busy = StoreBusyError(place="x", code="503")
    broken = FailingStore(
        bench.store,
        lambda does, key: busy if does == "replace" and "/report/" in key else None,
    )
    return replace(bench, store=broken)


def summary(bench: Bench, run: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(bench.report(run, "summary.json"))
    return told


@pytest.mark.slow
def test_a_closed_break_is_no_matter_of_balance_and_its_line_says_that_it_was_closed(
    short: tuple[Bench, str],
) -> None:
    bench, run = short
    before = summary(bench, run)["verdict"]

    close_break(bench.context, run, "RESULT_SHORT", "", WHY)

    told = summary(bench, run)
    lines = {
        line["name"]: (line["left"], line["right"], line["holds"], line["closed"])
        for line in told["balance"]
    }
    assert (before, told["verdict"]) == (OUT_OF_BALANCE, WAITING)
    assert lines["result rows = rows sent, of answered chunks"] == (16, 20, False, 1)
    assert lines["open breaks = 0"] == (0, 0, True, 1)
    assert told["breaks"] == []
    assert [(one["name"], one["rows"], one["by"], one["reason"]) for one in told["closed"]] == [
        ("RESULT_SHORT", 4, "tester:1", WHY)
    ]


def test_page_and_workbook_show_what_was_closed_by_whom_and_why(short: tuple[Bench, str]) -> None:
    bench, run = short

    close_break(bench.context, run, "RESULT_SHORT", "chunk 1", WHY)

    page = bench.report(run, "report.html").decode()
    book = openpyxl.load_workbook(BytesIO(bench.report(run, "report.xlsx")))["Closed"]
    assert all(text in page for text in ("Closed by an operator", WHY, "tester:1"))
    assert [cell.value for cell in book[2]][:5] == ["RESULT_SHORT", "chunk 1", 4, WHY, "tester:1"]


def test_a_closed_break_that_grows_is_open_again_and_one_that_shrinks_stays_closed(
    short: tuple[Bench, str], tmp_path: Path
) -> None:
    bench, run = short
    close_break(bench.context, run, "RESULT_SHORT", "chunk 1", WHY)
    [first, _] = sorted((tmp_path / "store" / "bank" / "results").iterdir())
    whole = first.read_bytes().splitlines(keepends=True)

    def answered(lines: int) -> str:
        first.write_bytes(b"".join(whole[:lines]))
        forget_results(bench.database)
        ingest(bench.context)
        return str(summary(bench, run)["verdict"])

    assert [answered(5), answered(7)] == [OUT_OF_BALANCE, WAITING]


def test_what_is_opened_again_counts_again_and_both_stand_in_the_history(
    short: tuple[Bench, str],
) -> None:
    bench, run = short
    close_break(bench.context, run, "RESULT_SHORT", "chunk 1", f"{WHY} {PUBLISHED[0]}")

    reopen_break(bench.context, run, "RESULT_SHORT", "", "they found them")

    told = [
        (one.what, one.facts["reason"])
        for one in history(bench.adapters, run)
        if one.what.startswith("break")
    ]
    assert summary(bench, run)["verdict"] == OUT_OF_BALANCE
    assert sorted(told) == [
        ("break closed", f"{WHY} [masked]"),
        ("break reopened", "they found them"),
    ]


def test_a_closed_break_is_no_longer_found(short: tuple[Bench, str]) -> None:
    bench, run = short
    before = find_breaks(bench.context, bench.stored(run)).breaks

    close_break(bench.context, run, "RESULT_SHORT", "", WHY)

    after = find_breaks(bench.context, bench.stored(run)).breaks
    assert ([one.name for one in before], after) == (["RESULT_SHORT"], ())
    assert {(one.name, one.place, one.rows) for one in bench.stored(run).closed_breaks} == {
        ("RESULT_SHORT", "chunk 1", 4)
    }


def test_a_command_stopped_between_its_record_and_the_report_is_finished_by_the_same_one(
    short: tuple[Bench, str],
) -> None:
    bench, run = short
    with pytest.raises(StoreBusyError):
        close_break(unreporting(bench).context, run, "RESULT_SHORT", "", WHY, "lost")
    open_before = [known["name"] for known in summary(bench, run)["breaks"]]

    close_break(bench.context, run, "RESULT_SHORT", "", WHY, "lost")

    assert ["RESULT_SHORT"] == open_before
    assert [] == summary(bench, run)["breaks"]
    assert 1 == len(bench.stored(run).closed_breaks)
    with pytest.raises(NotFoundError):
        close_break(bench.context, run, "RESULT_SHORT", "", WHY, "lost")


def test_a_reopening_stopped_before_the_report_is_finished_by_the_same_command(
    short: tuple[Bench, str],
) -> None:
    bench, run = short
    close_break(bench.context, run, "RESULT_SHORT", "", WHY)
    with pytest.raises(StoreBusyError):
        reopen_break(unreporting(bench).context, run, "RESULT_SHORT", "", WHY)
    closed_before = summary(bench, run)["breaks"]

    reopen_break(bench.context, run, "RESULT_SHORT", "", WHY)

    assert [] == closed_before
    assert ["RESULT_SHORT"] == [known["name"] for known in summary(bench, run)["breaks"]]
    with pytest.raises(NotFoundError):
        reopen_break(bench.context, run, "RESULT_SHORT", "", WHY)


def test_a_dry_run_names_what_would_be_closed_and_writes_nothing(short: tuple[Bench, str]) -> None:
    bench, run = short
    before = bench.snapshot()

    breaks, _ = close_break(overlaid(bench.context), run, "RESULT_SHORT", "", WHY)

    assert [(one.name, one.place, one.rows) for one in breaks] == [("RESULT_SHORT", "chunk 1", 4)]
    assert bench.snapshot() == before


@pytest.mark.parametrize(
    ("operation", "name", "place", "reason", "error"),
    [
        (close_break, "RESULT_LONG", "", WHY, NotFoundError),
        (close_break, "RESULT_SHORT", "chunk 2", WHY, NotFoundError),
        (reopen_break, "RESULT_SHORT", "", WHY, NotFoundError),
        (close_break, "RESULT_SHORT", "", " ", NoReasonError),
    ],
)
def test_what_is_not_there_is_not_closed_or_opened(
    short: tuple[Bench, str],
    operation: Callable[..., object],
    name: str,
    place: str,
    reason: str,
    error: type[Exception],
) -> None:
    bench, run = short

    with pytest.raises(error):
        operation(bench.context, run, name, place, reason)


def test_a_decision_that_is_not_offered_is_refused_with_the_report_that_shows_those_that_are(
    short: tuple[Bench, str],
) -> None:
    bench, run = short

    with pytest.raises(NotFoundError) as caught:
        close_break(bench.context, run, "RESULT_SHORT", "", WHY, decision="error")

    assert Step("report", run) == caught.value.fields["command"]


def test_a_report_made_anew_says_the_same(short: tuple[Bench, str]) -> None:
    bench, run = short
    told = close_break(bench.context, run, "RESULT_SHORT", "", WHY)[1]

    again = rebuild(bench.context, bench.stored(run))

    assert told is not None
    assert (again.breaks, again.summary["closed"]) == (told.breaks, told.summary["closed"])


def closing_of(name: str, place: str) -> Closing:
    return Closing(what="closed", name=name, place=place, rows=2, at=NOON, by="tester", reason=WHY)


@pytest.mark.parametrize(
    ("place", "rows", "covered"),
    [
        ("chunk 7, rows 1, 2", 2, True),
        ("chunk 7, rows 2", 1, True),
        ("chunk 7", 2, True),
        ("chunk 7, rows 1, 3", 2, False),
        ("chunk 7, rows 1, 2, 3", 3, False),
        ("chunk 8, rows 1, 2", 2, False),
    ],
)
def test_a_closing_covers_a_break_with_no_other_row(place: str, rows: int, covered: bool) -> None:
    closing = closing_of("LAST4_MISMATCH", "chunk 7, rows 1, 2")

    still, closed = sort_breaks([break_of("LAST4_MISMATCH", rows, place)], [closing])

    assert [len(still), len(closed)] == [not covered, covered]


def test_a_notice_is_never_closed() -> None:
    closing = closing_of("MERGED_FILE", "a.csv")

    still, closed = sort_breaks([break_of("MERGED_FILE", 2, "a.csv")], [closing])

    assert (len(still), closed) == (1, ())


def test_a_decision_whose_command_died_before_its_report_is_reported_by_the_next_ingest(
    short: tuple[Bench, str],
) -> None:
    bench, run = short
    with pytest.raises(StoreBusyError):
        close_break(unreporting(bench).context, run, "RESULT_SHORT", "", WHY)
    [behind] = runs_behind(bench.context, bench.runs)

    bench.ingest()

    assert (run, []) == (behind.id, runs_behind(bench.context, bench.runs))
    assert [] == summary(bench, run)["breaks"]


def test_a_decision_about_all_runs_is_about_as_many_rows_as_are_open_and_no_notice(
    short: tuple[Bench, str],
) -> None:
    bench, run = short
    key = keys_of(run).report("summary.json")
    facts = summary(bench, run)
    [known] = [known for known in facts["breaks"] if known["name"] == "RESULT_SHORT"]
    notice = {**known, "rows": 7, "notice": True}
    facts["breaks"] = [known, {**known, "rows": 2}, notice, {**known, "name": "OTHER"}]
    bench.store.replace(key, [json.dumps(facts).encode()])
    rows = known["rows"] + 2

    assert [run] == runs_to_close(bench.context, "RESULT_SHORT", str(rows))
    for other in (rows - 1, rows + 1):
        with pytest.raises(OtherRowsError, match=f"about {rows} rows now, not {other}"):
            runs_to_close(bench.context, "RESULT_SHORT", str(other))
    with pytest.raises(NotFoundError, match="no open break NOT_THERE"):
        runs_to_close(bench.context, "NOT_THERE", "0")
