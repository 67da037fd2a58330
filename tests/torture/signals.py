"""Send stop signals to commands at every boundary and at random moments, run them again, compare
with quiet ones.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from flows.runs.keys import keys_of
from flows.stopping import SIGNALS
from tests.night import BANK, Bench
from tests.stores import Place
from tests.torture.crash import AFTER, BEFORE, Crash
from tests.torture.night import Children, GateFacts
from tests.torture.tally import Tally

DONE, AGAIN = 0, 75
COUNTS = (
    "/chunks/",
    "/ledger/",
    "/report/",
    "/delivered/",
)  # parts of the keys that make a difference


class Ended(NamedTuple):
    """How a command ended: its exit code, what it said on stderr, the boundaries it passed, and its
    seconds.
    """

    code: int
    said: list[str]
    passed: dict[str, int]
    seconds: float


class Plan(NamedTuple):
    """One signal: to which command, at which boundary, or without one at a share of the time that
    it takes.
    """

    command: str
    number: int
    crash: Crash | None
    share: float


def commands(night: GateFacts) -> dict[str, list[str]]:
    """Return the commands that are stopped, by name: those that write much, little and nothing."""
    run = night.run
    summary = json.loads(night.reported.objects[keys_of(run).report("summary.json")])
    errors = str(summary["rows"]["error"])
    return {
        "submit": ["submit", BANK],
        "ingest": ["ingest", BANK],
        "resubmit": ["resubmit", run, "--errors", "--rows", errors, "--reason", "test"],
        "upload": ["upload", run, "--done"],
        "check": ["check", BANK],
        "reconcile": ["reconcile", BANK],
        "worklist": ["worklist", "--all"],
    }


def signal_many(
    night: GateFacts, children: Children, places: Iterator[Place], signals: int, seed: int = 0
) -> Tally:
    """Send signals until so many commands have got one, at boundaries in turn with random
    moments.
    """
    chance = random.Random(seed)
    tally = Tally(f"signals {next(places).kind}")
    quiet: dict[str, tuple[Ended, set[str]]] = {}
    while tally.done.total() < signals:
        command = chance.choice((*commands(night), "submit", "ingest"))
        if command not in quiet:
            place = next(places)
            bench = _staged(night, place, command)
            quiet[command] = _ended(children, place, night, command), _kept(bench)
        usual, kept = quiet[command]
        place = next(places)
        bench, plan = _staged(night, place, command), _planned(command, usual, chance)
        ended, homes = _stopped(children, place, night, plan, usual, chance)
        tally.nights += 1
        tally.done[f"{command} at {'a boundary' if plan.crash else 'a random moment'}"] += 1
        tally.ended[_outcome(ended, plan)] += 1
        tally.check(str(plan), partial(_wrong, ended, plan, homes))
        again = _ended(children, place, night, command)
        tally.check(f"{plan}, again", partial(_losses, night, bench, command, (usual, again), kept))
    return tally


def _staged(night: GateFacts, place: Place, command: str) -> Bench:
    if command in ("submit", "ingest", "check"):
        return night.until_answered(place) if command == "ingest" else night.dropped(place)
    return night.until_reported(place)


def _planned(command: str, usual: Ended, chance: random.Random) -> Plan:
    number, crash = chance.choice(SIGNALS), None
    if usual.passed and chance.random() < 0.5:
        boundary = chance.choice(sorted(usual.passed))
        crash = Crash(
            boundary,
            chance.choice((BEFORE, AFTER)),
            chance.randint(1, usual.passed[boundary]),
            number,
        )
    return Plan(command, number, crash, chance.random())


def _stopped(
    children: Children,
    place: Place,
    night: GateFacts,
    plan: Plan,
    usual: Ended,
    chance: random.Random,
) -> tuple[Ended, list[Path]]:
    """Start a command, stop it, now and then twice; return how it ended and the gpg homes that it
    left.
    """
    process, folder = children.command(commands(night)[plan.command], place, crash=plan.crash)
    began = time.monotonic()
    if plan.crash is None:
        time.sleep(plan.share * usual.seconds)
        began = time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(process, plan.number)
            if chance.random() < 0.3:
                time.sleep(chance.random() * 0.2)
                os.kill(process, chance.choice(SIGNALS))
    code = children.nursery.wait(process)
    ended = Ended(code, _said(folder), {}, time.monotonic() - began)
    return ended, [
        home
        for root in ("/dev/shm", "/tmp")
        for home in Path(root).glob(f"cardlink-gpg-{process}-*")
    ]


def _ended(children: Children, place: Place, night: GateFacts, command: str) -> Ended:
    process, folder = children.command(commands(night)[command], place)
    began = time.monotonic()
    code = children.nursery.wait(process)
    return Ended(code, _said(folder), children.passed(folder), time.monotonic() - began)


def _said(folder: Path) -> list[str]:
    said = folder / "stderr"  # not there where a signal came first
    return said.read_text().splitlines() if said.exists() else []


def _outcome(ended: Ended, plan: Plan) -> str:
    names = {
        DONE: "done",
        AGAIN: "75",
        -plan.number: f"ended by {signal.Signals(plan.number).name} before it began",
    }
    return names.get(ended.code, f"exit {ended.code}")


def _wrong(ended: Ended, plan: Plan, homes: list[Path]) -> list[str]:
    """Name what a stopped command did wrong."""
    found = [f"a gpg home after {ended.seconds:.0f} s: {home}" for home in homes]
    if ended.code not in (DONE, AGAIN, -plan.number):
        found.append(f"exit code {ended.code}: {ended.said[-3:]}")
    if any(line.startswith(("Traceback", "Exception ignored")) for line in ended.said):
        found.append(f"a traceback: {ended.said[-3:]}")
    if ended.code == AGAIN and ["cardlink: Stopped by"] != [line[:20] for line in ended.said]:
        found.append(f"not one sentence: {ended.said}")
    return found


def _losses(
    night: GateFacts, bench: Bench, command: str, ran: tuple[Ended, Ended], kept: set[str]
) -> list[str]:
    """Name what differs after the rerun."""
    usual, again = ran
    if again.code != usual.code:
        return [f"the rerun ended with {again.code}: {again.said[-2:]}"]
    found = []
    if _kept(bench) != kept:
        found.append(f"other objects: {sorted(_kept(bench) ^ kept)[:3]}")
    if command == "submit":
        found += night.submit_losses(bench)
    return found + (night.report_losses(bench) if command in ("submit", "ingest") else [])


def _kept(bench: Bench) -> set[str]:
    """Return the keys of the objects that make a difference."""
    return {
        entry.key for entry in bench.store.keys("") if any(part in entry.key for part in COUNTS)
    }
