"""The rows of a run as the census has them: those sealed in its chunks, and those that it refused."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from schemas.manifest import Manifest
from tests.lives.portal import Position
from tests.lives.town import Line

if TYPE_CHECKING:
    from tests.lives.bank import Bank

Card = tuple[str, str]  # cuid and last four digits


class Row(NamedTuple):
    """A row that a run sent, or did not as it cannot be (without a place in a chunk)."""

    cuid: str
    number: str  # of the card, and its expiration (YYMM)
    place: Position | None
    eligible: bool = True

    @property
    def card(self) -> Card:
        """The card, whichever issue of it."""
        return self.cuid, self.number[12:16]


def named_of(bank: Bank, manifest: Manifest) -> dict[Line, Card]:
    """Return the lines of the file of a run, with their cards; none of a run of selected rows."""
    if manifest.selection is not None:
        return {}
    people = bank.town.people
    lines = bank.drops[manifest.source.sha256].lines
    return {line: (people.cuid(line), people.card(line)[12:16]) for line in lines}


def content_of(line: Line) -> tuple[int, ...]:
    """Return what of a row makes a change: address, name and postal code."""
    return line.address, line.name, line.code


def refused_of(bank: Bank, manifest: Manifest) -> Iterator[Row]:
    """Yield the rows that cannot be sent of the file of a run."""
    if manifest.selection is not None:
        return
    people = bank.town.people
    for line in dict.fromkeys(bank.drops[manifest.source.sha256].lines):
        if not line.deleted and not people.is_fit(line, manifest.as_of):
            yield Row(people.cuid(line), people.card(line), None, line.eligible)


def opened(bank: Bank, name: str, content: bytes) -> Iterator[Row]:
    """Yield the rows of a sealed chunk."""
    text = io.StringIO(bank.portal.opener.open(content, 1 << 24).decode(), newline="")
    for position, row in enumerate(csv.DictReader(text, strict=True), 1):
        cell = {column.partition(".")[2]: value for column, value in row.items()}
        number = cell["pan"] + cell["expiration_year"] + cell["expiration_month"]
        yield Row(cell["cuid"], number, (name, position))
