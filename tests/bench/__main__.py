"""`make bench N=1000000`: measure the table of figures, print it, keep it as JSON and as one plot.

Every ratio is of runs side by side, its median taken over the rounds; nothing is scaled from a
smaller run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.bench import figures
from tests.bench.figures import Figure
from tests.bench.measure import Cost, machine
from tests.bench.plot import Line, draw
from tests.bench.scene import Scene, make_scene


def main() -> int:
    """Measure what is asked for; 1 where a figure misses its limit."""
    asked = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="cardlink-bench-", dir=asked.work))
    before = machine()
    try:
        scene = make_scene(folder / "scene", asked.rows, bad=0.02)
        found, costs, sizes = _measure(asked, folder, scene)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    facts = {
        "machine": {**before, "load_after": machine()["load"]},
        "rows": asked.rows,
        "rounds": asked.rounds,
        "figures": [{**one._asdict(), "holds": one.holds} for one in found],
        "medians": {name: cost._asdict() for name, cost in costs.items()},
        "growth": {str(rows): cost._asdict() for rows, cost in sizes.items()},
    }
    (asked.out / "bench.json").write_text(json.dumps(facts, indent=2) + "\n")
    if sizes:
        (asked.out / "bench.svg").write_text(_plot(sizes))
    print(
        f"\n{asked.out}/bench.json  load before {before['load']}, {before['cores']} cores, {before['model']}"
    )
    return 0 if all(one.holds for one in found) else 1


def _measure(
    asked: argparse.Namespace, folder: Path, scene: Scene
) -> tuple[list[Figure], dict[str, Cost], dict[int, Cost]]:
    found: list[Figure] = []
    costs: dict[str, Cost] = {}
    sizes: dict[int, Cost] = {}
    print(f"{'figure':56}{'measured':>12}{'limit':>12}")
    if "contest" in asked.only:
        told, costs = figures.contest(scene, asked.rounds)
        found += _say(told)
        for name, cost in costs.items():
            print(
                f"    {name:36}{cost.wall:8.2f} s wall{cost.cpu:8.2f} s CPU{cost.megabytes:8.0f} MB"
            )
    if "growth" in asked.only:
        told, sizes = figures.growth(folder, scene, asked.sizes, asked.rounds)
        found += _say(told)
    parts: dict[str, Callable[[], Iterator[Figure]]] = {
        "pace": lambda: figures.pace(scene, asked.rounds),
        "ingest": lambda: figures.answer(scene, asked.rounds),
        "nights": lambda: figures.small_nights(scene, asked.nights),
        "year": lambda: figures.look_ups(folder, scene, asked.rows, asked.year),
        "history": lambda: figures.history(folder, scene, asked.rows, asked.year, asked.rounds),
        "s3": lambda: figures.bucket(scene, asked.rounds),
        "cli": lambda: figures.command_line(folder, asked.rounds, asked.runs),
        "repeats": lambda: figures.memory_of_repeats(asked.sizes[-1]),
    }
    for name, part in parts.items():
        if name in asked.only:
            found += _say(part())
    return found, costs, sizes


def _say(told: Iterable[Figure]) -> list[Figure]:
    """Print each figure as it comes."""
    found = []
    for one in told:
        limit = f"{'>=' if one.at_least else '<='} {one.limit:g} {one.unit}"
        print(
            f"{one.name:56}{one.value:9.2f} {one.unit:2}{limit:>12}  {'ok' if one.holds else 'MISSED'}",
            flush=True,
        )
        found.append(one)
    return found


def _plot(sizes: dict[int, Cost]) -> str:
    lines = [
        Line("seconds", [(rows, cost.wall) for rows, cost in sizes.items()]),
        Line("MB at peak", [(rows, cost.megabytes) for rows, cost in sizes.items()]),
    ]
    return draw("cardlink submit: time and memory against rows", lines)


PARTS = ("contest", "growth", "pace", "ingest", "nights", "year", "history", "s3", "cli", "repeats")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="rows of the extract of the contest"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--nights", type=int, default=1000)
    parser.add_argument("--year", type=int, default=30, help="nights that look-ups go through")
    parser.add_argument(
        "--runs", type=int, default=100, help="runs that `status` and others look through"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--out", type=Path, default=Path("dist/bench"), help="folder of bench.json and bench.svg"
    )
    parser.add_argument(
        "--work", type=Path, default=None, help="folder of the extracts; about 4 kB a row at most"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
