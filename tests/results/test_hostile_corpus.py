"""Hostile files by seed, dropped beside a good one: it is ingested in the same call, whatever they
are.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from pathlib import Path

import pytest

from flows.runs.keys import results
from tests.night import BANK, Bench, local_bench
from tests.results.hostile_files import hostile

MEMORY = 1 << 20  # kilobytes that the reading may add to the process


def two_chunks(folder: Path) -> tuple[Bench, str, Path, bytes]:
    """Return a night of two chunks, its run, the result of the first as dropped, and the content of
    the second.
    """
    bench = local_bench(folder, portal={"rows_per_chunk": 20})
    run = bench.submit(bench.drop(40)).manifest.run
    bench.answer(fail_share=0.2, seed=3)
    good, other = sorted((folder / "store" / results(BANK)).iterdir())
    content = other.read_bytes()
    other.unlink()
    return bench, run, good, content


def settled(bench: Bench, run: str) -> tuple[list[bytes], ...]:
    """Return the lines of the lists of a run that are about its first chunk."""
    cuids = [cuid.encode() for cuid in bench.ledger(run).filter(chunk=1)["cuid"]]
    lists = (bench.report(run, name).splitlines() for name in ("links.csv", "errors.csv"))
    return tuple([line for line in lines if any(cuid in line for cuid in cuids)] for lines in lists)


def ingest_beside(
    bench: Bench, good: Path, content: bytes, seeds: Iterable[int]
) -> tuple[int, list[str]]:
    """Drop the good file anew with the hostile ones of these seeds, ingest all, and return files
    and breaks.
    """
    folder = good.parent
    good.touch()
    for seed in seeds:
        name, data = hostile(seed, content)
        # no Path has such names
        with open(os.fsencode(folder) + b"/" + os.fsencode(name), "wb") as file:  # noqa: PTH123
            file.write(data)
    done = bench.ingest()
    for path in folder.iterdir():
        if path != good:
            path.unlink()
    return done.files, list(done.breaks)


@pytest.mark.slow
def test_two_hundred_hostile_files_leave_the_good_one_beside_them_as_it_is(tmp_path: Path) -> None:
    bench, run, good, content = two_chunks(tmp_path)
    bench.ingest()
    truth = settled(bench, run)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    files, breaks = ingest_beside(bench, good, content, range(200))

    assert 201 == files
    assert truth == settled(bench, run)
    assert 150 < len(breaks)
    assert [] == [told for told in breaks if "our error" in told]
    assert MEMORY > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


@pytest.mark.slow
def test_ten_thousand_hostile_files_leave_the_good_one_beside_them_as_it_is(tmp_path: Path) -> None:
    bench, run, good, content = two_chunks(tmp_path)
    bench.ingest()
    truth = settled(bench, run)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for start in range(0, 10_000, 500):
        files, breaks = ingest_beside(bench, good, content, range(start, start + 500))

        assert 501 == files
        assert truth == settled(bench, run)
        assert [] == [told for told in breaks if "our error" in told]

    assert MEMORY > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
