"""Kill submits and ingests at every boundary and at random moments, run them again, compare with
the quiet night.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from json import loads
from typing import NamedTuple

from tests.night import Bench
from tests.stores import Place
from tests.torture.crash import AFTER, BEFORE, WITHIN, Crash
from tests.torture.night import BEGIN, EXTRACT, Children, GateFacts
from tests.torture.tally import Tally

MOMENTS = {
    "open": (BEFORE,),  # after a read is before what follows it
    "list": (BEFORE,),
    "create": (BEFORE, AFTER),
    "act": (BEFORE, AFTER),
    "seal": (BEFORE, AFTER),
    "replace": (BEFORE, WITHIN, AFTER),
}


class Kill(NamedTuple):
    """One process to be killed: what it does, and where; without a boundary at a share of the time
    it takes.
    """

    do: str
    crash: Crash | None
    share: float = 0.0


def kill_many(
    night: GateFacts, children: Children, places: Iterator[Place], kills: int, seed: int = 0
) -> Tally:
    """Kill until `kills` processes were killed, at boundaries in turn with random moments."""
    chance = random.Random(seed)
    usual = {do: _undisturbed(night, children, next(places), do) for do in ("submit", "ingest")}
    planned = _planned({do: passed for do, (_, passed) in usual.items()}, chance)
    tally = Tally(f"kills {next(places).kind}")
    covered = set()
    while tally.done.total() < kills:
        kill, place = next(planned), next(places)
        covered |= {(kill.do, *kill.crash[:2])} if kill.crash else set()
        tally.nights += 1
        bench = night.dropped(place) if kill.do == "submit" else night.until_answered(place)
        _kill_again_and_again(children, place, kill, usual[kill.do][0], tally, chance)
        tally.check(str(kill), partial(_losses, night, bench, kill.do, tally))
    tally.ended["different boundaries"] = len(covered)
    return tally


def _kill_again_and_again(
    children: Children, place: Place, kill: Kill, usual: float, tally: Tally, chance: random.Random
) -> None:
    """Kill a process, and now and then its reruns too."""
    for again in range(3):
        if _kill(children, place, kill, usual, BEGIN + again * timedelta(hours=1)):
            tally.done[f"{kill.do} at {'a boundary' if kill.crash else 'a random moment'}"] += 1
        if chance.random() < 0.7:
            return
        kill = Kill(kill.do, None, chance.random())


def _losses(night: GateFacts, bench: Bench, do: str, tally: Tally) -> list[str]:
    """Let the last rerun finish; name what is lost."""
    if do == "ingest":
        return night.report_losses(bench)
    tally.ended[
        "committed before its end" if bench.submit(EXTRACT).already else "finished by a rerun"
    ] += 1
    return night.submit_losses(bench) + night.report_losses(bench)


def _kill(children: Children, place: Place, kill: Kill, usual: float, now: datetime) -> bool:
    process, _ = children.start(kill.do, place, crash=kill.crash, now=now)
    if kill.crash is None:
        time.sleep(kill.share * usual)
        os.kill(process, signal.SIGKILL)
    return children.nursery.wait(process) == -signal.SIGKILL


def _undisturbed(
    night: GateFacts, children: Children, place: Place, do: str
) -> tuple[float, dict[str, int]]:
    """Return how long a child takes when nobody kills it, and how often it passes each boundary."""
    night.dropped(place) if do == "submit" else night.until_answered(place)
    begin = time.monotonic()
    process, answer = children.start(do, place)
    assert children.nursery.wait(process) == 0
    return time.monotonic() - begin, loads(answer.read_text())["passed"]


def _planned(passed: dict[str, dict[str, int]], chance: random.Random) -> Iterator[Kill]:
    """Yield kills for ever: each boundary in turn, and after every second one a random moment."""
    boundaries = [
        (do, boundary, moment, times)
        for do, counts in passed.items()
        for boundary, times in counts.items()
        for moment in MOMENTS[boundary.partition(" ")[0]]
    ]
    while True:
        chance.shuffle(boundaries)
        for number, (do, boundary, moment, times) in enumerate(boundaries):
            yield Kill(
                do, Crash(boundary, moment, chance.choice((1, times, chance.randint(1, times))))
            )
            if number % 2:
                yield Kill(chance.choice(("submit", "submit", "ingest")), None, chance.random())
