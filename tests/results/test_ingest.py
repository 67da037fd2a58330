from dataclasses import replace
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest

from flows.extensions.simulator.answer import Habits
from flows.reports.rebuild import rebuild
from flows.reports.verdicts import OUT_OF_BALANCE
from flows.results import sent_rows
from flows.results.dropped import result_files
from flows.results.intake import examine
from flows.runs.keys import keys_of
from flows.runs.stored_runs import StoredRuns
from flows.submissions.extract_states import extracts_to_submit
from schemas.settings import ErrorSettings
from tests.builders import quick
from tests.night import Bench, local_bench, made_once
from tests.planted import before_its_commit


@made_once
def sent(tmp_path: Path, rows: int = 60, per_chunk: int = 20) -> tuple[Bench, str]:
    bench = local_bench(tmp_path, portal={"rows_per_chunk": per_chunk})
    return bench, bench.submit(bench.drop(rows)).manifest.run


def table(bench: Bench, run: str, name: str) -> pl.DataFrame:
    return pl.read_csv(BytesIO(bench.report(run, name)), infer_schema=False)


def test_every_row_is_linked_in_error_or_awaiting_as_the_portals_books_say(tmp_path: Path) -> None:
    bench, run = sent(tmp_path)
    books = bench.answer(fail_share=0.2, shuffle=True)

    report = bench.ingest().reports[0]

    truth = {row.cuid: row.url for delivery in books.delivered for row in delivery.rows}
    links, errors = table(bench, run, "links.csv"), table(bench, run, "errors.csv")
    assert report.summary["verdict"] != OUT_OF_BALANCE
    assert dict(links.select("cuid", "url").iter_rows()) == {
        c: url for c, url in truth.items() if url
    }
    assert set(errors["cuid"]) == {c for c, url in truth.items() if not url}
    assert report.summary["rows"]["awaiting"] == 0


def test_a_chunk_without_an_answer_is_awaiting_and_the_run_still_balances(tmp_path: Path) -> None:
    bench, run = sent(tmp_path)
    bench.answer()
    (tmp_path / "store" / "bank" / "results" / f"card-links-{run}-00002-result.csv").unlink()

    report = bench.ingest().reports[0]

    chunks = table(bench, run, "chunks.csv")
    assert chunks["state"].to_list() == ["answered", "awaiting", "answered"]
    assert report.summary["verdict"] == "balanced, answers awaited"
    assert report.summary["rows"]["awaiting"] == 20


def test_ingesting_again_finds_nothing_new_and_changes_nothing(tmp_path: Path) -> None:
    bench, _ = sent(tmp_path)
    bench.answer(fail_share=0.1)
    bench.ingest()
    before = bench.snapshot()

    again = bench.ingest()

    assert again.files == 0
    assert bench.snapshot() == before


def test_results_in_pieces_and_in_any_order_give_the_same_report(tmp_path: Path) -> None:
    whole, run = sent(tmp_path / "whole")
    whole.answer(fail_share=0.1, seed=3)
    whole.ingest()
    pieces, _ = sent(tmp_path / "pieces")
    answers = {key: data for key, data in whole.snapshot().items() if "/results/" in key}

    for key in sorted(answers, reverse=True):
        pieces.drop_result(answers[key], key.rpartition("/")[2])
        pieces.ingest()

    reports = [
        {name: bench.report(run, name) for name in ("links.csv", "errors.csv")}
        for bench in (whole, pieces)
    ]
    assert reports[0] == reports[1]


def test_a_report_deleted_is_rebuilt_the_same(tmp_path: Path) -> None:
    bench, run = sent(tmp_path)
    bench.answer(fail_share=0.1)
    bench.ingest()
    names = ["links.csv", "errors.csv", "rejects.csv", "chunks.csv", "summary.json"]
    before = {name: bench.report(run, name) for name in names}
    for name in names:
        (tmp_path / "store" / keys_of(run).report(name)).unlink()

    rebuild(bench.context, bench.stored(run))

    assert {name: bench.report(run, name) for name in names} == before


def test_a_foreign_file_is_a_named_break_once_and_nothing_of_it_is_linked(tmp_path: Path) -> None:
    bench, run = sent(tmp_path)
    bench.answer(Habits(foreign=True))

    first, second = bench.ingest(), bench.ingest()

    assert [(4, 1, 1), (0, 0, 1)] == [
        (one.files, len(one.breaks), one.open_files) for one in (first, second)
    ]
    assert "rows belong to no sent row" in first.breaks[0]
    assert table(bench, run, "links.csv").height == 60


def test_a_result_dropped_before_its_run_was_committed_is_taken_up_afterwards(
    tmp_path: Path,
) -> None:
    bench, run = sent(tmp_path)
    bench.answer()
    with before_its_commit(bench.adapters, run):
        early = bench.ingest()

    late = bench.ingest()

    assert (early.files, len(early.reports)) == (3, 0)
    assert late.reports[0].summary["verdict"] == "balanced"


def test_a_link_to_a_host_that_is_not_allowed_is_a_break_and_never_a_link(tmp_path: Path) -> None:
    bench, run = sent(tmp_path, rows=5)
    bench.answer(host="links.example.com.evil.example")

    report = bench.ingest().reports[0]

    assert report.summary["verdict"] == OUT_OF_BALANCE
    assert {one.name for one in report.breaks} == {"URL_NOT_ALLOWED"}
    assert table(bench, run, "links.csv").height == 0


def test_status_shows_every_run_with_its_figures(tmp_path: Path) -> None:
    bench, run = sent(tmp_path)
    committed = list(bench.runs.statuses())
    bench.answer(fail_share=0.0)
    bench.ingest()

    answered = list(bench.runs.statuses())

    assert [(one.run, one.state, one.awaiting) for one in committed] == [
        (run, "committed, to be uploaded", 60)
    ]
    assert [(one.run, one.state, one.linked) for one in answered] == [(run, "balanced", 60)]


def test_only_extracts_that_match_and_have_no_committed_run_are_pending(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, source={"pattern": "*.csv"})
    done, fresh = bench.drop(5), bench.drop(6, name="bank-20261121.csv")
    bench.drop(7, name="readme.txt")
    bench.submit(done)

    waiting = extracts_to_submit(bench.context)

    assert [entry.key.rpartition("/")[2] for entry in waiting] == [fresh]


def test_the_history_of_a_run_says_what_happened_and_by_whom(tmp_path: Path) -> None:
    bench, run = sent(tmp_path)
    bench.answer()
    bench.ingest()

    [answered] = bench.stored(run).events("answered")

    assert "tester:1" == answered.by


def test_a_run_of_another_issuer_is_not_touched(tmp_path: Path) -> None:
    bench, run = sent(tmp_path)
    other = replace(bench, issuer=bench.issuer.model_copy(update={"issuer": "other"}))
    other.submit(other.drop(9))

    bench.answer()
    bench.ingest()

    assert [one.run for one in bench.runs.statuses()] == [run]
    assert [one.state for one in StoredRuns(bench.adapters, "other").statuses()] == [
        "committed, to be uploaded"
    ]


def test_a_result_is_known_by_its_name_as_it_was_dropped_also_where_the_name_is_kept_in_part(
    tmp_path: Path,
) -> None:
    bench, run = sent(tmp_path)
    bench.drop_result(b"cuid,last_4,url,expiration_date,error\n", f"{run}-00003 (2)".upper())
    [dropped] = result_files(bench.adapters, "bank")

    _, attributed = examine(bench.context, dropped)

    assert run[-8:].upper() not in attributed.name
    assert (run, 3) == attributed.named


def test_a_text_that_the_settings_name_is_kept_in_the_words_of_the_partner(tmp_path: Path) -> None:
    bench, run = sent(tmp_path)
    known = ErrorSettings(texts=("Tokenisation parked by {}",))
    told = replace(bench, issuer=bench.issuer.model_copy(update={"errors": known}))
    cuid = told.ledger(run)["cuid"][0]
    content = f"cuid,last_4,url,expiration_date,error\n{cuid},,,,Tokenisation parked by Jane\n"
    told.drop_result(content.encode(), "r")
    [dropped] = result_files(told.adapters, "bank")

    _, attributed = examine(told.context, dropped)

    assert "Tokenisation parked by [4 letters]" == attributed.outcomes["message"].item()


@pytest.mark.slow
def test_results_named_after_their_chunks_are_settled_by_the_ledger_of_their_own_run(
    tmp_path: Path,
) -> None:
    bench, run = sent(tmp_path)
    other = bench.submit(bench.drop(60, name="bank-20261119.csv", seed=7)).manifest.run
    bench.answer()
    theirs = [key for key in bench.snapshot() if "/results/" in key and other in key]
    for key in theirs:
        (tmp_path / "store" / key).unlink()
    ledger = tmp_path / "store" / keys_of(other).ledger / "part-00001.parquet"
    ledger.unlink()  # nobody needs it

    report = bench.ingest().reports

    assert [(run, True)] == [
        (one.summary["run"], one.summary["verdict"] != OUT_OF_BALANCE) for one in report
    ]


@made_once
def three_nights(folder: Path) -> tuple[Bench, list[str]]:
    """Return a bench with three nights that were answered, and their runs."""
    bench = local_bench(folder)
    nights = [bench.drop(20, f"bank-2026112{night}.csv", seed=night) for night in range(3)]
    runs = [bench.submit(night).manifest.run for night in nights]
    bench.answer()
    return bench, runs


@pytest.mark.parametrize("rows_at_once", quick(1, [25, 1, 100_000]))
def test_rows_of_several_runs_are_found_in_however_many_ledgers_are_searched_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    monkeypatch.setattr(sent_rows, "TOGETHER", rows_at_once)
    bench, runs = three_nights(tmp_path)
    folder = tmp_path / "store" / "bank" / "results"
    files = sorted(folder.iterdir())
    bodies = [file.read_bytes().partition(b"\n") for file in files]
    for file in files:
        file.unlink()

    bench.drop_result(bodies[0][0] + b"\n" + b"".join(body for _, _, body in bodies))
    bench.ingest()

    linked = [table(bench, run, "links.csv").height for run in runs]
    assert [20, 20, 20] == linked
