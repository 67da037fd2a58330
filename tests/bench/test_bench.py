"""`make bench` in the smallest size: every figure of the table is measured, printed and kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.__main__ import PARTS

SMALL = "--rows 1500 --sizes 500 1500 --nights 2 --runs 3 --year 5 --rounds 1"
FIGURES = {
    "contest": [
        "shell loop / submit",
        "straightforward script / submit",
        "submit / floor",
        "submit without compression / floor",
    ],
    "growth": [
        "peak memory of the submit",
        "peak memory, 1,500 rows against 500",
        "time per row, 1,500 rows against 500",
    ],
    "ingest": ["ingest / submit", "peak memory of the ingest"],
    "nights": ["a night of 500 rows, mean of 2"],
    "year": ["look-ups over 5 nights / submit, CPU", "peak memory of the look-ups"],
    "s3": ["submit to S3, less the server's CPU / to a directory"],
    "cli": ["cardlink --help", "cardlink status of 3 runs"],
    "repeats": ["telling 1,500 rows apart, bytes a row"],
}


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(["contest", "ingest", "nights", "year", "repeats"], id="the-ratios"),
        pytest.param(["growth", "s3", "cli"], id="the-rest", marks=pytest.mark.slow),
    ],
)
def test_the_bench_measures_prints_and_keeps_every_figure_of_its_table(tmp_path: Path, parts: list[str]) -> None:
    sizes = [*SMALL.split(), "--only", *parts, "--out", str(tmp_path), "--work", str(tmp_path)]

    ended = subprocess.run([sys.executable, "-m", "tests.bench", *sizes], capture_output=True, text=True, check=False)

    assert ended.returncode in (0, 1), ended.stderr  # 1: sizes this small miss limits
    found = json.loads((tmp_path / "bench.json").read_text())["figures"]
    expected = [name for part in parts for name in FIGURES[part]]
    assert expected == [one["name"] for one in found]
    assert all(name in ended.stdout for name in expected)
    assert all(one["value"] > 0 for one in found)
    assert ("growth" in parts) == (tmp_path / "bench.svg").exists()


def test_there_is_a_part_for_every_figure() -> None:
    assert list(PARTS) == list(FIGURES)
