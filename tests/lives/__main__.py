"""`python -m tests.lives year --nights 365 --rows 200 --seed 1`: a life and its findings."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
from pathlib import Path

from tests.lives.oracle import lived, recount
from tests.lives.place import Place
from tests.lives.profile import PROFILES

MEMORY = Path("/dev/shm")  # where there is one: half of a life's time is a disk that syncs


def main() -> int:
    """Live a life, print what happened and what is wrong; 1 where anything is."""
    parser = argparse.ArgumentParser(prog="python -m tests.lives")
    lives = parser.add_subparsers(dest="life", required=True)
    for name, profile in PROFILES.items():
        life_parser = lives.add_parser(name)
        for option in profile.options:
            usual = getattr(profile.plan, option)
            life_parser.add_argument(
                f"--{option.replace('_', '-')}", type=type(usual), default=usual
            )
    options = vars(parser.parse_args())
    profile = PROFILES[options.pop("life")]
    plan = profile.plan._replace(**options)
    gc.freeze()  # what is imported is no garbage, and frames are many objects and few cycles
    gc.set_threshold(20_000, 20, 20)
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="life-", dir=memory) as folder,
        lived(Place(Path(folder), plan), profile, _print_line) as life,
    ):
        findings = recount(life)
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
