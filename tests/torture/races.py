"""Let two to four processes submit one extract at once: one commit, and the rows of the quiet
night.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from json import loads

from tests.night import Bench
from tests.stores import Place
from tests.torture.night import BEGIN, EXTRACT, Children, GateFacts
from tests.torture.tally import Tally

REPORTED = {"committed", "already", "ClaimedError", "LeaseLostError"}


def race_many(
    night: GateFacts, children: Children, places: Iterator[Place], races: int, seed: int = 0
) -> Tally:
    """Race `races` times; in every second race each process believes that the others' claims have
    run out.
    """
    chance = random.Random(seed)
    tally = Tally(f"races {next(places).kind}")
    for number in range(races):
        place = next(places)
        bench = night.dropped(place)
        runners, apart = chance.randint(2, 4), timedelta(hours=number % 2)
        started = [
            children.start("submit", place, now=BEGIN + at * apart, actor=f"runner:{at}")
            for at in range(runners)
        ]
        codes = [children.nursery.wait(process) for process, _ in started]
        told = (
            Counter(loads(answer.read_text())["told"] for _, answer in started)
            if not any(codes)
            else Counter()
        )
        tally.nights += 1
        tally.done[f"{runners} processes {'that ignore claims' if apart else 'with claims'}"] += 1
        tally.ended += told
        tally.check(f"race {number}", partial(_losses, night, bench, told))
    return tally


def _losses(night: GateFacts, bench: Bench, told: Counter[str]) -> list[str]:
    """Name what a race broke: told by its processes, or seen in the store after one more run."""
    found = [
        f"{count} processes were told {what}"
        for what, count in told.items()
        if what not in REPORTED
    ]
    if told["committed"] != 1:
        found.append(f"{told['committed']} processes committed")
    if not bench.submit(EXTRACT).already:
        found.append("nothing was committed")
    return found + night.submit_losses(bench) + night.report_losses(bench)
