"""`make bench` in the smallest size: every figure of the table is measured, printed and kept."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from flows.adapters.gpg_opener import GpgOpener
from schemas import portal
from tests.bench import issuers, script
from tests.bench.__main__ import PARTS
from tests.bench.measure import cost_of
from tests.bench.scene import BANK, make_scene
from tests.ops.stage import ROOT

SMALL = "--rows 1500 --sizes 500 1500 --nights 2 --runs 3 --year 5 --rounds 1"
FIGURES = {
    "contest": [
        "shell loop / submit",
        "straightforward script / submit",
        "peak memory of that submit",
        "submit / floor",
        "submit without compression / floor",
    ],
    "growth": [
        "peak memory of the submit",
        "peak memory, 1,500 rows against 500",
        "time per row, 1,500 rows against 500",
    ],
    "pace": ["submit / shell loop, CPU"],
    "ingest": ["ingest / submit", "peak memory of the ingest"],
    "nights": ["a night of 500 rows, mean of 2"],
    "year": ["look-ups over 5 nights / submit, CPU", "peak memory of the look-ups"],
    "history": [
        "submit with 5 nights behind it / with none, CPU",
        "submit with 5 nights behind it / with none",
        "submit with 5 nights behind it / with none, peak memory",
    ],
    "s3": ["submit to S3, less the server's CPU / to a directory"],
    "cli": [
        "cardlink --help",
        *(
            f"cardlink {words} of 3 runs"
            for words in ("status", "ingest", "upload", "worklist", "reconcile")
        ),
    ],
    "repeats": ["telling 1,500 rows apart, bytes a row"],
}


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(["nights", "repeats"], id="the-quickest", marks=pytest.mark.slow),
        pytest.param(
            [one for one in PARTS if one not in ("nights", "repeats")],
            id="the-rest",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_bench_measures_prints_and_keeps_every_figure_of_its_table(
    tmp_path: Path, parts: list[str]
) -> None:
    sizes = [*SMALL.split(), "--only", *parts, "--out", str(tmp_path), "--work", str(tmp_path)]

    ended = subprocess.run(
        [sys.executable, "-m", "tests.bench", *sizes], capture_output=True, text=True, check=False
    )

    assert ended.returncode in (0, 1), ended.stderr  # 1: sizes this small miss limits
    found = json.loads((tmp_path / "bench.json").read_text())["figures"]
    expected = [name for part in parts for name in FIGURES[part]]
    assert expected == [one["name"] for one in found]
    assert all(name in ended.stdout for name in expected)
    assert all(one["value"] > 0 for one in found)
    assert ("growth" in parts) == (tmp_path / "bench.svg").exists()


def respelled(extract: Path) -> None:
    """Write every third row of an extract as other issuers would."""
    rows = pl.read_csv(extract, infer_schema=False)
    pan = pl.concat_str(
        [pl.col(portal.PAN).str.slice(at, 4) for at in range(0, 16, 4)], separator=" "
    )
    others = {
        portal.PAN: pl.when(pl.col(portal.PAN).str.len_chars() == 16)
        .then(pan)
        .otherwise(portal.PAN),
        portal.MONTH: pl.col(portal.MONTH).str.strip_chars_start("0"),
        portal.YEAR: "20" + pl.col(portal.YEAR),
        portal.COUNTRY: pl.col(portal.COUNTRY).replace({"US": "united states", "CA": "Canada"}),
        portal.SUBNATIONAL: pl.col(portal.SUBNATIONAL).replace(
            {"MA": "Massachusetts", "ON": "ont."}
        ),
        portal.FIRST_NAME: " " + pl.col(portal.FIRST_NAME) + "  ",
        portal.IS_PRIMARY: pl.col(portal.IS_PRIMARY).replace({"TRUE": "y", "FALSE": "0"}),
        portal.NICKNAME: pl.lit("N/A"),
    }
    third = pl.int_range(pl.len()) % 3 == 1
    rows.with_columns(
        pl.when(third).then(cell).otherwise(name).alias(name) for name, cell in others.items()
    ).write_csv(extract)


@pytest.mark.slow
def test_the_straightforward_script_sends_the_same_rows_in_the_same_words(tmp_path: Path) -> None:
    scene = make_scene(tmp_path / "scene", 2500, bad=0.2)
    out = tmp_path / "out"
    respelled(scene.extract)

    cost_of(scene.submit())
    script.main(scene.folder / "portal.asc", scene.extract, out)

    (ours,) = (scene.folder / "store" / BANK / "runs").iterdir()
    with GpgOpener([scene.key.secret]) as opener:
        sent, straightforward = (
            [opener.open(file.read_bytes(), 1 << 20) for file in sorted(folder.glob("*.pgp"))]
            for folder in (ours / "chunks", out)
        )
    assert 3 == len(sent)
    assert sent == straightforward


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(
    shutil.which("taskset") is None, reason="workers are pinned to cores with taskset (Linux)"
)
def test_a_killed_worker_of_a_pool_leaves_nothing_lost_and_nothing_twice(tmp_path: Path) -> None:
    sizes = [
        "--issuers",
        "3",
        "--rows",
        "2000",
        "--only",
        "killed",
        "--out",
        str(tmp_path),
        "--work",
        str(tmp_path),
    ]

    ended = subprocess.run(
        [sys.executable, "-m", "tests.bench.issuers", *sizes], capture_output=True, text=True
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads((tmp_path / "issuers.json").read_text())["scenarios"]["killed"]
    assert found["wrong"] == []
    assert found["killed"]["chunks"] > 0


def test_the_page_of_scaling_out_has_the_commands_that_its_bench_follows() -> None:
    page = (ROOT / "deploy" / "SCALE.md").read_text()

    for command in ("cardlink install", issuers.WORKER, issuers.LIMIT.format(runs=2)):
        assert f"\n{command}\n" in page


def test_there_is_a_part_for_every_figure() -> None:
    assert list(PARTS) == list(FIGURES)
