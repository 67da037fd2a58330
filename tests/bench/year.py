"""A year of nights of a full portfolio: what it costs to ask what earlier nights say of every card.

Usage: python -m tests.bench.year FOLDER EXTRACT. Prints the CPU seconds of looking through the
issuer's runs and of asking for every row of an extract, and the peak of memory in MB. What a row is
compared by (`add_fingerprints`) is noted in every portfolio's ledger, the first night's too, and is not
counted as asking.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from flows.hardening import harden_process
from flows.runs.cards import add_fingerprints
from flows.runs.keys import RunId, RunKeys
from flows.submissions.normalise import normalise
from flows.submissions.prior_state import resend_policy, survey_cards
from flows.wiring import wire
from schemas.portal import MONTH, PAN, YEAR
from tests.bench.scene import BANK, CARDLINK, DAY, Scene, make_scene

BLOCK = 50_000  # rows asked for at once, as a submit does
NEW = 100  # one row of so many is new each night


def make_year(
    folder: Path, scene: Scene, rows: int, nights: int, settings: str = "full_portfolio = true"
) -> tuple[Scene, Path]:
    """Make a store of so many nights of full files; return its scene, and the extract of the next
    night.

    The last two nights are really sent and answered; those before are copies of the last one, their
    days moved.
    """
    year = make_scene(folder / "year", rows + 2 * (rows // NEW), scene.key)
    toml = year.folder / f"{BANK}.toml"
    toml.write_text(toml.read_text().replace("test = true", f"test = true\n{settings}"))
    header, *lines = year.extract.read_bytes().splitlines(keepends=True)
    year.extract.unlink()
    for ago in (2, 1, 0):
        first = (2 - ago) * (rows // NEW)
        extract = year.extract.with_name(f"{BANK}-{DAY - timedelta(days=ago):%Y%m%d}.csv")
        extract.write_bytes(b"".join([header, *lines[first : first + rows]]))
        if ago:
            _send_and_answer(year)
    runs = year.folder / "store" / BANK / "runs"
    for number in range(nights - 2):
        _copy(runs, max(run.name for run in runs.iterdir()), number)
    return year, extract


def _send_and_answer(year: Scene) -> None:
    config = [CARDLINK, "--config", str(year.folder)]
    secret = ["--secret-key", str(year.folder / "secret.asc")]
    for words in (
        ["submit", BANK],
        ["simulate", BANK, *secret, "--fail", "0.02"],
        ["ingest", BANK],
    ):
        ended = subprocess.run([*config, *words], capture_output=True, check=False)
        assert ended.returncode in (0, 3), ended.stderr[-2000:]  # 3: some rows are refused


def _copy(runs: Path, name: str, number: int) -> None:
    """Copy a run to an earlier night; the day its links end moves with it, and a year's files are
    links to one.
    """
    model = RunId.parse(name)
    assert model is not None
    moved = timedelta(days=number + 2)
    copy = RunKeys(RunId(BANK, model.day - moved, f"{number:08x}")).run
    shutil.copytree(runs / name, runs / str(copy), copy_function=os.link)
    for path in (runs / str(copy) / "manifest.json", runs / str(copy) / "plan.json"):
        _rewrite(
            path, lambda facts: facts | {"run": str(copy), "as_of": (model.day - moved).isoformat()}
        )
    summary = runs / str(copy) / "report" / "summary.json"
    _rewrite(
        summary,
        lambda facts: facts | {"run": str(copy), "expires": _earlier(facts["expires"], moved)},
    )


def _earlier(expires: dict[str, int], moved: timedelta) -> dict[str, int]:
    return {
        (date.fromisoformat(day) - moved).isoformat(): links
        for day, links in expires.items()
        if day
    }


def _rewrite(path: Path, how: Any) -> None:
    facts = how(json.loads(path.read_text()))
    path.unlink()  # else the run it is a link to would be changed
    path.write_text(json.dumps(facts))


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
