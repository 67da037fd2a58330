"""What a beat says: that runs start when files arrive, or why nothing does."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.adapters.sqs import SqsQueue
from flows.operations.arrivals_beat import (
    FORGOTTEN,
    HINDERED,
    SILENT,
    ArrivalsDownError,
    Beat,
    Processes,
    check_arrivals,
    liveness,
    read_beats,
    write_beats,
)
from flows.runs.documents import read_facts
from flows.runs.keys import metrics
from tests.night import BANK, NOON, issuer, local_bench

WANTED = issuer(arrivals={})
SECOND = timedelta(seconds=1)


def test_beats_are_read_as_they_were_written(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    beat = Beat(NOON, "the queue refuses", NOON - SECOND, {"nightly": 3}, {"nightly": 2})
    known = Processes(Beat(NOON, files={"nightly": 1}), {"one-7": beat})

    write_beats(store, BANK, known)

    assert known == read_beats(store, BANK)


def test_a_version_that_knows_one_process_reads_the_newest_beat_of_all(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    beats = {str(at): Beat(NOON + at * SECOND) for at in (2, 3, 1)}

    write_beats(store, BANK, Processes(Beat(NOON), beats))

    facts = read_facts(store, f"{metrics(BANK)}arrivals.json")
    assert facts is not None
    assert (NOON + 3 * SECOND).isoformat() == facts["at"]


def test_one_of_two_that_falls_silent_or_is_hindered_is_noticed_beside_the_other(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    works = Beat(NOON, files={"nightly": 4}, runs={"nightly": 1})

    def state(other: Beat, third: Beat | None = None) -> tuple[str, bool]:
        living = {"one-7": works, "two-8": other, "six-9": third}
        known_ones = {name: beat for name, beat in living.items() if beat}
        write_beats(store, BANK, Processes(living=known_ones))
        known = liveness(store, WANTED, NOON)
        assert known is not None
        return known

    silent = "of its 2 processes, two-8 is silent for 5 min"
    assert (silent, True) == state(Beat(NOON - SILENT - SECOND))
    assert ("for 3 min: no queue", True) == state(
        Beat(NOON, "no queue", NOON - timedelta(minutes=3))
    )
    just_not = Beat(NOON - SILENT, "no disk", NOON - timedelta(minutes=9))
    assert (silent.replace("2", "3"), True) == state(Beat(NOON - SILENT - SECOND), just_not)
    later = Beat(NOON, "no queue", NOON - timedelta(minutes=3))
    assert ("for 9 min: no disk", True) == state(later, just_not)
    assert ("7 files came, 2 runs were started", False) == state(
        Beat(NOON, files={"nightly": 2, "ingest": 1}, runs={"ingest": 1})
    )


def test_a_process_that_ended_or_was_lost_an_hour_ago_leaves_its_counts_and_no_silence() -> None:
    one, two = Beat(NOON, files={"nightly": 4}), Beat(NOON - FORGOTTEN, files={"nightly": 2})
    both = Processes(living={"one-7": one, "two-8": two})

    later = both.after("one-7", Beat(NOON + SECOND, files={"nightly": 5}))

    assert {"one-7", "two-8"} == {*both.after("one-7", one).living}
    assert {"one-7"} == {*later.living}
    assert {"nightly": 7} == later.total(lambda beat: beat.files)
    assert [one] == both.without({"two-8"}).beats
    assert Beat(NOON, files={"nightly": 6}) == both.without({"one-7", "two-8"}).ended


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
        write_beats(store, BANK, Processes(living={"one-7": beat}))

    assert (text, is_down) == liveness(store, WANTED, NOON)


def test_nobody_asks_for_a_beat_where_only_schedules_start_runs(tmp_path: Path) -> None:
    assert liveness(LocalStore(tmp_path), issuer(), NOON) is None


def test_the_check_says_what_works_and_refuses_silence(tmp_path: Path) -> None:
    bench = replace(local_bench(tmp_path, arrivals={}), now=lambda: NOON)
    write_beats(bench.store, BANK, Processes(Beat(NOON)))

    lines = list(check_arrivals(bench.context, SqsQueue))
    write_beats(bench.store, BANK, Processes(Beat(NOON - 2 * SILENT)))

    assert ["0 files came, 0 runs were started"] == lines
    with pytest.raises(ArrivalsDownError, match="silent for 10 min"):
        list(check_arrivals(bench.context, SqsQueue))
