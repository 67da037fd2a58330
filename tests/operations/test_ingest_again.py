"""Results in every state a drop folder has them: empty, by halves, early, and two ingests at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from flows.reports.verdicts import OUT_OF_BALANCE
from flows.runs.keys import results
from tests.builders import quick
from tests.night import Bench, local_bench, made_once, uncommit
from tests.storms import FailingStore

REPORTS = ("links.csv", "errors.csv", "rejects.csv", "chunks.csv")


def answered(tmp_path: Path, rows: int = 30) -> tuple[Bench, str, dict[str, bytes]]:
    """Return a bench, its run, and the partner's answers, taken away again."""
    bench, run = _answered(tmp_path, rows)
    answers = {
        key: data for key, data in bench.snapshot().items() if key.startswith(results("bank"))
    }
    for key in answers:
        (tmp_path / "store" / key).unlink()
    return bench, run, answers


@made_once
def _answered(tmp_path: Path, rows: int) -> tuple[Bench, str]:
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 10})
    run = bench.submit(bench.drop(rows)).manifest.run
    bench.answer(fail_share=0.2, seed=5)
    return bench, run


def reports(bench: Bench, run: str) -> dict[str, bytes]:
    return {name: bench.report(run, name) for name in REPORTS}


def drop(
    bench: Bench, answers: dict[str, bytes], cut: Callable[[bytes], bytes] = lambda data: data
) -> None:
    for key, data in answers.items():
        bench.store.replace(key, [cut(data)])


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the reports of results that came whole, at once."""
    bench, run, answers = answered(tmp_path_factory.mktemp("truth"))
    drop(bench, answers)
    bench.ingest()
    return without_digests(reports(bench, run))


def without_digests(found: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in found.items() if name != "chunks.csv"}


def test_an_empty_result_is_not_complete_and_the_whole_one_is_taken_up_afterwards(
    tmp_path: Path, truth: dict[str, bytes]
) -> None:
    bench, run, answers = answered(tmp_path)
    drop(bench, answers, lambda _: b"")
    empty = [bench.ingest(), bench.ingest()]
    drop(bench, answers)

    whole = bench.ingest()

    assert [3, 0] == [len(one.breaks) for one in empty]
    assert ((), 3) == (whole.breaks, whole.files)
    assert truth == without_digests(reports(bench, run))


@pytest.mark.parametrize("share", quick(1, [0.5, 0.1, 0.9]))
def test_a_result_half_written_and_then_whole_gives_the_report_of_the_whole(
    tmp_path: Path, truth: dict[str, bytes], share: float
) -> None:
    bench, run, answers = answered(tmp_path)
    drop(bench, answers, lambda data: data[: int(len(data) * share)])
    bench.ingest()
    drop(bench, answers)

    report = bench.ingest().reports[0]

    assert truth == without_digests(reports(bench, run))
    assert report.summary["verdict"] != OUT_OF_BALANCE


@pytest.mark.slow
def test_results_are_taken_up_while_another_submit_is_under_way(
    tmp_path: Path, truth: dict[str, bytes]
) -> None:
    bench, run, answers = answered(tmp_path)
    other = bench.drop(20, name="bank-20261121.csv", seed=9)
    drop(bench, answers)
    done: list[object] = []

    class Meanwhile(FailingStore):
        def create(self, key: str, data: bytes) -> bool:
            if "/chunks/" in key and not done:
                done.append(bench.ingest())
            return super().create(key, data)

    second = replace(bench, store=Meanwhile(bench.store, lambda *_: None)).submit(other)

    assert done
    assert truth == without_digests(reports(bench, run))
    assert 20 == second.manifest.counts.submitted


@pytest.mark.slow
def test_an_ingest_that_ends_while_another_reports_is_in_the_report(
    tmp_path: Path, truth: dict[str, bytes]
) -> None:
    bench, run, answers = answered(tmp_path)
    first, *rest = sorted(answers)
    drop(bench, {first: answers[first]})
    late: list[object] = []

    @dataclass
    class Slow(FailingStore):
        """Another ingest begins and ends after this one has read the outcomes and before it writes
        its report.
        """

        def replace(self, key: str, parts: Iterable[bytes]) -> None:
            if key.endswith("report/rejects.csv") and not late:
                drop(bench, {key: answers[key] for key in rest})
                late.append(bench.ingest())
            super().replace(key, parts)

    replace(bench, store=Slow(bench.store, lambda *_: None)).ingest()

    assert late
    assert truth == without_digests(reports(bench, run))
    assert 0 == bench.ingest().files


def test_a_result_for_a_run_nobody_knows_is_kept_and_told_once(tmp_path: Path) -> None:
    bench, run, answers = answered(tmp_path)
    uncommit(tmp_path, run)
    drop(bench, answers)

    told = [bench.ingest(), bench.ingest()]

    assert [(3, 3), (0, 3)] == [(len(one.breaks), one.open_files) for one in told]
    assert answers == {key: data for key, data in bench.snapshot().items() if key in answers}
