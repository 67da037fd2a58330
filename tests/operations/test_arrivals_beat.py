"""What a beat says: that runs start when files arrive, or why nothing does."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.adapters.sqs import SqsQueue
from flows.operations.arrivals_beat import (
    HINDERED,
    SILENT,
    ArrivalsDownError,
    Beat,
    check_arrivals,
    liveness,
    read_beat,
    write_beat,
)
from tests.night import BANK, NOON, issuer, local_bench

WANTED = issuer(arrivals={})
SECOND = timedelta(seconds=1)


def test_a_beat_is_read_as_it_was_written(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    beat = Beat(NOON, "the queue refuses", NOON - SECOND, {"nightly": 3}, {"nightly": 2})

    write_beat(store, BANK, beat)

    assert beat == read_beat(store, BANK)


@pytest.mark.parametrize(
    ("beat", "text", "is_down"),
    [
        (None, "its process has never run", True),
        (Beat(NOON - SILENT), "0 files came, 0 runs were started", False),
        (Beat(NOON - SILENT - SECOND), "its process is silent for 5 min", True),
        (Beat(NOON, "no queue", NOON - HINDERED), "for 2 min: no queue", False),
        (Beat(NOON, "no queue", NOON - HINDERED - SECOND), "for 2 min: no queue", True),
        (
            Beat(NOON, files={"nightly": 1, "ingest": 3}, runs={"nightly": 1, "ingest": 1}),
            "4 files came, 2 runs were started",
            False,
        ),
    ],
)
def test_silence_and_a_lasting_problem_need_somebody(
    tmp_path: Path, beat: Beat | None, text: str, is_down: bool
) -> None:
    store = LocalStore(tmp_path)
    if beat is not None:
        write_beat(store, BANK, beat)

    assert (text, is_down) == liveness(store, WANTED, NOON)


def test_nobody_asks_for_a_beat_where_only_schedules_start_runs(tmp_path: Path) -> None:
    assert liveness(LocalStore(tmp_path), issuer(), NOON) is None


def test_the_check_says_what_works_and_refuses_silence(tmp_path: Path) -> None:
    bench = replace(local_bench(tmp_path, arrivals={}), now=lambda: NOON)
    write_beat(bench.store, BANK, Beat(NOON))

    lines = list(check_arrivals(bench.context, SqsQueue))
    write_beat(bench.store, BANK, Beat(NOON - 2 * SILENT))

    assert ["0 files came, 0 runs were started"] == lines
    with pytest.raises(ArrivalsDownError, match="silent for 10 min"):
        list(check_arrivals(bench.context, SqsQueue))
