"""Many small nights in one process: as many issuers, each with an extract of 500 rows, submitted
one after the other.

Usage: python -m tests.bench.nights FOLDER NIGHTS. Prints the milliseconds of the median night, the
first one apart.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import fmean

from flows.configuration import issuers
from flows.runs.keys import extracts
from flows.submissions.submit import Request, submit
from flows.wiring import wire
from tests.bench.scene import EXTRACT, Scene, write_toml

ROWS = 500


def make_nights(scene: Scene, nights: int) -> None:
    """Give the scene so many issuers, each with the same small extract."""
    with scene.extract.open("rb") as file:
        content = b"".join(file.readline() for _ in range(ROWS + 1))
    for number in range(nights):
        issuer = f"small-{number:04d}"
        write_toml(scene.folder, issuer, scene.key)
        extract = scene.folder / "store" / extracts(issuer) / EXTRACT
        extract.parent.mkdir(parents=True)
        extract.write_bytes(content)


def main(folder: Path) -> None:
    """Submit every small issuer's extract; print the mean milliseconds of all nights but the
    first.
    """
    spent = []
    for issuer in issuers(folder):
        if issuer.startswith("small-"):
            context = wire(folder, issuer)
            start = time.perf_counter()
            submit(context, Request(EXTRACT))
            spent.append(time.perf_counter() - start)
    print(1000 * fmean(spent[1:]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
