"""`make mutants`: puts small faults into the code, one at a time, and runs the tests that call the
changed function until one fails. A fault that no test notices is printed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.mutants import campaign


def arguments() -> argparse.Namespace:
    """Return the arguments of this run."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("files", nargs="*", help="files, folders, groups of the table; or: faults")
    parser.add_argument("--count", type=int, default=100, help="how many mutants (0: all)")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--edges", action="store_true", help="only faults of limits and precedence")
    parser.add_argument("--calls", type=Path, default=campaign.CALLS, help="which test calls what")
    parser.add_argument("--seconds", type=int, default=60, help="CPU seconds of tests a mutant")
    parser.add_argument("--nice", type=int, default=10)
    parser.add_argument("--only", default="", help="of the faults, those of files with this name")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    os.nice(given.nice)
    sys.exit(campaign.run(given))
