"""`python -m tests.lives year --nights 365 --rows 200 --seed 1`: a life and its findings."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from tests.lives import quarter_recount, twenty, twenty_recount, year, year_recount
from tests.lives.findings import Findings
from tests.lives.place import Place, Plan


class Profile(NamedTuple):
    """A life: its full size, what may be asked to be otherwise, who lives it, and its oracle."""

    plan: Plan
    options: tuple[str, ...]
    lived: Callable[..., AbstractContextManager[Any]]
    recount: Callable[[Any], Findings]


PROFILES = {
    "year": Profile(
        Plan(nights=365, rows=200, per_chunk=50, deaths=0.1),
        Plan._fields,
        year.lived,
        year_recount.recount,
    ),
    "twenty": Profile(
        Plan(nights=20, rows=60, per_chunk=12),
        ("nights", "rows", "per_chunk", "seed"),
        twenty.lived,
        twenty_recount.recount,
    ),
    "quarter": Profile(
        Plan(nights=90, rows=20_000, per_chunk=1000, deaths=0.15),
        Plan._fields,
        quarter_recount.lived,
        quarter_recount.recount,
    ),
}


def main() -> int:
    """Live a life, print what happened and what is wrong; 1 where anything is."""
    parser = argparse.ArgumentParser(prog="python -m tests.lives")
    lives = parser.add_subparsers(dest="life", required=True)
    for name, profile in PROFILES.items():
        life = lives.add_parser(name)
        for option in profile.options:
            usual = getattr(profile.plan, option)
            life.add_argument(f"--{option.replace('_', '-')}", type=type(usual), default=usual)
    options = vars(parser.parse_args())
    profile = PROFILES[options.pop("life")]
    plan = profile.plan._replace(**options)
    with (
        tempfile.TemporaryDirectory(prefix="life-") as folder,
        profile.lived(Place(Path(folder), plan), on_progress=_print_line) as story,
    ):
        findings = profile.recount(story)
    for line in findings.lines():
        _print_line(line)
    cpu = sum(os.times()[:4])
    _print_line(f"{plan.nights} nights, CPU {cpu:.0f} s, wrong: {len(findings.wrong)} kinds")
    return int(bool(findings.wrong))


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
