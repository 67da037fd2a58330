"""A year of nights of two issuers who have the same cards: deliveries, submits, refusals settled,
answers, deaths.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from flows import wiring
from flows.adapters.gpg_opener import GpgOpener
from flows.configuration import load_issuer
from flows.runs.keys import extracts
from flows.runs.sealing import Opener
from flows.runs.stored_run import StoredRun
from flows.simulator.portal import Portal
from schemas.manifest import Manifest
from schemas.portal import MONTH, PAN, YEAR
from tests import keys
from tests.night import Bench
from tests.quarter.life import FIRST
from tests.quarter.mortal import MortalStore, Reaper
from tests.quarter.partner import Keyring, Partner
from tests.year.deliveries import Card, Deliverer, Drop, People
from tests.year.desk import Desk, Said

TRAILER = "trailer = '^TRL\\|([0-9]+)$'\n"
TOML = """\
issuer = "{issuer}"
root = "store"
test = true

[source]
{source}
[limits]
max_reject_rate = 1.0
max_row_jump = 1000.0
max_error_rate = 1.0

[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
rows_per_chunk = {per_chunk}
{more}"""
TOLD = re.compile(r"([\d,]+) of ([\d,]+) (?:rows |cards )?already have or await a link")


class Plan(NamedTuple):
    """How long and how large: nights, days between them, rows a file, rows a chunk, the share of
    steps killed.
    """

    nights: int = 365
    stride: int = 1
    rows: int = 200
    per_chunk: int = 50
    deaths: float = 0.1
    seed: int = 1


class Sent(NamedTuple):
    """One row as the partner opened it."""

    night: int
    run: str
    chunk: str
    position: int
    card: Card


class Run(NamedTuple):
    """One committed run, the night it was committed, and the line its submit printed, where it
    lived to print it.
    """

    night: int
    manifest: Manifest
    told: str


class Recording:
    """An opener that keeps what it opened, in order."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self.opened: list[bytes] = []

    def open(self, message: bytes, limit: int) -> bytes:
        """Open a message and keep its content."""
        self.opened.append(self._opener.open(message, limit))
        return self.opened[-1]


@dataclass
class Bank:
    """One issuer: who delivers, its partner, and everything that was dropped, committed, sent and
    answered.
    """

    deliverer: Deliverer
    bench: Bench
    partner: Partner
    reader: Recording
    drops: list[Drop] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    # the night before which a row was answered
    answered: dict[tuple[str, int], int] = field(default_factory=dict)
    dismissed: set[str] = field(default_factory=set)  # SHA-256 of files
    last_word: Said | None = None

    @property
    def name(self) -> str:
        """The issuer's name."""
        return self.deliverer.issuer


@dataclass
class Year:
    """What happened: the plan, the banks, the desk, and the clock."""

    plan: Plan
    people: People
    desk: Desk
    banks: list[Bank] = field(default_factory=list)
    day: date = FIRST
    hour: float = 0.0

    def now(self) -> datetime:
        """Return the moment by the year's clock."""
        return datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC) + timedelta(
            hours=self.hour
        )

    def wait(self) -> None:
        """Let an hour go by."""
        self.hour += 1

    @property
    def did(self) -> Counter[str]:
        """What was done how often, and what was killed."""
        return self.desk.reaper.did


@contextmanager
def lived(
    folder: Path,
    plan: Plan,
    more: str = "",
    source: str = "",
    on_progress: Callable[[str], None] = lambda _: None,
) -> Iterator[Year]:
    """Live through the year and give it after its last night; `more` and `source`: settings of both
    issuers.
    """
    (folder / "store").mkdir(parents=True)
    clock: list[Year] = []
    store = MortalStore(folder / "store", lambda: clock[0].now())
    with GpgOpener([keys.sound().secret]) as opener, pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "now", lambda: clock[0].now())
        patch.setattr(wiring, "open_store", lambda *_: store)
        patch.setattr(wiring, "actor", lambda: "operator@desk:1")
        clock.append(_begin(folder, plan, store))
        for issuer in ("north", "south"):
            clock[0].banks.append(_bank(clock[0], issuer, store, opener, source, more))
        for night in range(plan.nights + 1):
            clock[0].day, clock[0].hour = FIRST + timedelta(days=night * plan.stride), 1.5
            for bank in clock[0].banks:  # in the last night only what is owed comes
                owed = bank.deliverer.owed(night) if night == plan.nights else None
                _night(
                    clock[0],
                    bank,
                    night,
                    bank.deliverer.tonight(night, clock[0].day) if owed is None else owed,
                )
            clock[0].hour = max(clock[0].hour, 9)
            for bank in clock[0].banks:
                _day(clock[0], bank, night)
            on_progress(f"{clock[0].day}: {dict(clock[0].did)}")
        for bank in clock[0].banks:
            bank.last_word = clock[0].desk.give("submit", bank.name)
        yield clock[0]


def _begin(folder: Path, plan: Plan, store: MortalStore) -> Year:
    last = FIRST + timedelta(days=(plan.nights + 1) * plan.stride)
    people = People.of(round(plan.nights * plan.rows * 0.7) + 100, last, plan.seed)
    chance = random.Random(plan.seed)
    year: list[Year] = []
    reaper = Reaper(store, chance, plan.deaths, lambda: year[0].wait())
    year.append(Year(plan, people, Desk(folder, reaper, chance)))
    return year[0]


def _bank(
    year: Year, issuer: str, store: MortalStore, opener: Opener, source: str, more: str
) -> Bank:
    """Configure an issuer; the files of the second have a trailer."""
    trailer, folder, plan = issuer == "south", year.desk.folder, year.plan
    text = TOML.format(
        issuer=issuer,
        source=source + TRAILER * trailer,
        fingerprint=keys.sound().fingerprint,
        per_chunk=plan.per_chunk,
        more=more,
    )
    (folder / f"{issuer}.toml").write_text(text)
    (folder / "portal.asc").write_bytes(keys.sound().public)
    reader = Recording(opener)
    keyring = Keyring([reader])
    portal = Portal(keyring, today=FIRST, fail_share=0.04, seed=plan.seed)
    deliverer = Deliverer(
        issuer, year.people, plan.rows, random.Random(f"{plan.seed} {issuer}"), trailer
    )
    bench = Bench(store, load_issuer(folder, issuer), year.now)
    return Bank(deliverer, bench, Partner(portal, keyring, delay=1), reader)


def _night(year: Year, bank: Bank, night: int, drops: list[Drop]) -> None:
    """Drop the files of a night, submit, and settle what is refused."""
    for drop in drops:
        bank.bench.store.replace(extracts(bank.name) + drop.name, [drop.content])
        bank.drops.append(drop)
        year.wait()
    said = year.desk.submit(bank.name)
    text = "\n".join(one.text for one in said)
    for run in _new_runs(year, bank):
        bank.runs[run.run] = Run(
            night, run, text if f"{run.run}: {run.counts.read:,} read" in text else ""
        )
    content = {drop.name: hashlib.sha256(drop.content).hexdigest() for drop in bank.drops}
    bank.dismissed |= {content[name] for name in year.desk.dismissed}
    year.desk.dismissed.clear()


def _new_runs(year: Year, bank: Bank) -> list[Manifest]:
    runs = year.desk.folder / "store" / bank.name / "runs"
    new = sorted({one.name for one in runs.iterdir()} - bank.runs.keys()) if runs.exists() else []
    found = (StoredRun.by_id(bank.bench.store, run).manifest for run in new)
    return [manifest for manifest in found if manifest is not None]


def _day(year: Year, bank: Bank, night: int) -> None:
    """Upload what waits, read what the portal opened, bring what it answers, and ingest it."""
    uploads, opened = len(bank.partner.portal.books), len(bank.reader.opened)
    bank.partner.take(bank.bench, year.day)
    for upload, plain in zip(
        bank.partner.portal.books[uploads:], bank.reader.opened[opened:], strict=True
    ):
        run = upload.name.partition(".")[0][:-6]
        rows = (
            pl.read_csv(BytesIO(plain), infer_schema=False)
            .select(PAN, pl.col(YEAR) + pl.col(MONTH))
            .rows()
        )
        bank.sent += [
            Sent(night, run, upload.name, at, Card(*row)) for at, row in enumerate(rows, 1)
        ]
    bank.partner.answer(bank.bench, year.day)
    year.desk.give("ingest", bank.name)
    bank.answered |= dict.fromkeys(bank.partner.delivered.keys() - bank.answered.keys(), night + 1)
