"""Many nights of an issuer: what it costs to ask what earlier nights say of every card.

Usage: python -m tests.bench.year FOLDER EXTRACT. Prints the CPU seconds of looking through the
issuer's runs and of asking for every row of an extract, and the peak of memory in MB. What a row is
compared by (`add_fingerprints`) is noted in every ledger, the first night's too, and is not counted
as asking.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import polars as pl

from flows.hardening import harden_process
from flows.runs.cards import add_fingerprints
from flows.submissions.normalise import normalise
from flows.submissions.prior_state import resend_policy, survey_cards
from flows.wiring import wire
from schemas.portal import MONTH, PAN, YEAR
from tests.bench.scene import BANK, CARDLINK, DAY, Scene, make_scene

BLOCK = 50_000  # rows asked for at once, as a submit does
NEW = 100  # one row of so many is new each night


def make_year(folder: Path, scene: Scene, rows: int, nights: int) -> tuple[Scene, Path]:
    """Make a store of so many nights, really sent and answered; return its scene, and the extract
    of the next night.

    The first night has all rows, each later one so many new ones (NEW). The next extract has all
    rows again, and new ones.
    """
    new = max(1, rows // NEW)
    year = make_scene(folder / "year", rows + nights * new, scene.key)
    header, *lines = year.extract.read_bytes().splitlines(keepends=True)
    year.extract.unlink()
    for night in range(nights):
        first = rows + (night - 1) * new if night else 0
        _drop(year, nights - night, [header, *lines[first : rows + night * new]])
        _send_and_answer(year)
    return year, _drop(year, 0, [header, *lines[-rows:]])


def _drop(year: Scene, ago: int, lines: list[bytes]) -> Path:
    """Drop an extract of so many days ago."""
    extract = year.extract.with_name(f"{BANK}-{DAY - timedelta(days=ago):%Y%m%d}.csv")
    extract.write_bytes(b"".join(lines))
    return extract


def submit_next(year: Scene) -> list[str]:
    """Return the command that submits what was dropped, whatever its size."""
    return [CARDLINK, "--config", str(year.folder), "submit", BANK, "--open", "row-jump"]


def _send_and_answer(year: Scene) -> None:
    config = [CARDLINK, "--config", str(year.folder)]
    secret = ["--secret-key", str(year.folder / "secret.asc")]
    for words in (
        submit_next(year),
        [*config, "simulate", BANK, *secret, "--fail", "0.02"],
        [*config, "ingest", BANK],
    ):
        ended = subprocess.run(words, capture_output=True, check=False)
        assert ended.returncode in (0, 3), ended.stderr[-2000:]  # 3: some rows are refused


def main(folder: Path, extract: Path) -> None:
    """Look through the runs, ask for every row; print what both took."""
    harden_process()
    context = wire(folder, BANK)
    start = time.process_time()
    known = survey_cards(context).known
    looked = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = normalise(pl.read_csv(extract, infer_schema=False), context.issuer.rules)
    rows = add_fingerprints(rows).with_columns(
        reissue_check=pl.lit(None, pl.UInt32),
        last_4=pl.col(PAN).str.slice(-4),
        expiration=pl.col(YEAR) + pl.col(MONTH),
    )
    policy, start = resend_policy(context.issuer, DAY), time.process_time()
    sent = sum(
        known.suppressed(block, DAY, policy).null_count() for block in rows.iter_slices(BLOCK)
    )
    asked = time.process_time() - start
    assert 0 < sent < rows.height // 10  # the new rows, and those no night ever sent
    print(looked, asked, peak)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
