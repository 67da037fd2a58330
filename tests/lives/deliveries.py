"""What an issuer delivers night by night: delta files, and everything that goes wrong with files on
their way.

The truth about every file stands beside it: whose rows it holds, which of them can be sent, and
whether it is whole.
"""

from __future__ import annotations

import gzip
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from io import BytesIO
from itertools import chain
from typing import Literal, NamedTuple

import polars as pl

from flows.simulator.extract import write_sample
from schemas.portal import ADDRESS1, CITY, PAN, YEAR, columns

NEW = 0.4  # of the rows of a delta file; the others stood in earlier ones
RECENT = 0.5  # of those others stood in one of the last files
UNFIT = 0.06  # of the new rows: their city is missing until they come again
CHANGES = {"moved": 0.04, "reissued": 0.04, "replaced": 0.02}  # of the rows that come again
REPEATED = 0.03  # of the rows stand twice in their file
REGULAR = {"delta": 5, "cut": 2, "none": 1}  # of eight nights
# of eight nights
ODD = {"renamed": 1, "changed": 2, "reordered": 1, "dropped again": 1, "second file": 1, "none": 2}
ZIPPED = 0.15  # of the files
BACK = 8  # files back that a copy or a change may reach

Row = dict[str, str | None]
# the last: where nothing in the file can prove it
Whole = Literal["whole", "cut", "cut behind a record"]


class Card(NamedTuple):
    """A card by its number and expiration (YYMM)."""

    pan: str
    expiration: str


class Line(NamedTuple):
    """One row as it was delivered: whose it is, the how-manieth card and address of theirs, and
    whether it is fit.
    """

    person: int
    version: int = 0
    address: int = 0
    fit: bool = True


class Drop(NamedTuple):
    """One file as it was dropped, and the truth about it."""

    night: int
    name: str
    content: bytes
    lines: tuple[Line, ...]
    kind: str
    whole: Whole = "whole"


def people(count: int, as_of: date, seed: int) -> pl.DataFrame:
    """Return sound rows of so many people, whose cards are good on a day."""
    out = BytesIO()
    write_sample(out, count, as_of=as_of, seed=seed)
    return pl.read_csv(out.getvalue(), infer_schema=False)


def as_csv(rows: Sequence[Row]) -> bytes:
    """Return rows of the portal's columns as an extract."""
    return pl.DataFrame(rows, dict.fromkeys(columns(), pl.String)).write_csv().encode()


@dataclass
class People:
    """Everybody's row, and the cards that replace lost ones; two issuers share them, and change
    them each for itself.

    A card of an odd version is a reissue of the one before, with a later year; one of an even
    version is a new number.
    """

    everybody: list[Row]
    count: int

    @classmethod
    def of(cls, count: int, last: date, seed: int) -> People:
        """Return so many people whose cards outlast a day, each with three cards."""
        return cls(people(3 * count, last, seed).to_dicts(), count)

    def fields(self, line: Line) -> Row:
        """Return the row of a line."""
        row = dict(self.everybody[line.person])
        row[PAN] = self.everybody[line.person + line.version // 2 % 3 * self.count][PAN]
        row[YEAR] = f"{int(row[YEAR] or 0) + line.version:02d}"
        row[ADDRESS1] = f"{line.address} New St" if line.address else row[ADDRESS1]
        row[CITY] = row[CITY] if line.fit else None
        return row

    def card(self, line: Line) -> Card:
        """Return the card of a line."""
        row = self.fields(line)
        return Card(row[PAN] or "", f"{row[YEAR]}{row['service_card.expiration_month']}")

    def cuid(self, line: Line) -> str:
        """Return the cuid of a line."""
        return self.everybody[line.person]["cardholder.cuid"] or ""


@dataclass
class Deliverer:
    """One issuer's deliveries; with a `trailer`, no cut of its files can hide."""

    issuer: str
    people: People
    rows: int
    chance: random.Random
    trailer: bool = False
    # who stood in a file, in the order they first did
    known: list[int] = field(default_factory=list)
    latest: dict[int, Line] = field(default_factory=dict)
    whole: list[Drop] = field(default_factory=list)  # what arrived whole
    decks: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    # what was cut, as it ought to have been: it comes the next night
    late: list[Drop] = field(default_factory=list)

    def owed(self, night: int) -> list[Drop]:
        """Return whole what was cut the night before."""
        drops = [drop._replace(night=night) for drop in self.late]
        self.late.clear()
        return drops

    def tonight(self, night: int, day: date) -> list[Drop]:
        """Return the files of a night, in the order they are dropped."""
        stem = f"{self.issuer}-{day:%Y%m%d}"
        drops = self.owed(night)
        regular = self._drawn("regular", REGULAR)
        odd = self._drawn("odd", ODD)
        if regular != "none":
            delta = self._file(night, f"{stem}.csv", self._lines(self.rows), "delta")
            drops.append(self._cut(delta, f"{stem}-whole.csv") if regular == "cut" else delta)
        self.whole += [drop for drop in drops if drop.whole == "whole"]
        if self.whole and odd != "none":
            drops.append(self._odd(odd, night, stem))
            self.whole.append(drops[-1])
        return drops

    def _drawn(self, deck: str, kinds: dict[str, int]) -> str:
        """Draw from a deck, so that a short year has every kind of night too."""
        if not self.decks[deck]:
            cards = list(Counter(kinds).elements())
            self.decks[deck] = self.chance.sample(cards, len(cards))
        return self.decks[deck].pop()

    def _odd(self, kind: str, night: int, stem: str) -> Drop:
        """Return a file that repeats or changes one of the last ones."""
        same_night = kind == "renamed"
        recent = [drop for drop in self.whole[-BACK:] if drop.night < night or same_night]
        if kind == "second file" or not recent:
            return self._file(night, f"{stem}-second.csv", self._lines(self.rows), "second file")
        before = self.chance.choice(recent)._replace(night=night, kind=kind)
        match kind:
            case "renamed":
                suffix = ".csv.gz" if before.name.endswith(".gz") else ".csv"
                return before._replace(name=f"{stem}-copy{suffix}")
            case "dropped again":
                return before
            case "reordered":
                lines = self.chance.sample(before.lines, len(before.lines))
                return self._file(night, f"{stem}-reordered.csv", lines, kind)
        return self._file(night, before.name, self._replaced(before.lines), kind)

    def _replaced(self, lines: Sequence[Line]) -> list[Line]:
        """Return rows of which some are left out, and some others added."""
        kept = [line for line in lines if self.chance.random() > 0.2]
        persons = {line.person for line in kept}
        more = self._lines(len(lines) // 5 + 1)
        return [*kept, *(line for line in more if line.person not in persons)]

    def _lines(self, count: int) -> list[Line]:
        """Return rows of a delta: new people, and people who stood in earlier files, each once."""
        fresh = max(1, round(count * NEW)) if self.known else count
        new = [*range(len(self.known), min(len(self.known) + fresh, self.people.count))]
        recent = self.known[-3 * self.rows :]
        old: list[int] = []
        while self.known and len(old) < count - len(new):
            among = recent if self.chance.random() < RECENT else self.known
            old.append(self.chance.choice(among))
        self.known += new
        lines = [Line(person, fit=self.chance.random() >= UNFIT) for person in new]
        repeated = [person for person in dict.fromkeys(old) if person in self.latest]
        lines += [self._changed(self.latest[person]) for person in repeated]
        self.latest |= {line.person: line for line in lines}
        return self.chance.sample(lines, len(lines))

    def _changed(self, line: Line) -> Line:
        """Return somebody's row as it comes again: put right if it was unfit, now and then
        changed.
        """
        kinds = CHANGES | {"": 1 - sum(CHANGES.values())}
        change = self.chance.choices([*kinds], [*kinds.values()])[0]
        if change == "moved":
            return line._replace(address=line.address + 1, fit=True)
        versions = {"reissued": line.version | 1, "replaced": line.version // 2 * 2 + 2}
        return line._replace(version=min(versions.get(change, line.version), 5), fit=True)

    def _file(self, night: int, name: str, lines: Sequence[Line], kind: str) -> Drop:
        lines = list(chain.from_iterable(self._repeated(line) for line in lines))
        content = as_csv([self.people.fields(line) for line in lines])
        if self.trailer:
            content += b"TRL|%d\n" % len(lines)
        if name.endswith(".gz") or (kind != "changed" and self.chance.random() < ZIPPED):
            content = gzip.compress(content, mtime=0)
            name = name.removesuffix(".gz") + ".gz"
        return Drop(night, name, content, tuple(lines), kind)

    def _repeated(self, line: Line) -> list[Line]:
        return [line] * (2 if self.chance.random() < REPEATED else 1)

    def _cut(self, drop: Drop, other: str) -> Drop:
        """Cut a file somewhere; the whole of it comes the next night, under the same or another
        name.
        """
        zipped = drop.name.endswith(".gz")
        content = drop.content
        name = drop.name if self.chance.random() < 0.5 else other + ".gz" * zipped
        self.late.append(drop._replace(name=name, kind="whole after a cut"))
        end = self.chance.randrange(1, len(content))
        # where it is hardest to see: around the end of a record
        if self.chance.random() < 0.5 and not zipped:
            ends = [place for place, byte in enumerate(content) if byte == 0x0A][:-1]
            end = self.chance.choice(ends) + self.chance.choice((-2, -1, 0, 1, 1))
        content = content[:end]
        if zipped or self.trailer or not content.endswith(b"\n"):
            return drop._replace(content=content, kind="cut", whole="cut")
        lines = drop.lines[: content.count(b"\n") - 1]
        return drop._replace(content=content, lines=lines, kind="cut", whole="cut behind a record")
