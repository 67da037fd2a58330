"""An act that was begun is known, and whoever comes next finishes or ends it, and says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flows.book.stored_book import known_plans
from flows.operations.undecided_work import undecided
from flows.reports.work import lines
from flows.submissions.submit import Request, refuse_resend, settle
from tests.again import again, night
from tests.memory import KilledError
from tests.night import Bench, killed_at, local_bench, submitted
from tests.storms import FailingStore


def killed(bench: Bench, part: str) -> Bench:
    """Return the bench whose process is killed where it creates an object of that name."""

    def at(operation: str, key: str) -> Exception | None:
        if operation == "create" and part in key:
            raise KilledError
        return None

    return replace(bench, store=FailingStore(bench.store, at))


def listed(bench: Bench) -> list[tuple[str, str, str]]:
    """Return what the worklist has beside the committed runs: the kind, the run, what to type."""
    return [
        (line.kind.name, line.run, str(line.first))
        for line in lines(undecided(bench.context, known_plans(bench.context.adapters, bench.runs)))
    ]


def test_a_new_run_that_is_requested_again_is_the_one_that_was_made(tmp_path: Path) -> None:
    bench, extract, _ = submitted(tmp_path)
    new_run = "the portal lost the upload"
    second = bench.submit(extract, new_run=new_run).manifest.run

    refuse_resend(bench.context, Request(extract, new_run=new_run))
    done = bench.submit(extract, new_run=new_run)

    assert (True, second) == (done.already, done.manifest.run)


@pytest.mark.parametrize("part", ["/chunks/", "/ledger/", ""])
def test_a_submit_that_died_has_a_line_whose_first_step_finishes_it(
    tmp_path: Path, part: str
) -> None:
    bench = local_bench(tmp_path)
    extract = bench.drop(10)
    with pytest.raises(KilledError):
        (killed(bench, part) if part else killed_at(bench, "committed")).submit(extract)
    [run] = bench.runs.ids

    before = listed(bench)
    bench.submit(extract)

    [(kind, of, step)] = before
    assert ("runs to finish", str(run)) == (kind, of)
    assert "cardlink submit bank" in step
    assert [] == listed(bench)


def test_a_resubmission_that_died_is_abandoned_by_the_next_command_that_says_so(
    tmp_path: Path,
) -> None:
    bench, run = night(tmp_path)
    with pytest.raises(KilledError):
        again(killed_at(bench, "committed"), run)
    left = str(bench.runs.ids[-1])

    before = listed(bench)
    done = bench.submit(bench.drop(3, "bank-20261121.csv", seed=5))
    after = listed(bench)
    sent = again(bench, run)

    assert [
        ("runs left behind", left, f'cardlink mend abandon {left} --reason "WHY" --dry-run')
    ] == before
    assert [f"run {left} had been begun and is abandoned"] == [
        remark.partition(":")[0] for remark in done.remarks
    ]
    assert [] == after
    assert "abandoned" == bench.stored(left).status.state
    assert left != sent.manifest.run


def test_the_line_of_a_new_run_that_died_has_the_command_that_makes_it(tmp_path: Path) -> None:
    bench, extract, _ = submitted(tmp_path)
    with pytest.raises(KilledError):
        killed_at(bench, "committed").submit(extract, new_run="the portal lost it")
    [_, left] = map(str, bench.runs.ids)

    step = f"cardlink submit bank --extract {extract} --new-run 'the portal lost it'"
    assert [("runs left behind", left, step)] == listed(bench)
    bench.submit(extract, new_run="the portal lost it")
    assert ([], True) == (listed(bench), bench.stored(left).manifest is not None)


def test_what_a_process_works_on_is_not_begun_and_left(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    working = replace(bench, now=lambda: datetime.now(UTC))
    with pytest.raises(KilledError):  # it has planned its run just now, and claims it next
        again(killed_at(working, "resubmitted", late=True), run)

    assert [] == listed(working)
    assert () == settle(working.context)
