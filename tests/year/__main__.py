"""`python -m tests.year --nights 365 --rows 200 --seed 1`: a year of nights, and what its oracle
finds.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.quarter.life import asked
from tests.year.life import Plan, lived
from tests.year.recount import recount, shown


def main() -> int:
    """Live through a year, print what happened and what is wrong; 1 where anything is."""
    plan = asked("year", Plan())
    with (
        tempfile.TemporaryDirectory(prefix="year-") as folder,
        lived(Path(folder), plan, on_progress=_print_line) as year,
    ):
        findings = recount(year)
        for line in shown(findings):
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
