"""What an issuer delivers night by night, and everything that goes wrong with files on their way.

The truth about every file stands beside it: whose rows it holds, which of them can be sent, and
whether it is whole.
"""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from hashlib import sha256
from itertools import chain
from typing import Literal, NamedTuple

import polars as pl

from schemas.portal import columns
from tests.lives.town import Line, Town

REPEATED = 0.03  # of the rows stand twice in their file
ZIPPED = 0.15  # of the files
BACK = 8  # files back that a copy or a change may reach

# the last: where nothing in the file can prove it
Whole = Literal["whole", "cut", "cut behind a record"]


class Drop(NamedTuple):
    """One file as it was dropped, and the truth about it."""

    day: date
    name: str
    content: bytes
    lines: tuple[Line, ...]
    kind: str
    whole: Whole = "whole"

    @property
    def sha256(self) -> str:
        """The digest by which a run names its source."""
        return sha256(self.content).hexdigest()


@dataclass
class Deliverer:
    """One issuer's deliveries."""

    town: Town
    whole: list[Drop] = field(default_factory=list)  # the last that arrived whole
    decks: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    # what was cut, as it ought to have been: it comes the next night
    late: list[Drop] = field(default_factory=list)

    def owed(self, day: date) -> list[Drop]:
        """Return whole what was cut the night before."""
        drops = [drop._replace(day=day) for drop in self.late]
        self.late.clear()
        return drops

    def once_more(self, day: date) -> list[Drop]:
        """Return a portfolio as it was last, as an issuer sends it every night."""
        feed = self.town.feed
        if not feed.portfolio:
            return []
        return [self._regular(f"{feed.issuer}-{day:%Y%m%d}.csv", day, 0)]

    def tonight(self, day: date, days: int) -> list[Drop]:
        """Return the files of a night some days after the last, in the order they are dropped."""
        feed = self.town.feed
        stem = f"{feed.issuer}-{day:%Y%m%d}"
        drops = self.owed(day)
        regular = self._drawn("nights", feed.nights)
        odd = self._drawn("odd", feed.odd)
        if regular != "none":
            file = self._regular(f"{stem}.csv", day, days)
            drops.append(self._cut(file, f"{stem}-whole.csv") if regular == "cut" else file)
        self.whole += [drop for drop in drops if drop.whole == "whole"]
        if self.whole and odd != "none":
            drops.append(self._odd(odd, day, stem))
            self.whole.append(drops[-1])
        del self.whole[:-BACK]
        return drops

    def _regular(self, name: str, day: date, days: int) -> Drop:
        if self.town.feed.portfolio:
            return self._file(day, name, self.town.portfolio(day, days), "portfolio")
        return self._file(day, name, self.town.delta(self.town.rows, day), "delta")

    def _drawn(self, deck: str, kinds: Mapping[str, int]) -> str:
        """Draw from a deck, so that a short life has every kind of night too."""
        if not self.decks[deck]:
            cards = list(Counter(kinds).elements())
            self.decks[deck] = self.town.chance.sample(cards, len(cards))
        return self.decks[deck].pop()

    def _odd(self, kind: str, day: date, stem: str) -> Drop:
        """Return a file that repeats or changes one of the last ones."""
        chance = self.town.chance
        recent = [drop for drop in self.whole if drop.day < day or kind == "renamed"]
        if kind == "second file" or not recent:
            lines = self.town.delta(self.town.rows, day)
            return self._file(day, f"{stem}-second.csv", lines, "second file")
        before = chance.choice(recent)._replace(day=day, kind=kind)
        match kind:
            case "renamed":
                suffix = ".csv.gz" if before.name.endswith(".gz") else ".csv"
                return before._replace(name=f"{stem}-copy{suffix}")
            case "dropped again":
                return before
            case "reordered":
                lines = chance.sample(before.lines, len(before.lines))
                return self._file(day, f"{stem}-reordered.csv", lines, kind)
        return self._file(day, before.name, self._replaced(before.lines, day), kind)

    def _replaced(self, lines: Sequence[Line], day: date) -> list[Line]:
        """Return rows of which some are left out, and some others added."""
        kept = [line for line in lines if self.town.chance.random() > 0.2]
        persons = {line.person for line in kept}
        more = self.town.delta(len(lines) // 5 + 1, day)
        return [*kept, *(line for line in more if line.person not in persons)]

    def _file(self, day: date, name: str, lines: Sequence[Line], kind: str) -> Drop:
        chance = self.town.chance
        lines = list(chain.from_iterable(self._repeated(line) for line in lines))
        rows = [self.town.people.fields(line) for line in lines]
        content = pl.DataFrame(rows, dict.fromkeys(columns(), pl.String)).write_csv().encode()
        if self.town.feed.trailer:
            content += b"TRL|%d\n" % len(lines)
        if name.endswith(".gz") or (kind != "changed" and chance.random() < ZIPPED):
            content = gzip.compress(content, mtime=0)
            name = name.removesuffix(".gz") + ".gz"
        return Drop(day, name, content, tuple(lines), kind)

    def _repeated(self, line: Line) -> list[Line]:
        return [line] * (2 if self.town.chance.random() < REPEATED else 1)

    def _cut(self, drop: Drop, other: str) -> Drop:
        """Cut a file somewhere; the whole of it comes the next night, under the same or another
        name.
        """
        chance = self.town.chance
        zipped = drop.name.endswith(".gz")
        content = drop.content
        name = drop.name if chance.random() < 0.5 else other + ".gz" * zipped
        self.late.append(drop._replace(name=name, kind="whole after a cut"))
        end = chance.randrange(1, len(content))
        # where it is hardest to see: around the end of a record
        if chance.random() < 0.5 and not zipped:
            ends = [place for place, byte in enumerate(content) if byte == 0x0A][:-1]
            end = chance.choice(ends) + chance.choice((-2, -1, 0, 1, 1))
        content = content[:end]
        if zipped or self.town.feed.trailer or not content.endswith(b"\n"):
            return drop._replace(content=content, kind="cut", whole="cut")
        lines = drop.lines[: content.count(b"\n") - 1]
        return drop._replace(content=content, lines=lines, kind="cut", whole="cut behind a record")
