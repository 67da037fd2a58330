"""What a beat says: that runs start when files arrive, or why nothing does."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.extensions.arrivals.beat import SILENT, Beat, liveness, read_beat, write_beat
from tests.night import BANK, NOON, issuer

SECOND = timedelta(seconds=1)


def test_a_beat_is_read_as_it_was_written(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    beat = Beat(at=NOON, problem="the server refuses")

    write_beat(store, BANK, beat)

    assert beat == read_beat(store, BANK)


@pytest.mark.parametrize(
    ("beat", "text", "is_down"),
    [
        (None, "its process has never run", True),
        (Beat(at=NOON - SILENT), "its process works", False),
        (Beat(at=NOON - SILENT - SECOND), "its process is silent for 5 min", True),
        (Beat(at=NOON - SILENT, problem="no server"), "for 5 min: no server", False),
        (Beat(at=NOON - SILENT - SECOND, problem="no server"), "for 5 min: no server", True),
    ],
)
def test_silence_and_a_lasting_problem_need_somebody(
    tmp_path: Path, beat: Beat | None, text: str, is_down: bool
) -> None:
    store = LocalStore(tmp_path)
    if beat is not None:
        write_beat(store, BANK, beat)

    assert (text, is_down) == liveness(store, issuer(arrivals={}), NOON)


def test_nobody_asks_for_a_beat_where_only_schedules_start_runs(tmp_path: Path) -> None:
    assert liveness(LocalStore(tmp_path), issuer(), NOON) is None
