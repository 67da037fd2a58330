"""`make leaks`: every night in its full size (`LEAKS=--small`: in the tests' size), what was
scanned, what was found.

Exit code 1 where anything was found, or where a control found nothing.

Beside it two controls: the self-test (every form in every container), and a Prefect flow without
our boundary, in whose leftovers the same scan must find cards.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.leaks.nights import NIGHTS, GateFacts, traced_night, unguarded
from tests.leaks.place import CARDS, CVVS, Place
from tests.leaks.planting import planted_and_found
from tests.leaks.scanner import Leak, Scanned


def main(full: bool) -> int:
    """Run all nights and print one line for each, then the sum."""
    planted, found = planted_and_found()
    total, leaks, forms = Scanned(), list[Leak](), 0
    print(f"{'night':<42}{'seconds':>8}{'objects':>9}{'opened':>9}{'MB':>8}{'found':>7}")
    for night in (*NIGHTS, GateFacts("no plaintext written (system calls)", traced_night)):
        place, seconds = _played(night, full)
        total += place.scanner.scanned
        leaks += place.found
        forms = place.scanner.forms
        _line(night.name, seconds, place)
    control, seconds = _played(GateFacts("control", unguarded), full)
    _line("control: a flow without the boundary", seconds, control)
    print(
        f"scanned {total.objects:,} objects, {total.opened:,} parts of containers, "
        f"{total.bytes:,} bytes for {len(CARDS)} cards and {len(CVVS)} CVVs in {forms} forms: "
        f"{len(leaks)} found"
    )
    print(
        f"self-test: {found:,} of {planted:,} planted secrets found; "
        f"control: {len(control.found):,} found"
    )
    for (form, where), number in Counter(
        (leak.secret.form, leak.place) for leak in leaks
    ).most_common(20):
        print(f"LEAK {number} × {form} in {where}")
    return 0 if not leaks and control.found and found == planted else 1


def _played(night: GateFacts, full: bool) -> tuple[Place, float]:
    """Play a night in a folder of its own and scan it; the folder is gone afterwards."""
    start = time.monotonic()
    with TemporaryDirectory(prefix="cardlink-leaks-") as folder:
        place = Place(Path(folder))
        night.play(place, full)
        place.leaks()
    return place, time.monotonic() - start


def _line(name: str, seconds: float, place: Place) -> None:
    seen = place.scanner.scanned
    megabytes = seen.bytes / 1e6
    counts = f"{seen.objects:>9,}{seen.opened:>9,}{megabytes:>8.1f}{len(place.found):>7}"
    print(f"{name:<42}{seconds:>8.1f}{counts}", flush=True)


if __name__ == "__main__":
    sys.exit(main("--small" not in sys.argv))
