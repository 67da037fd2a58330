"""Which result files no ingest has read yet."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.results.dropped import LOOKED_FOR, SKEW, files_to_ingest, result_files
from flows.runs.keys import results
from tests.night import BANK, Bench, local_bench, made_once

TICK = timedelta(microseconds=1)


@made_once
def night(folder: Path) -> Bench:
    bench = local_bench(folder, portal={"rows_per_chunk": 10})
    bench.submit(bench.drop(30))
    bench.answer(fail_share=0.2, seed=5)
    return bench


def unread(bench: Bench, now: datetime) -> list[str]:
    entries = files_to_ingest(result_files(bench.adapters, BANK), now)
    return [entry.key.removeprefix(results(BANK)) for entry in entries]


def dropped(bench: Bench) -> datetime:
    """Return when the result files came, which is what this machine's clock says."""
    return max(entry.modified for entry in bench.store.keys(results(BANK)))


def test_a_file_is_to_be_ingested_until_it_is_read_whatever_came_of_it(tmp_path: Path) -> None:
    bench = night(tmp_path)
    now = dropped(bench)
    before = unread(bench, now)

    bench.ingest()
    bench.store.replace(f"{results(BANK)}stray.csv", [b"nothing of use"])
    stray = unread(bench, now)
    bench.ingest()

    assert (3, ["stray.csv"], []) == (len(before), stray, unread(bench, now))


@pytest.mark.parametrize(
    ("later", "is_looked_for"),
    [(-SKEW, False), (TICK - SKEW, True), (LOOKED_FOR - TICK, True), (LOOKED_FOR, False)],
)
def test_it_is_looked_for_thirty_days(
    tmp_path: Path, later: timedelta, is_looked_for: bool
) -> None:
    bench = Bench(LocalStore(tmp_path))
    bench.store.create(f"{results(BANK)}dropped.csv", b"")

    assert is_looked_for == bool(unread(bench, dropped(bench) + later))
