"""The lives as data: their issuers, the portal's habits, what happens when, who acts on what.

Put a new life here, as an entry of `PROFILES`; everything that happens in it is the same engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from tests.lives.manners import WAYS

NONE: Mapping[str, float] = MappingProxyType({})
ALWAYS = MappingProxyType({"whole": 1})
NEVER = MappingProxyType({"none": 1})


class Plan(NamedTuple):
    """How long and how large: nights, rows (of a delta, or of the first portfolio), rows a chunk,
    days between nights, the share of commands that are killed.
    """

    nights: int
    rows: int
    per_chunk: int
    stride: int = 1
    deaths: float = 0.0
    seed: int = 1


class Feed(NamedTuple):
    """What an issuer delivers: a delta or its whole portfolio, and what is wrong with it.

    `nights` and `odd` are decks: how a night's file comes, and which file comes beside it.
    """

    issuer: str
    new: float  # people who come, as a share of a file's rows; of a portfolio's first, each day
    portfolio: bool = False
    # what changes, by share of the rows that come again; in a portfolio of all rows, each day
    changes: Mapping[str, float] = NONE
    unfit: float = 0.06  # of the new rows: their city is missing
    unwanted: float = 0.0  # of the new rows: not eligible
    mended_after: int | None = None  # days until files have the city; None: when it is corrected
    ending: float = 0.0  # of the people: their card ends within the life
    hopeless: float = 0.0  # of the unfit rows nobody can correct
    nights: Mapping[str, int] = ALWAYS
    odd: Mapping[str, int] = NEVER
    trailer: bool = False  # no cut of its files can hide
    source: str = ""  # more lines of [source]
    more: str = ""  # more tables of its settings


class Event(NamedTuple):
    """Something that happens to every issuer in the morning (see `events`)."""

    name: str
    every: int = 0  # days; 0: once, half way
    first: int = 0
    is_late: bool = False  # in the evening, after the operator's work

    def falls_on(self, night: int, plan: Plan) -> bool:
        """Return whether it happens after a night."""
        if not self.every:
            return night == plan.nights // 2
        step = max(1, self.every // plan.stride)
        if self.first >= step:  # by nights, so that what follows another event does so
            step = self.every
        return night % step == self.first


class Profile(NamedTuple):
    """A life: its full size and what may be asked to be otherwise, and everything that is its own.

    `exact`: every answer counts as it is, so that every report must equal the portal's books.
    """

    plan: Plan
    options: tuple[str, ...]
    feeds: tuple[Feed, ...]
    # how chunks are answered: times in a deck
    ways: Mapping[str, int]
    # what the operator reads: what a submit prints, or the worklist
    acts_on: Literal["output", "worklist"]
    exact: bool = False
    are_neighbours: bool = False  # the issuers have the same cardholders
    settling: int = 0  # days after the last night until everything must be settled
    # days after the last night on which a portfolio comes once more, with what waited for an answer
    once_more: int = 0
    delivers: bool = False  # links are delivered every day
    counts_daily: bool = False  # every card of the book is held against the oracle's every day
    overrides: bool = False  # lost rows are sent again by an override, before the decision
    events: tuple[Event, ...] = ()


# what needs no decision but that of rows that never come
HONEST = {"plainly": 13, "late": 3, "two_halves": 1, "whole_later": 2, "holes": 1}
OFTEN = {"plainly": 3, "merged": 2, "swapped": 2}  # the others are in the deck once
EVERY_BAD_HABIT = dict.fromkeys(WAYS, 1) | OFTEN

_YEAR = Feed(
    "north",
    new=0.4,
    changes={"moved": 0.04, "reissued": 0.04, "replaced": 0.02},
    mended_after=0,
    nights={"whole": 5, "cut": 2, "none": 1},
    odd={
        "renamed": 1,
        "changed": 2,
        "reordered": 1,
        "dropped again": 1,
        "second file": 1,
        "none": 2,
    },
)
_TWENTY = Feed("north", new=5 / 6, hopeless=0.3, nights={"whole": 3, "cut": 1}, trailer=True)
_QUARTER = Feed(
    "bank",
    new=0.003,
    portfolio=True,
    changes={"moved": 0.004, "married": 0.001, "reissued": 0.002, "left": 0.002},
    unfit=0.05,
    mended_after=12,
    more="""
[portfolio]
renew_within_days = 7

[retention]
chunks_days = 7
ledger_days = 63
""",
)
_HUNDRED = Feed(
    "north",
    new=0.5,
    changes={
        "moved": 0.05,
        "married": 0.01,
        "reissued": 0.03,
        "replaced": 0.01,
        "deleted": 0.02,
        "spoiled": 0.02,
        "turned": 0.02,
    },
    unwanted=0.05,
    ending=0.03,
    hopeless=0.3,
    nights={"whole": 8, "cut": 1, "none": 1},
    trailer=True,
    more="""
[status]
"service_card.nickname" = { delete = "gone", unknown = "send" }

[eligible]
where = { "service_card.nickname" = { none_of = ["staff"] } }
""",
)
PROFILES = {
    "year": Profile(
        Plan(nights=365, rows=200, per_chunk=50, deaths=0.1),
        Plan._fields,
        feeds=(_YEAR, _YEAR._replace(issuer="south", trailer=True)),
        ways=HONEST,
        acts_on="output",
        exact=True,
        are_neighbours=True,
        settling=1,
    ),
    "twenty": Profile(
        Plan(nights=20, rows=72, per_chunk=12),
        ("nights", "rows", "per_chunk", "seed"),
        feeds=(_TWENTY, _TWENTY._replace(issuer="south", new=1.0, portfolio=True)),
        ways=EVERY_BAD_HABIT,
        acts_on="worklist",
        settling=40,
        delivers=True,
        counts_daily=True,
        events=(Event("hold", 3), Event("cancel", 3, first=2)),
    ),
    "hundred": Profile(
        Plan(nights=100, rows=200, per_chunk=1000, deaths=0.1),
        Plan._fields,
        feeds=(
            _HUNDRED,
            _HUNDRED._replace(
                issuer="south",
                portfolio=True,
                changes={
                    "moved": 0.002,
                    "married": 0.0005,
                    "reissued": 0.001,
                    "replaced": 0.0005,
                    "left": 0.001,
                    "deleted": 0.001,
                    "spoiled": 0.001,
                    "turned": 0.001,
                },
            ),
        ),
        ways=EVERY_BAD_HABIT,
        acts_on="worklist",
        settling=50,
        once_more=12,
        delivers=True,
        counts_daily=True,
        events=(
            Event("hold", 5),
            Event("cancel", 7, first=2),
            Event("back_up", 9, first=3, is_late=True),
            Event("restore", 9, first=4),
            Event("back_up", 9, first=6, is_late=True),
            Event("restore_later", 9, first=7, is_late=True),
        ),
    ),
    "quarter": Profile(
        Plan(nights=90, rows=20_000, per_chunk=1000, deaths=0.15),
        Plan._fields,
        feeds=(_QUARTER,),
        ways=HONEST,
        acts_on="worklist",
        exact=True,
        overrides=True,
        events=(Event("rotate"), Event("renew", 7), Event("purge", 7)),
    ),
}
