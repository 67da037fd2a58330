"""The cardholders of an issuer: who they are, and how their rows change from file to file."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property
from io import BytesIO
from typing import NamedTuple

import polars as pl

from flows.extensions.simulator.extract import write_sample
from schemas.portal import (
    ADDRESS1,
    CITY,
    CUID,
    LAST_NAME,
    MONTH,
    NICKNAME,
    PAN,
    POSTAL_CODE,
    YEAR,
)
from tests.lives.profile import Feed

RECENT = 0.5  # of the rows that come again in a delta stood in one of the last files
ODD_CUID = 0.3  # of the cuids have an apostrophe
CARDS = 3  # numbers a person has, one after the other
LAST_VERSION = 2 * CARDS - 1
DELETED = "gone"  # in a row that closes its card
UNWANTED = "staff"  # in a row that is right, and not eligible

Row = dict[str, str | None]


class Line(NamedTuple):
    """One row as it was delivered: whose it is, the how-manieth card, address, name and postal code
    of theirs, whether it is fit, eligible, and marked as deleted.

    One that is marked as deleted closes its card. A card of an odd version is a reissue of the one
    before, with a later year; one of an even version is a new number.
    """

    person: int
    version: int = 0
    address: int = 0
    name: int = 0
    code: int = 0
    fit: bool = True
    deleted: bool = False
    eligible: bool = True

    @property
    def number(self) -> int:
        """The how-manieth card number of theirs it has."""
        return self.version // 2


@dataclass(frozen=True)
class People:
    """Everybody's row, and the cards that replace lost ones."""

    rows: list[Row]
    numbers: list[list[str]]

    @classmethod
    def of(cls, count: int, last: date, seed: int, ending: Sequence[date], share: float) -> People:
        """Return so many people whose cards outlast a day; those of a share end in some months."""
        out = BytesIO()
        write_sample(out, CARDS * count, as_of=last, seed=seed)
        everybody = pl.read_csv(out.getvalue(), infer_schema=False)
        numbers = everybody[PAN].to_list()
        rows = everybody.head(count).to_dicts()
        chance = random.Random(seed)
        for row in rows:
            if chance.random() < ODD_CUID:
                row[CUID] = f"O'{row[CUID]}"
            if share and chance.random() < share:
                row[YEAR], row[MONTH] = f"{chance.choice(ending):%y %m}".split()
        return cls(rows, [numbers[person::count] for person in range(count)])

    def part(self, first: int, count: int) -> People:
        """Return some of them."""
        return People(self.rows[first : first + count], self.numbers[first : first + count])

    @cached_property
    def by_cuid(self) -> dict[str, int]:
        """Everybody's number."""
        return {row[CUID] or "": person for person, row in enumerate(self.rows)}

    def fields(self, line: Line) -> Row:
        """Return the row of a line."""
        row = dict(self.rows[line.person])
        row[PAN] = self.numbers[line.person][line.number]
        row[YEAR] = f"{int(row[YEAR] or 0) + line.version:02d}"
        if line.address:
            row[ADDRESS1] = f"{line.address} New St"
        if line.name:
            row[LAST_NAME] = f"Roy-{'ABCDEFGHIJ'[line.name % 10]}"
        if line.code:
            row[POSTAL_CODE] = _other_code(row[POSTAL_CODE] or "", line.code)
        if not line.fit:
            row[CITY] = None
        if not line.eligible:
            row[NICKNAME] = UNWANTED
        if line.deleted:
            row[NICKNAME] = DELETED
        return row

    def is_fit(self, line: Line, day: date) -> bool:
        """Return whether a row can be sent on a day: it closes no card, is eligible, nothing is
        missing, and its card is valid.
        """
        is_meant = line.eligible and not line.deleted
        return line.fit and is_meant and self.card(line)[16:] >= f"{day:%y%m}"

    def card(self, line: Line) -> str:
        """Return the card of a line: number and expiration (YYMM)."""
        row = self.rows[line.person]
        year = int(row[YEAR] or 0) + line.version
        return f"{self.numbers[line.person][line.number]}{year:02d}{row[MONTH]}"

    def cuid(self, line: Line) -> str:
        """Return the cuid of a line."""
        return self.rows[line.person][CUID] or ""


@dataclass
class Town:
    """The cardholders of one issuer as its files have them."""

    feed: Feed
    people: People
    rows: int  # of a delta, and of the first portfolio
    chance: random.Random
    # who stood in a file, in the order they first did, and their latest rows
    known: list[int] = field(default_factory=list)
    latest: dict[int, Line] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    mended: dict[int, date] = field(default_factory=dict)  # when an unfit row is right in files

    def portfolio(self, day: date, days: int) -> list[Line]:
        """Return everybody who is there after some days."""
        before = [person for person in self.known if person not in self.gone]
        share = self.feed.new * days if self.known else 1.0
        for person in before:
            self._live(person, day, days)
        new = self._come(round(self.rows * share + self.chance.random() - 0.5), day)
        lines = [self.latest[person] for person in (*before, *new)]
        return [line for line in lines if line.person not in self.gone or line.deleted]

    def delta(self, count: int, day: date) -> list[Line]:
        """Return rows of a delta: new people, and people who stood in earlier files, each once."""
        known = [person for person in self.known if person not in self.gone]
        recent = known[-3 * self.rows :]
        fresh = max(1, round(count * self.feed.new)) if known else count
        new = self._come(fresh, day)
        old: list[int] = []
        while known and len(old) < count - len(new):
            among = recent if self.chance.random() < RECENT else known
            old.append(self.chance.choice(among))
        persons = [*new, *dict.fromkeys(old)]
        for person in persons[len(new) :]:
            self._live(person, day, 1)
        return [self.latest[person] for person in self.chance.sample(persons, len(persons))]

    def correct(self, cuid: str, column: str) -> str | None:
        """Return what the issuer knows by now of a refused cell: a city that was missing, another
        postal code.
        """
        line = self.latest[self.people.by_cuid[cuid]]
        is_hopeless = random.Random(cuid).random() < self.feed.hopeless
        if column == CITY and not line.fit and not is_hopeless:
            if self.feed.mended_after is None:
                self.latest[line.person] = line._replace(fit=True)
            return self.people.rows[line.person][CITY]
        if column != POSTAL_CODE:
            return None
        self.latest[line.person] = line._replace(code=line.code + 1)
        return self.people.fields(self.latest[line.person])[POSTAL_CODE]

    def _come(self, count: int, day: date) -> list[int]:
        """Let new people come."""
        first = len(self.known)
        new = [*range(first, min(first + count, len(self.people.rows)))]
        self.known += new
        for person in new:
            is_fit = self.chance.random() >= self.feed.unfit
            is_unwanted = bool(self.feed.unwanted) and self.chance.random() < self.feed.unwanted
            self.latest[person] = Line(person, fit=is_fit, eligible=not is_unwanted)
            if not is_fit and self.feed.mended_after is not None:
                self.mended[person] = day + timedelta(days=self.feed.mended_after)
        return new

    def _live(self, person: int, day: date, days: int) -> None:
        """Let days of somebody go by: their row is put right, or something of it changes."""
        line = self.latest[person]
        if self.mended.get(person, date.max) <= day:
            del self.mended[person]
            line = line._replace(fit=True)
        kinds = {kind: share * days for kind, share in self.feed.changes.items()}
        self.latest[person] = self._changed(line, self._drawn(kinds))

    def _drawn(self, kinds: dict[str, float]) -> str:
        """Draw a kind of change; "" for none."""
        luck = self.chance.random()
        for kind, share in kinds.items():
            luck -= share
            if luck < 0:
                return kind
        return ""

    def _changed(self, line: Line, change: str) -> Line:
        match change:
            case "moved":
                return line._replace(address=line.address + 1)
            case "married":
                return line._replace(name=line.name + 1)
            case "reissued":
                return line._replace(version=min(line.version | 1, LAST_VERSION))
            case "replaced":
                return line._replace(version=min(line.version // 2 * 2 + 2, LAST_VERSION))
            case "spoiled":
                return line._replace(fit=False)
            case "turned":  # no longer eligible, or eligible from now on
                return line._replace(eligible=not line.eligible)
            case "left":
                self.gone.add(line.person)
            case "deleted":  # the file of the night is the last one that names them
                self.gone.add(line.person)
                return line._replace(deleted=True)
        return line


def _other_code(code: str, times: int) -> str:
    """Return a postal code with another last digit."""
    last = max(place for place, character in enumerate(code) if character.isdigit())
    return f"{code[:last]}{(int(code[last]) + times) % 10}{code[last + 1 :]}"
