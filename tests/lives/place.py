"""Where a life goes on: its plan, clock and store, the issuers' settings, and the wiring of the
command line to them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from flows import wiring
from flows.adapters.gpg_opener import GpgOpener
from flows.commands import outbox as outbox_commands
from flows.commands import overview, trace
from flows.configuration import load_issuer
from flows.runs.sealing import Opener
from schemas.issuer import Issuer
from tests import keys
from tests.lives.mortal import MortalStore, Reaper

FIRST = date(2026, 8, 24)
TOML = """\
issuer = "{issuer}"
root = "store"
test = true
full_portfolio = {portfolio}

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
Progress = Callable[[str], None]


class Plan(NamedTuple):
    """How long and how large: nights, rows (of a file, of new people a night, or of the town), rows
    a chunk, days between nights, the share of steps that are killed.
    """

    nights: int
    rows: int
    per_chunk: int
    stride: int = 1
    deaths: float = 0.0
    seed: int = 1


@dataclass
class Clock:
    """The clock of a life."""

    day: date = FIRST
    hour: float = 0.0

    def now(self) -> datetime:
        """Return the moment."""
        return datetime.combine(self.day, time(), UTC) + timedelta(hours=self.hour)

    def wait(self, hours: float = 1) -> None:
        """Let an hour go by."""
        self.hour += hours

    def begin_night(self, days: int) -> None:
        """Begin the night so many days after the first."""
        self.day = FIRST + timedelta(days=days)
        self.hour = 1.5


@dataclass
class Place:
    """A folder with a store whose process can be killed, and the clock of everything in it."""

    folder: Path
    plan: Plan
    clock: Clock = field(default_factory=Clock)
    store: MortalStore = field(init=False)
    reaper: Reaper = field(init=False)

    def __post_init__(self) -> None:
        (self.folder / "store").mkdir(parents=True)
        self.store = MortalStore(self.folder / "store", self.clock.now)
        chance = random.Random(self.plan.seed)
        self.reaper = Reaper(self.store, chance, self.plan.deaths, self.clock.wait)

    @contextmanager
    def wired(self) -> Iterator[Opener]:
        """Connect the command line to this store and clock; give what opens chunks."""
        with GpgOpener([keys.sound().secret]) as opener, pytest.MonkeyPatch.context() as patch:
            for module in (wiring, outbox_commands, overview, trace):
                patch.setattr(module, "now", self.clock.now)
            patch.setattr(wiring, "open_store", lambda *_: self.store)
            patch.setattr(wiring, "actor", lambda: "operator@desk:1")
            yield opener

    def configure(
        self, issuer: str, *, portfolio: bool = False, source: str = "", more: str = ""
    ) -> Issuer:
        """Write and return an issuer's settings; `source` and `more` are lines of its file."""
        text = TOML.format(
            issuer=issuer,
            portfolio=str(portfolio).lower(),
            source=source,
            fingerprint=keys.sound().fingerprint,
            per_chunk=self.plan.per_chunk,
            more=more,
        )
        (self.folder / f"{issuer}.toml").write_text(text)
        (self.folder / "portal.asc").write_bytes(keys.sound().public)
        return load_issuer(self.folder, issuer)
