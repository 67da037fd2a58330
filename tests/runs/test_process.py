"""A hardened process: no core file, files for its user only, frames without cells, logs
redacted.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from schemas.expressions import PUBLISHED

CARD = PUBLISHED[0]
CHILD = f"""
import logging, os, resource, sys
logging.getLogger("early").addHandler(logging.StreamHandler(sys.stdout))
from flows.hardening import harden_process
harden_process(); harden_process()
import polars as pl
frame = pl.DataFrame({{"pan": ["{CARD}"] * 3, "all": [["{CARD}"]] * 3}})
print(frame, frame["pan"], frame["all"], frame._repr_html_(), frame.lazy(), pl.lit(frame["pan"]))
logging.getLogger("early").error("cell %s", "{CARD}")
logging.getLogger("late").error("cell %s", "{CARD}")
open("made", "w").close()
print(resource.getrlimit(resource.RLIMIT_CORE), oct(os.stat("made").st_mode)[-3:])
print(len(logging.getLogger("early").handlers[0].filters), "filter")
"""


def test_a_hardened_process_shows_and_leaves_nothing(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])

    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=tmp_path,
        env={"PYTHONPATH": root},
        capture_output=True,
        text=True,
    )

    assert (0, ["(0, 0) 600", "1 filter"]) == (done.returncode, done.stdout.splitlines()[-2:])
    assert CARD not in done.stdout + done.stderr
    assert (1, 1) == (done.stdout.count("cell [masked]"), done.stderr.count("cell [masked]\n"))


WIRED = """
import os, pathlib, resource
from flows.wiring import wire
here = pathlib.Path()
(here / "bank.toml").write_text(
    'issuer = "bank"\\nroot = "store"\\ntest = true\\n'
    '[portal]\\nsealed = false\\nallowed_hosts = ["a.example"]\\n'
)
(here / "store").mkdir()
wire(here, "bank")
print(resource.getrlimit(resource.RLIMIT_CORE), oct(os.umask(0)), os.environ["POLARS_FMT_MAX_ROWS"])
"""


def test_whoever_wires_an_issuer_is_hardened_flows_included(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])

    done = subprocess.run(
        [sys.executable, "-c", WIRED],
        cwd=tmp_path,
        env={"PYTHONPATH": root},
        capture_output=True,
        text=True,
    )

    assert "(0, 0) 0o77 0" == done.stdout.strip(), done.stderr
