"""A year of nights of two issuers who have the same cards: deliveries, submits, refusals settled,
answers, deaths.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import NamedTuple

from flows.runs.keys import extracts
from flows.runs.sealing import Opener
from schemas.manifest import Manifest
from tests.lives.deliveries import Deliverer, Drop, People
from tests.lives.desk import CommandLine, Desk, Output
from tests.lives.partner import Partner
from tests.lives.place import FIRST, Place, Progress
from tests.night import Bench

TRAILER = "trailer = '^TRL\\|([0-9]+)$'\n"
HELD_BACK = re.compile(r"([\d,]+) of ([\d,]+) (?:rows |cards )?already have or await a link")


class Run(NamedTuple):
    """One committed run, the night it was committed, and the line its submit printed, where it
    lived to print it.
    """

    night: int
    manifest: Manifest
    output: str


@dataclass
class Bank:
    """One issuer: who delivers, its partner, and everything that was dropped and committed."""

    deliverer: Deliverer
    bench: Bench
    partner: Partner
    drops: list[Drop] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    dismissed: set[str] = field(default_factory=set)  # SHA-256 of files
    last_submit: Output | None = None  # after the last night

    @property
    def name(self) -> str:
        """The issuer's name."""
        return self.deliverer.issuer


@dataclass
class Year:
    """What happened: the place, the desk, and the banks."""

    place: Place
    people: People
    desk: Desk
    banks: list[Bank] = field(default_factory=list)

    def day(self, night: int) -> date:
        """Return the day of a night."""
        return FIRST + timedelta(days=night * self.place.plan.stride)


@contextmanager
def lived(
    place: Place, more: str = "", source: str = "", on_progress: Progress = lambda _: None
) -> Iterator[Year]:
    """Live through the year and give it after its last night; `more` and `source`: settings of both
    issuers.
    """
    plan = place.plan
    last = FIRST + timedelta(days=(plan.nights + 1) * plan.stride)
    people = People.of(round(plan.nights * plan.rows * 0.7) + 100, last, plan.seed)
    desk = Desk(CommandLine(place), place.reaper.chance)
    with place.wired() as opener:
        year = Year(place, people, desk)
        for issuer in ("north", "south"):
            year.banks.append(_bank(year, issuer, opener, source, more))
        for night in range(plan.nights + 1):
            place.clock.begin_night(night * plan.stride)
            for bank in year.banks:
                _night(year, bank, night)
            place.clock.hour = max(place.clock.hour, 9)
            for bank in year.banks:
                _day(year, bank)
            on_progress(f"{place.clock.day}: {dict(place.reaper.did)}")
        for bank in year.banks:
            bank.last_submit = desk.command_line.give("submit", bank.name)
        yield year


def _bank(year: Year, issuer: str, opener: Opener, source: str, more: str) -> Bank:
    """Configure an issuer; the files of the second have a trailer."""
    trailer = issuer == "south"
    plan = year.place.plan
    settings = year.place.configure(issuer, source=source + TRAILER * trailer, more=more)
    chance = random.Random(f"{plan.seed} {issuer}")
    deliverer = Deliverer(issuer, year.people, plan.rows, chance, trailer)
    bench = Bench(year.place.store, settings, year.place.clock.now)
    return Bank(deliverer, bench, Partner.of(bench, opener, plan.seed, delay=1))


def _night(year: Year, bank: Bank, night: int) -> None:
    """Drop the files of a night (in the last only what is owed), submit, and settle what is
    refused.
    """
    if night == year.place.plan.nights:
        drops = bank.deliverer.owed(night)
    else:
        drops = bank.deliverer.tonight(night, year.place.clock.day)
    for drop in drops:
        year.place.store.replace(extracts(bank.name) + drop.name, [drop.content])
        bank.drops.append(drop)
        year.place.clock.wait()
    text = "\n".join(output.text for output in year.desk.submit(bank.name))
    for manifest in bank.bench.runs.manifests(apart=bank.runs.keys()):
        printed = f"{manifest.run}: {manifest.counts.read:,} read" in text
        bank.runs[manifest.run] = Run(night, manifest, text if printed else "")
    content = {drop.name: hashlib.sha256(drop.content).hexdigest() for drop in bank.drops}
    bank.dismissed |= {content[name] for name in year.desk.dismissed}
    year.desk.dismissed.clear()


def _day(year: Year, bank: Bank) -> None:
    """Upload what waits, bring what the portal answers, and ingest it."""
    bank.partner.take()
    bank.partner.answer()
    year.desk.command_line.give("ingest", bank.name)
