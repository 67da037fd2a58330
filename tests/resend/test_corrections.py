"""The corrected-file loop: out as a template, back filled in, merged with the source, sent."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.book.book import read_book
from flows.book.stored_book import known_plans
from flows.reports.worklist import unsent_corrections
from flows.resend import corrections as run_corrections
from flows.resend.corrections import (
    CorrectedExtractNotFoundError,
    CorrectionsNotFoundError,
    read_corrections,
)
from flows.resend.filled_template import CorrectionsRefusedError, CorrectionsUnreadableError
from flows.resend.resubmission import Request, plan_resubmit
from flows.resend.resubmission_run import NothingToSendError, resubmit
from flows.resend.selected_run import SourceGoneError
from flows.resend.selection import RowSelection
from flows.resend.template import correction_template
from flows.runs.keys import corrections
from flows.runs.store import ConflictError
from schemas.corrections import Template
from schemas.portal import (
    ADDRESS1,
    ADDRESS2,
    CITY,
    CUID,
    MONTH,
    PAN,
    POSTAL_CODE,
    YEAR,
)
from tests.again import ERRORS, PANS, again, correct, of_rows, sent
from tests.builders import portal_rows
from tests.extensions.partner_api.town import Population, town
from tests.memory_bench import memory_bench
from tests.night import DAY, Bench, local_bench, portal_csv

NOTHING = RowSelection()


def template_of(bench: Bench, run: str) -> pl.DataFrame:
    """Return the correction template of a run."""
    return pl.concat(correction_template(bench.context, run))


def fill(
    bench: Bench, run: str, values: dict[tuple[int, str], str], *more: tuple[int, str, str]
) -> bytes:
    """Return the template of a run with these cells filled in and these lines added."""
    there = template_of(bench, run)
    filled = [
        values.get((row, column)) for row, column in there.select("row", "column").iter_rows()
    ]
    added = pl.DataFrame(
        [
            {"run": run, "row": row, "column": column, "correction": text}
            for row, column, text in more
        ],
        {name: there.schema[name] for name in ("run", "row", "column", "correction")},
    )
    return (
        pl.concat(
            [there.with_columns(correction=pl.Series(filled, dtype=pl.String)), added],
            how="diagonal",
        )
        .write_csv()
        .encode()
    )


def to_send(bench: Bench) -> list[str]:
    """Return the corrections on the worklist."""
    plans = [
        plan for plan in known_plans(bench.context.adapters, bench.runs) if plan.end == "committed"
    ]
    return [dict(work.fields)["name"] for work in unsent_corrections(bench.adapters, "bank", plans)]


def test_rejects_and_errors_make_a_template_without_card_numbers(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None, POSTAL_CODE: "1"}, {PAN: None})
    bench.answer(fail_share=1.0)
    bench.ingest()

    found = template_of(bench, run)

    Template.validate(found)
    assert [2, 2, 3, 1] == sorted(found["row"], key=lambda row: (row == 1, row))
    assert not [pan for pan in PANS if pan in found.write_csv()]


def test_a_filled_in_template_makes_the_resubmission(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None}, {POSTAL_CODE: "1"}, {CITY: None})
    content = fill(
        bench, run, {(2, CITY): "Salem", (3, POSTAL_CODE): "02108"}, (2, ADDRESS2, "Apt 5")
    )

    name = correct(bench, content)
    waiting = to_send(bench)
    done = again(bench, run, NOTHING, corrections=name)

    assert (["corrected.csv"], []) == (waiting, to_send(bench))
    assert [
        ("c-2", PANS[1], "Salem", "Apt 5", "02108"),
        ("c-3", PANS[2], "Boston", None, "02108"),
    ] == sent(bench, done.manifest.run, CUID, PAN, CITY, ADDRESS2, POSTAL_CODE)
    assert done.manifest.selection is not None
    assert done.manifest.selection.corrections is not None
    assert corrections("bank") + "corrected.csv" == done.manifest.selection.corrections.key


@pytest.mark.slow
def test_a_postal_code_is_what_was_filled_in_though_its_column_lost_its_zeros(
    tmp_path: Path,
) -> None:
    lost: list[dict[str, str | None]] = [{POSTAL_CODE: "2108"} for _ in range(30)]
    bench, run = of_rows(tmp_path, *lost, {CITY: None, POSTAL_CODE: "2108"})
    content = fill(bench, run, {(31, CITY): "Boston"}, (31, POSTAL_CODE, "02109"))

    done = again(bench, run, NOTHING, corrections=correct(bench, content))

    assert [("02109",)] == sent(bench, done.manifest.run, POSTAL_CODE)


@pytest.mark.slow
def test_empty_clears_a_field(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None, ADDRESS2: "Apt 5"})
    content = fill(bench, run, {(2, CITY): "Salem"}, (2, ADDRESS2, "(empty)"))

    done = again(bench, run, NOTHING, corrections=correct(bench, content))

    assert [("Salem", None)] == sent(bench, done.manifest.run, CITY, ADDRESS2)


@pytest.mark.slow
def test_rows_still_refused_are_rejects_of_the_new_run(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None, ADDRESS1: None}, {CITY: None})
    content = fill(bench, run, {(2, CITY): "Salem", (3, CITY): "Salem"})

    done = again(bench, run, NOTHING, corrections=correct(bench, content))

    found = bench.ledger(done.manifest.run).select("row", "fate")
    assert [(2, "rejected"), (3, "submitted")] == found.rows()
    assert [(2, ADDRESS1)] == template_of(bench, done.manifest.run).select("row", "column").rows()


@pytest.mark.slow
def test_corrections_after_which_every_row_is_still_refused_make_no_run(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None, ADDRESS1: None})
    name = correct(bench, fill(bench, run, {(2, CITY): "Salem"}))
    bench.ingest()
    before = bench.snapshot().keys()

    with pytest.raises(NothingToSendError) as refused:
        again(bench, run, NOTHING, corrections=name)

    assert "1 corrected but still refused" == refused.value.fields["reason"]
    assert before == bench.snapshot().keys()


def test_the_loop_closes_over_two_rounds_and_the_last_correction_of_a_cell_counts(
    tmp_path: Path,
) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None, ADDRESS1: None}, {CITY: None})
    first = fill(bench, run, {(2, CITY): "Salem", (3, CITY): "Salem"})
    once = again(bench, run, NOTHING, corrections=correct(bench, first, "one.csv")).manifest.run
    more = fill(bench, once, {(2, ADDRESS1): "2 Main St"}, (2, CITY, "Lynn"))

    twice = again(bench, once, NOTHING, corrections=correct(bench, more, "two.csv"))

    assert [("c-2", "Lynn", "2 Main St")] == sent(bench, twice.manifest.run, CUID, CITY, ADDRESS1)


@pytest.mark.slow
def test_what_was_corrected_once_stays_corrected_when_it_goes_out_again(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None})
    name = correct(bench, fill(bench, run, {(2, CITY): "Salem"}))
    once = again(bench, run, NOTHING, corrections=name).manifest.run
    bench.answer(fail_share=1.0)

    twice = again(bench, once, ERRORS)

    assert [("c-2", "Salem")] == sent(bench, twice.manifest.run, CUID, CITY)


@pytest.mark.slow
def test_corrections_that_are_gone_refuse_the_next_round(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None})
    name = correct(bench, fill(bench, run, {(2, CITY): "Salem"}))
    once = again(bench, run, NOTHING, corrections=name).manifest.run
    bench.answer(fail_share=1.0)
    correct(bench, b"row,column,correction\n", name)

    with pytest.raises(SourceGoneError):
        again(bench, once, ERRORS)


@pytest.mark.slow
def test_a_correction_of_the_cuid_is_held_against_the_cards_of_its_new_owner(
    tmp_path: Path,
) -> None:
    bench, run = of_rows(tmp_path, {CUID: "c-1"}, {CUID: "c-x", PAN: PANS[0], CITY: None})
    content = fill(bench, run, {(2, CITY): "Salem"}, (2, CUID, "c-1"))

    chosen = plan_resubmit(
        bench.context, Request(run, NOTHING, "", corrections=correct(bench, content))
    )

    assert [(2, "awaiting", run)] == chosen.rows.select("origin", "why", "where").rows()


def test_one_line_that_cannot_be_taken_refuses_the_whole_file_and_sends_nothing(
    tmp_path: Path,
) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None}, {CITY: None})
    content = fill(bench, run, {(2, CITY): "Salem"}, (9, CITY, "Salem"))
    name = correct(bench, content)
    bench.ingest()
    before = bench.snapshot()

    with pytest.raises(CorrectionsRefusedError) as refused:
        again(bench, run, NOTHING, corrections=name)

    assert {
        "name": "corrected.csv",
        "count": 1,
        "lines": "line 4: no such row in the run",
    } == refused.value.fields
    assert before == bench.snapshot()


@pytest.mark.slow
def test_a_file_of_this_machine_is_dropped_once_it_is_found_good(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None}, {CITY: None})
    request = Request(run, NOTHING, "fixed", corrections="mine.csv")
    bad = fill(bench, run, {(2, CITY): PANS[0]})

    with pytest.raises(CorrectionsRefusedError):
        resubmit(bench.context, request, content=bad)
    there = list(bench.store.keys(corrections("bank")))
    done = resubmit(bench.context, request, content=fill(bench, run, {(2, CITY): "Salem"}))
    with pytest.raises(ConflictError):
        resubmit(bench.context, request, content=fill(bench, run, {(3, CITY): "Salem"}))

    assert [] == there
    assert done.manifest.counts.submitted == 1


def test_a_file_that_is_not_there_or_larger_than_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = local_bench(tmp_path)
    monkeypatch.setattr(run_corrections, "LARGEST", 9)
    correct(bench, b" " * 9, "largest.csv")
    correct(bench, b" " * 10, "large.csv")

    with pytest.raises(CorrectionsNotFoundError):
        read_corrections(bench.context, "mine.csv")
    with pytest.raises(CorrectionsUnreadableError, match="it is 10 bytes; the limit is 9"):
        read_corrections(bench.context, "large.csv")
    assert 9 == read_corrections(bench.context, "largest.csv")[0].size


def test_a_corrected_extract_that_is_among_the_extracts_is_refused_with_where_it_belongs(
    tmp_path: Path,
) -> None:
    bench, run = of_rows(tmp_path, {})
    message = "No file bank-20261120.csv under bank/corrections/.*; bank/extracts/ has one"

    with pytest.raises(CorrectedExtractNotFoundError, match=message):
        again(bench, run, RowSelection(), extract="bank-20261120.csv")


@pytest.mark.slow
def test_rows_that_were_mended_since_leave_the_template(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None}, {CITY: None})
    name = correct(bench, fill(bench, run, {(2, CITY): "Salem"}))
    again(bench, run, NOTHING, corrections=name)

    found = template_of(bench, run)

    assert [3] == found["row"].to_list()


@pytest.mark.slow
def test_the_report_of_the_new_run_says_whose_rows_it_repeats_and_why(tmp_path: Path) -> None:
    bench, run = of_rows(tmp_path, {}, {CITY: None, ADDRESS1: None}, {CITY: None})
    content = fill(bench, run, {(2, CITY): "Salem", (3, CITY): "Salem"})

    done = again(bench, run, NOTHING, "the branch called", corrections=correct(bench, content))
    bench.answer()
    bench.ingest()

    told = json.loads(bench.report(done.manifest.run, "summary.json"))["repeats"]
    assert {"kind": "resubmit", "of": run, "reason": "the branch called", "override": ""} == told
    assert run in bench.report(done.manifest.run, "report.html").decode()


@pytest.mark.slow
def test_a_refused_card_that_has_ended_stays_as_the_partner_refused_it_though_its_row_is_corrected(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, settings={"full_portfolio": False})
    ends = {MONTH: f"{DAY:%m}", YEAR: f"{DAY:%y}"}
    place.people = {"a": {CUID: "a", **ends}, "b": {CUID: "b"}}
    run = place.night().manifest.run
    place.answer(errors="ab")
    place.day += timedelta(days=40)
    before = book_line(place, "a")

    content = fill(place.bench, run, {}, (1, CITY, "Salem"), (2, CITY, "Salem"))
    request = Request(run, NOTHING, "as it says", corrections=correct(place.bench, content))
    counts = resubmit(place.bench.context, request).manifest.counts

    assert (1, 1) == (counts.submitted, counts.rejected)
    assert before == book_line(place, "a")
    assert ("refused", "") == (before["standing"], before["who"])


def book_line(place: Population, cuid: str) -> dict[str, Any]:
    """Return where a card stands, why, and who acts."""
    cards = read_book(place.bench.context.adapters, "bank").cards(place.day)
    own = cards.filter(cuid=cuid)
    return own.select(pl.col("standing").cast(str), "reason", "who").row(0, named=True)


@pytest.mark.parametrize(("days", "rows"), [(0, 1), (1, 0)])
def test_who_has_or_awaits_a_link_of_a_later_day_needs_no_correction(
    tmp_path: Path, days: int, rows: int
) -> None:
    bench = local_bench(tmp_path, limits={"max_reject_rate": 1.0})
    run = bench.submit(bench.drop_bytes(portal_csv(portal_rows({CITY: ""})))).manifest.run
    later = bench.drop_bytes(portal_csv(portal_rows({})), "bank-20261120-2.csv")
    bench.submit(later, business_date=DAY + timedelta(days=days))

    assert rows == template_of(bench, run).height


def test_of_several_corrections_of_a_cell_the_last_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SimpleNamespace(sha256="s")
    selection = SimpleNamespace(of="first", corrections="x.csv")
    first = SimpleNamespace(run="second", source=source, selection=None)
    second = SimpleNamespace(run="second", source=source, selection=selection)
    third = SimpleNamespace(run="third", source=source, selection=selection)
    names = iter([second, first])
    monkeypatch.setattr(
        run_corrections,
        "StoredRun",
        SimpleNamespace(by_id=lambda *_: SimpleNamespace(manifest=next(names))),
    )
    key = SimpleNamespace(key="x.csv")
    monkeypatch.setattr(run_corrections, "reopen_source", lambda _, run, __: (key, run))
    monkeypatch.setattr(run_corrections, "read", lambda *_: b"")
    corrected = iter(["of the second", "of the third"])
    monkeypatch.setattr(
        run_corrections,
        "corrected_cells",
        lambda *_: pl.DataFrame(
            {"row": [1], "column": [CITY], "correction": [next(corrected)]}, run_corrections.CELL
        ),
    )

    cells = run_corrections.cells_of(memory_bench().context, cast(Any, third))

    assert ["of the second", "of the third"] == cells["correction"].to_list()
    assert [(1, "of the third")] == run_corrections.by_row(cells).rows()
