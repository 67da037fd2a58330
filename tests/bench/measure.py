"""Runs one command as a child and says what it cost: wall seconds, CPU seconds, and the largest
process's memory.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

# As where nights run: without the test tools, and with modules that were compiled once.
AS_INSTALLED = {
    "PYTHONPATH": str(Path(__file__).parent / "installed"),
    "PYTHONDONTWRITEBYTECODE": "",
}


class Cost(NamedTuple):
    """What a command took, its children included; `megabytes` is the peak of its largest single
    process.

    A child's peak begins at the bench's own, about 150 MB: below that it says nothing.
    """

    wall: float
    cpu: float
    megabytes: float


class Contender(NamedTuple):
    """One way of doing the work: what clears the ground before each round, and the command."""

    name: str
    clear: Callable[[], object]
    command: Sequence[str]
    environment: Mapping[str, str] = {}


def cost_of(contender: Contender) -> Cost:
    """Run a contender once; CalledProcessError where it does not end well, with what it said."""
    contender.clear()
    os.sync()  # what the one before left unwritten is not paid by this one
    start = time.perf_counter()
    with subprocess.Popen(
        contender.command,
        env={**os.environ, **AS_INSTALLED, **contender.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - start
    if process.returncode:
        error = subprocess.CalledProcessError(
            process.returncode, contender.command, stderr=said[-2000:]
        )
        error.add_note(said[-2000:].decode(errors="replace"))
        raise error
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def side_by_side(contenders: Sequence[Contender], rounds: int) -> dict[str, list[Cost]]:
    """Run all contenders in turn, round after round, so that a busy minute falls on all of them
    alike.
    """
    costs: dict[str, list[Cost]] = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            costs[contender.name].append(cost_of(contender))
    return costs


def middle(costs: Sequence[Cost]) -> Cost:
    """Return the median of each figure."""
    return Cost(*(median(column) for column in zip(*costs, strict=True)))


def ratio(costs: Mapping[str, Sequence[Cost]], of: str, to: str) -> float:
    """Return the median over the rounds of one contender's wall time against another's of the same
    round.
    """
    pairs = zip(costs[of], costs[to], strict=True)
    return median(one.wall / other.wall for one, other in pairs)


def cpu_ratio(costs: Mapping[str, Sequence[Cost]], of: str, to: str) -> float:
    """Return the same of CPU seconds, which means nearly the same on a busy machine."""
    pairs = zip(costs[of], costs[to], strict=True)
    return median(one.cpu / other.cpu for one, other in pairs)


def machine() -> dict[str, Any]:
    """Return what the figures were measured on, and how busy it was with other things."""
    with Path("/proc/cpuinfo").open() as file:
        models = {line.partition(":")[2].strip() for line in file if line.startswith("model name")}
    return {
        "cores": os.cpu_count(),
        "model": ", ".join(sorted(models)) or platform.machine(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "system": platform.platform(),
    }
