"""A rebuild reads each document of its run once, however many parts of the report need it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from flows.operations.break_decisions import close_break, reopen_break
from flows.operations.undecided_work import beside_runs
from flows.reports.rebuild import rebuild, rebuild_lasting
from flows.reports.survey import survey
from flows.runs.identity import canonical
from flows.runs.keys import keys_of
from flows.runs.outbox import move
from schemas.records import SingleAsked
from tests.again import again, night
from tests.night import Bench, local_bench, made_once
from tests.singles import recorded
from tests.storms import FailingStore

ONCE = 1
RECONCILED_AND_LISTED = 2  # rejects.csv is a pass of its own, so that memory stays flat
COUNTED_AND_READ = 2  # a run that sent rows again: whether it is committed, then its rows
LISTED_TWICE = 2  # errors.csv and awaiting.csv
FOR_THEIR_STATE = 1  # the rows that were sent again, as this run left them


@made_once
def busy_run(folder: Path) -> tuple[Bench, str]:
    """Return a run with moved chunks, two groups of results, a closed break and a single link."""
    bench = local_bench(folder, portal={"rows_per_chunk": 10})
    run = bench.submit(bench.drop(40, bad=0.1)).manifest.run
    move(bench.context.adapters, run, "uploaded", [1, 2])
    move(bench.context.adapters, run, "held", [3], "ticket 1")
    bench.answer(fail_share=0.2)
    [first, *_, last] = [entry.key for entry in bench.store.keys("bank/results/")]
    whole = bench.content(last)
    bench.store.replace(last, whole.splitlines(keepends=True)[:5])
    bench.ingest()
    close_break(bench.context, run, "RESULT_SHORT", "", "ticket 2", "lost")
    bench.store.replace(first, [bench.content(first) + b"\n"])
    bench.ingest()
    requested = SingleAsked(
        row=1, cuid="A", last_4="4242", expiration="3001", at=bench.now(), by="tester"
    )
    recorded(bench.adapters, f"{run}/000000001-1", requested)
    return bench, run


def counted(bench: Bench) -> tuple[Bench, Counter[str]]:
    """Return the bench on a store that counts how often an object is opened or a prefix listed."""
    requests = Counter[str]()

    def count(operation: str, key: str) -> None:
        requests[f"{operation} {key}"] += 1

    return replace(bench, store=FailingStore(bench.store, count)), requests


def of_run(run: str, operation: str, requests: Counter[str]) -> dict[str, int]:
    """Return how often what is stored of a run was opened, or listed, by name."""
    prefix = f"{operation} {keys_of(run).base}"
    return {
        request.removeprefix(prefix): times
        for request, times in requests.items()
        if request.startswith(prefix)
    }


def allowed(names: Iterable[str], passes: dict[str, int]) -> dict[str, int]:
    """Return how often each may be read: once, those of a folder of rows once a pass."""
    return {name: passes.get(name.rpartition("/")[0], ONCE) for name in names}


def test_a_rebuild_reads_each_document_of_its_run_once_and_its_rows_once_a_pass(
    tmp_path: Path,
) -> None:
    bench, run = busy_run(tmp_path)
    watched, requests = counted(bench)

    rebuild(watched.context, watched.stored(run))

    opened = of_run(run, "open", requests)
    passes = {
        "ledger": RECONCILED_AND_LISTED,
        "report/rows": LISTED_TWICE,
    }
    assert allowed(opened, passes) == opened


@pytest.mark.slow
def test_a_rebuild_reads_the_documents_of_a_resubmission_once_too(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    repeat = again(bench, run).manifest.run
    rebuild(bench.context, bench.stored(repeat))  # before: the trend takes its status from there
    watched, requests = counted(bench)

    rebuild(watched.context, watched.stored(run))

    repeated = of_run(repeat, "open", requests)
    assert "ledger/part-00001.parquet" in repeated
    assert allowed(repeated, {}) == repeated
    opened = of_run(run, "open", requests)
    passes = {
        "ledger": RECONCILED_AND_LISTED + FOR_THEIR_STATE,
        "report/rows": LISTED_TWICE + FOR_THEIR_STATE,
    }
    assert allowed(opened, passes) == opened


def test_a_rebuild_lists_each_folder_of_its_run_once(tmp_path: Path) -> None:
    bench, run = busy_run(tmp_path)
    watched, requests = counted(bench)

    rebuild(watched.context, watched.stored(run))

    listed = of_run(run, "keys", requests)
    assert allowed(listed, {}) == listed


def test_what_is_added_while_a_report_is_rebuilt_is_in_the_report_that_stays(
    tmp_path: Path,
) -> None:
    bench, run = busy_run(tmp_path)
    pages = list[str]()

    def reopen_once(operation: str, key: str) -> None:
        if (operation, key) == ("replace", keys_of(run).report("report.html")):
            pages.append(key)
            if len(pages) == 1:
                reopen_break(bench.context, run, "RESULT_SHORT", "", "ticket 3")

    disturbed = replace(bench, store=FailingStore(bench.store, reopen_once))
    report = rebuild_lasting(disturbed.context, disturbed.stored(run))

    assert 2 == len(pages)
    assert [] == report.summary["closed"]
    assert "RESULT_SHORT" in {run_break.name for run_break in report.breaks}
    assert canonical(report.summary) == bench.report(run, "summary.json")


def test_what_is_to_be_done_beside_all_runs_is_known_without_listing_them(
    tmp_path: Path,
) -> None:
    bench, _ = busy_run(tmp_path)
    bench.drop(1, "bank-20261121.csv", seed=5)
    counting, requests = counted(bench)

    known = survey(counting.context, beside=beside_runs())
    statuses = known.known.statuses(known.stored)

    assert (1, 0) == (len(statuses), requests["keys bank/runs/"])
