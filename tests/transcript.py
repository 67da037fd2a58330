"""The transcript of `make demo` in `README.md`: what the demo prints, and where it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
README: Final = ROOT / "README.md"
_TRANSCRIPT: Final = re.compile(
    r"<!-- transcript: demo -->\n```text\n\$ make demo\n(?P<printed>.*?)```",
    re.DOTALL,
)
_START: Final = "from flows.cli.__main__ import run; run()"


def run_demo(folder: Path) -> str:
    """Run the demo in a folder, as a newcomer does; return what it prints, the folder as `demo`."""
    done = subprocess.run(
        [sys.executable, "-c", _START, "demo", "--dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the demo ended with {done.returncode}:\n{done.stderr}")
    return done.stdout.replace(str(folder), "demo")


def transcript() -> str:
    """Return the transcript as the README has it."""
    return _in(README.read_text("utf-8"))["printed"]


def write_transcript(printed: str) -> None:
    """Replace the transcript in the README."""
    text = README.read_text("utf-8")
    start, end = _in(text).span("printed")
    README.write_text(text[:start] + printed + text[end:], "utf-8")


def _in(text: str) -> re.Match[str]:
    place = _TRANSCRIPT.search(text)
    assert place is not None, "README.md has no transcript of the demo"
    return place
