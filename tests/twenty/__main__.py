"""`python -m tests.twenty --nights 20 --rows 60 --seed 1`: the nights, the operator's commands, and
what is wrong.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.quarter.life import asked
from tests.twenty.life import Plan, lived
from tests.twenty.recount import recount, shown


def main() -> int:
    """Live through the nights, print what happened and what is wrong; 1 where anything is."""
    plan = asked("twenty", Plan())
    with (
        tempfile.TemporaryDirectory(prefix="twenty-") as folder,
        lived(Path(folder), plan, on_progress=_print_line) as story,
    ):
        findings = recount(story)
        for line in shown(story, findings):
            _print_line(line)
    _print_line(
        f"{plan.nights} nights, CPU {sum(os.times()[:4]):.0f} s, wrong: {len(findings.wrong)} kinds"
    )
    return int(bool(findings.wrong))


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
