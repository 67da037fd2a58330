"""The worklist says first where cardholders, extracts and runs stand."""

from __future__ import annotations

from pathlib import Path

from flows.commands.context import Context
from flows.commands.outbox import cancel, uploaded
from flows.commands.submit import submit
from flows.commands.worklist import worklist
from tests import keys
from tests.cli.test_reconcile import bank
from tests.planted import plant


def test_extracts_and_runs_that_are_open_stand_above_what_is_to_be_done(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    [run] = [str(run) for run in bench.runs.ids]
    bench.drop(3, "bank-20261121.csv", seed=5)

    answer = worklist(Context(tmp_path), "bank")

    assert [
        "bank: 0 of 20 cardholders have a link; 20 wait for you.",
        "   extracts: 1 pending (bank-20261121.csv)",
        f"   under way: {run}: committed; 1 chunk to be uploaded; 20 rows wait",
        "",
        "1 thing to do, due first:",
    ] == answer.lines[:5]
    assert ["pending"] == [extract["state"] for extract in answer.facts["extracts"]]
    assert [run] == [line["run"] for line in answer.facts["runs"]]
    uploaded(Context(tmp_path), run)
    line = f"   under way: {run}: committed; 1 chunk uploaded; 20 rows wait"
    assert line == worklist(Context(tmp_path), "bank").lines[2]


def test_status_says_where_chunks_are_and_no_number_of_what_is_not_known(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    [run] = [str(run) for run in bench.runs.ids]
    begun = run.replace("20261120", "20261121")
    plant(bench.adapters, bench.stored(run).planned().model_copy(update={"run": begun}))

    begun_run, committed = worklist(Context(tmp_path), "bank", everything=True).facts["runs"]

    assert ("not committed", None) == (begun_run["state"], begun_run["linked"])
    assert "committed; 1 chunk to be uploaded; 20 rows wait" == committed["state"]


def test_what_waits_for_the_next_submit_is_something_to_do(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    bench.answer()
    bench.ingest()
    settled = worklist(Context(tmp_path), "bank")
    bench.drop(3, "bank-20261121.csv", seed=5)

    answer = worklist(Context(tmp_path), "bank")

    assert ("nothing to do", None) == (settled.lines[-1], settled.next_step)
    assert "nothing to do but submit the pending extracts" == answer.lines[-1]
    assert "cardlink submit bank" == str(answer.next_step)


def test_a_run_that_sends_nothing_does_not_lead_to_an_upload(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    *_, sent = bench.store.keys("bank/extracts/")
    without_last, _, _ = bench.content(sent.key).rstrip().rpartition(b"\n")
    bench.store.replace("bank/extracts/bank-20261121.csv", [without_last + b"\n"])
    (tmp_path / "portal.asc").write_bytes(keys.sound().public)

    done = submit(Context(tmp_path), "bank")

    assert [0] == [run["chunks"] for run in done.facts["runs"] if not run["already"]]
    assert "cardlink worklist bank" == str(done.next_step)


def test_a_run_whose_chunks_are_cancelled_is_not_under_way_and_its_report_says_why(
    tmp_path: Path,
) -> None:
    bench = bank(tmp_path)
    [run] = [str(run) for run in bench.runs.ids]

    cancel(Context(tmp_path), run, rows="20", reason="the portal refuses it")

    answer = worklist(Context(tmp_path), "bank")
    assert [] == answer.facts["runs"]
    assert ["rows of cancelled chunks"] == [line["kind"] for line in answer.facts["worklist"]]
    assert bench.stored(run).status.state == "balanced; 20 rows not sent, in cancelled chunks"


def test_with_all_every_extract_and_run_is_listed(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    bench.answer()
    bench.ingest()

    open_ones = worklist(Context(tmp_path), "bank")
    everything = worklist(Context(tmp_path), "bank", everything=True)

    assert ([], []) == (open_ones.facts["extracts"], open_ones.facts["runs"])
    assert (1, 1) == (len(everything.facts["extracts"]), len(everything.facts["runs"]))
    assert "   extracts: each has its run" in open_ones.lines
