"""Where a life goes on: its plan, clock and store, the issuers' settings, and the wiring of the
command line to them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from flows import wiring
from flows.adapters.gpg_opener import GpgOpener
from flows.commands import outbox as outbox_commands
from flows.commands import trace, worklist
from flows.extensions.simulator.portal_key import PortalKey
from flows.runs import threads
from flows.runs.adapters import Adapters
from flows.runs.sealing import Opener
from tests import keys
from tests.lives.mortal import MortalDatabase, MortalStore, Reaper
from tests.lives.profile import Feed, Plan
from tests.night import edges

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
TRAILER = "trailer = '^TRL\\|([0-9]+)$'\n"
KEYS = (1, 2)
Progress = Callable[[str], None]
P = ParamSpec("P")
T = TypeVar("T")


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

    def begin_morning(self) -> None:
        """Begin the morning: later than whatever the night did, so that no night knew its answers.

        Where commands are killed, a night can outlast nine o'clock.
        """
        self.hour = max(self.hour + 0.25, 9)


@dataclass
class Place:
    """A folder with a store and a database whose process can be killed, and the clock of everything
    in it.
    """

    folder: Path
    plan: Plan
    clock: Clock = field(default_factory=Clock)
    store: MortalStore = field(init=False)
    database: MortalDatabase = field(init=False)
    reaper: Reaper = field(init=False)

    def __post_init__(self) -> None:
        (self.folder / "store").mkdir(parents=True)
        self.store = MortalStore(self.folder / "store", self.clock.now)
        self.database = MortalDatabase(wiring.open_database(self.folder), self.store)
        chance = random.Random(self.plan.seed)
        self.reaper = Reaper(self.store, chance, self.plan.deaths, self.clock.wait)

    @property
    def adapters(self) -> Adapters:
        """Its store and database, for who looks at them from outside."""
        return edges(self.store, self.database)

    @contextmanager
    def wired(self) -> Iterator[list[Opener]]:
        """Connect the command line to this store and clock; give what opens chunks sealed to the
        first key, and to the second.
        """
        with ExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for module in (wiring, outbox_commands, trace, worklist):
                patch.setattr(module, "now", self.clock.now)
            # a kill falls on the same operation of every life of a seed, and no thread costs time
            patch.setattr(threads, "ThreadPoolExecutor", _InTurn)
            patch.setattr(wiring, "open_store", lambda *_: self.store)
            patch.setattr(wiring, "open_database", lambda *_: self.database)
            patch.setattr(wiring, "actor", lambda: "operator@desk:1")
            yield [stack.enter_context(GpgOpener([key.secret])) for key in map(key_of, KEYS)]

    def configure(self, feed: Feed, key: int = 1) -> None:
        """Write an issuer's settings, and the key of its portal."""
        text = TOML.format(
            issuer=feed.issuer,
            portfolio=str(feed.portfolio).lower(),
            source=feed.source + TRAILER * feed.trailer,
            fingerprint=key_of(key).fingerprint,
            per_chunk=self.plan.per_chunk,
            more=feed.more,
        )
        (self.folder / f"{feed.issuer}.toml").write_text(text)
        (self.folder / "portal.asc").write_bytes(key_of(key).public)


class _InTurn(Executor):
    """Does everything at once, in the thread of the one who submits it."""

    def __init__(self, *_: object) -> None:
        """Take the arguments of a pool of threads."""

    def submit(self, act: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Return what was done."""
        done = Future[T]()
        try:
            done.set_result(act(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 # whoever asks for the result has it
            done.set_exception(error)
        return done


def key_of(number: int) -> PortalKey:
    """Return the portal's first key, or its second."""
    return keys.sound(copy=number)
