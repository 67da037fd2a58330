"""The figures of the bench, each measured side by side with what it is held against."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from flows.submissions.duplicates import BLOCK, Table
from tests.bench.growth import grown
from tests.bench.measure import (
    Contender,
    Cost,
    cost_of,
    cpu_ratio,
    middle,
    ratio,
    side_by_side,
)
from tests.bench.nights import make_nights
from tests.bench.scene import BANK, CARDLINK, Scene, make_scene, write_toml
from tests.bench.year import make_year, submit_next
from tests.servers import moto

OURS, OURS_PLAIN, FLOOR = "cardlink submit", "cardlink submit, compression none", "floor"
SHELL, SCRIPT = "shell loop", "straightforward script"
HERE = Path(__file__).parent
PACE = 2.6  # 2.5 was measured at 200,000 rows, with a noise of 0.1


class Figure(NamedTuple):
    """One line of the table: what was measured, its value, and the limit it is held to."""

    name: str
    value: float
    limit: float
    at_least: bool = False
    unit: str = "x"

    @property
    def holds(self) -> bool:
        """Whether the limit is kept."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def pace(scene: Scene, rounds: int) -> Iterator[Figure]:
    """Measure the CPU of the submit against that of the shell: quick, and it hardly depends on what
    else the machine does.
    """
    out = scene.folder / "out"
    start = [str(scene.folder / "portal.asc"), str(scene.extract), str(out)]
    shell = Contender(SHELL, lambda: scene.put_aside(out), [str(HERE / "shell.sh"), *start])
    costs = side_by_side([scene.submit(OURS), shell], rounds)
    yield Figure("submit / shell loop, CPU", cpu_ratio(costs, OURS, SHELL), PACE)


def contest(scene: Scene, rounds: int) -> tuple[list[Figure], dict[str, Cost]]:
    """Measure the submit against the shell, the script and the floor."""
    out, start = (
        scene.folder / "out",
        [str(scene.folder / "portal.asc"), str(scene.extract), str(scene.folder / "out")],
    )

    def clear() -> None:
        scene.clear()
        scene.put_aside(out)

    costs = side_by_side(
        [
            scene.submit(OURS),
            Contender(SHELL, clear, [str(HERE / "shell.sh"), *start]),
            scene.submit(OURS_PLAIN, compression="none"),
            Contender(SCRIPT, clear, [sys.executable, "-m", "tests.bench.script", *start]),
            Contender(
                FLOOR, clear, [sys.executable, "-m", "tests.bench.floor", str(scene.extract)]
            ),
        ],
        rounds,
    )
    figures = [
        Figure("shell loop / submit", ratio(costs, SHELL, OURS), 1.4, at_least=True),
        Figure("straightforward script / submit", ratio(costs, SCRIPT, OURS), 3.5, at_least=True),
        Figure("peak memory of that submit", middle(costs[OURS]).megabytes, 400, unit="MB"),
        Figure("submit / floor", ratio(costs, OURS, FLOOR), 4),
        Figure("submit without compression / floor", ratio(costs, OURS_PLAIN, FLOOR), 3),
    ]
    return figures, {name: middle(found) for name, found in costs.items()}


def growth(
    folder: Path, scene: Scene, sizes: list[int], rounds: int
) -> tuple[list[Figure], dict[int, Cost]]:
    """Measure time and memory of the submit at each size, the smallest first."""
    costs = {}
    for rows in sizes:
        one = make_scene(folder / f"rows-{rows}", rows, scene.key)
        costs[rows] = middle(
            [cost_of(one.submit()) for _ in range(rounds if rows <= 1_000_000 else 1)]
        )
        shutil.rmtree(one.folder)
    small, large = costs[sizes[-2]], costs[sizes[-1]]
    told = f"{sizes[-1]:,} rows against {sizes[-2]:,}"
    return [
        Figure(
            "peak memory of the submit",
            max(cost.megabytes for cost in costs.values()),
            560,
            unit="MB",
        ),
        Figure(f"peak memory, {told}", large.megabytes / small.megabytes, 1.15),
        Figure(f"time per row, {told}", large.wall / sizes[-1] / (small.wall / sizes[-2]), 1.1),
    ], costs


def answer(scene: Scene, rounds: int) -> Iterator[Figure]:
    """Measure the ingest of every chunk's result, 5% of the rows errors, against the submit of
    those rows.
    """
    config = [CARDLINK, "--config", str(scene.folder)]
    secret = str(scene.folder / "secret.asc")
    ratios, peaks = [], []
    for _ in range(rounds):
        submitted = cost_of(scene.submit())
        subprocess.run(
            [*config, "simulate", BANK, "--secret-key", secret, "--fail", "0.05"],
            check=True,
            capture_output=True,
        )
        taken = cost_of(Contender("ingest", lambda: None, [*config, "ingest", BANK]))
        ratios.append(taken.wall / submitted.wall)
        peaks.append(taken.megabytes)
    yield Figure("ingest / submit", median(ratios), 1.2)
    yield Figure("peak memory of the ingest", max(peaks), 600, unit="MB")


def small_nights(scene: Scene, nights: int) -> Iterator[Figure]:
    """Measure many nights of 500 rows in one process."""
    make_nights(scene, nights)
    command = [sys.executable, "-m", "tests.bench.nights", str(scene.folder)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    yield Figure(f"a night of 500 rows, mean of {nights}", float(said), 100, unit="ms")


def look_ups(folder: Path, scene: Scene, rows: int, nights: int) -> Iterator[Figure]:
    """Measure what asking many nights costs, against the submit of the next night; both keep every
    core busy.
    """
    year, extract = make_year(folder, scene, rows, nights)
    words = [sys.executable, "-m", "tests.bench.year", str(year.folder), str(extract)]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    looked, asked, megabytes = map(float, said.split())
    submitted = cost_of(Contender("next", lambda: None, submit_next(year)))
    yield Figure(
        f"look-ups over {nights} nights / submit, CPU", (looked + asked) / submitted.cpu, 0.2
    )
    yield Figure("peak memory of the look-ups", megabytes, 600, unit="MB")


def history(folder: Path, scene: Scene, rows: int, nights: int, rounds: int) -> Iterator[Figure]:
    """Measure a submit of cards that are all new, with as many known ones in so many nights behind
    it, and with none.
    """
    year, extract = make_year(folder / "history", scene, rows, nights)
    new = make_scene(folder / "new", rows, scene.key, seed=2)
    bank, kept = year.folder / "store" / BANK, folder / "kept"
    shutil.copytree(bank, kept, copy_function=os.link)

    def clear() -> None:
        year.put_aside(bank)
        shutil.copytree(kept, bank, copy_function=os.link)
        extract.unlink()
        shutil.copyfile(new.extract, extract)

    behind = Contender("year", clear, submit_next(year))
    costs = side_by_side([new.submit("none"), behind], rounds)
    without, years = middle(costs["none"]), middle(costs["year"])
    told = f"submit with {nights} nights behind it / with none"
    yield Figure(f"{told}, CPU", years.cpu / without.cpu, 1.1)
    yield Figure(told, ratio(costs, "year", "none"), 1.2)
    yield Figure(f"{told}, peak memory", years.megabytes / without.megabytes, 1.3)


def bucket(scene: Scene, rounds: int) -> Iterator[Figure]:
    """Measure the submit to a local S3 server, less the server's own CPU time, against the
    directory.
    """
    spent = []
    with moto() as server:
        prefix = iter(range(rounds))

        def clear() -> None:
            where = f"bank-{next(prefix)}"
            scene.configure(root=f"s3://{server.bucket}/{where}")
            key = f"s3://{server.bucket}/{where}/{BANK}/extracts/{scene.extract.name}"
            _upload(scene.extract, key, server.environment)
            spent.append(-_cpu_of(server.process))

        command = [CARDLINK, "--config", str(scene.folder), "submit", BANK]
        for _ in range(rounds):
            there = cost_of(Contender("s3", clear, command, server.environment)).wall
            spent[-1] += _cpu_of(server.process)
            spent[-1] = (there - spent[-1]) / cost_of(scene.submit()).wall
    yield Figure(
        "submit to S3, less the server's CPU / to a directory", sorted(spent)[len(spent) // 2], 1.5
    )


def command_line(folder: Path, rounds: int, many: int) -> Iterator[Figure]:
    """Measure `--help`, and what an operator asks of a store of so many small runs with 50 result
    files that do not fit. `make bench-growth` has more of it.
    """
    runs = folder / "runs"
    key = grown(runs / "store", many).key
    (runs / "portal.asc").write_bytes(key.public)
    write_toml(runs, BANK, key)
    for number in range(50):
        junk = runs / "store" / BANK / "results" / f"junk-{number:02}.csv"
        junk.write_bytes(b"cuid,last_4,url,expiration_date,error\n,,,,%d\n" % number)
    config = [CARDLINK, "--config", str(runs)]
    subprocess.run([*config, "ingest", BANK], check=False, capture_output=True)
    asked = {
        "--help": 0.2, "status": 1, f"ingest {BANK}": 1, f"upload {BANK}": 3,
        f"worklist {BANK}": 3, f"reconcile {BANK}": 3,
    }  # fmt: skip
    for words, limit in asked.items():
        contender = Contender(words, lambda: None, [*config, *words.split()])
        wall = middle([cost_of(contender) for _ in range(2 * rounds + 1)]).wall
        of = "" if words == "--help" else f" of {many:,} runs"
        yield Figure(f"cardlink {words.removesuffix(f' {BANK}')}{of}", wall, limit, unit="s")


def memory_of_repeats(rows: int) -> Iterator[Figure]:
    """Measure what telling repeats apart takes of memory, by filling the real table."""
    table, random = Table(rows), np.random.default_rng(0)
    for _ in range(0, rows, BLOCK):
        table.add(
            random.integers(1 << 16, 1 << 63, BLOCK, np.uint64),
            random.integers(0, 1 << 32, BLOCK, np.uint32),
        )
    yield Figure(
        f"telling {rows:,} rows apart, bytes a row",
        (table._keys.nbytes + table._tags.nbytes) / rows,
        16,
        unit="B",
    )


def _upload(file: Path, url: str, environment: dict[str, str]) -> None:
    words = [sys.executable, "-m", "tests.bench.upload", str(file), url]
    subprocess.run(words, check=True, env={**os.environ, **environment})


def _cpu_of(process: int) -> float:
    """Return the CPU seconds a running process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
