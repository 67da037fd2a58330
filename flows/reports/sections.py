"""Sections that extensions bring to reports: the same tables on pages and in workbooks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flows.extensions import hooks

Cell = str | int | float | None


class SectionTable(NamedTuple):
    """A table of a section; one table needs no title of its own."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""

    @property
    def numbers(self) -> list[bool]:
        """Which columns have a number in some row."""
        return [
            any(isinstance(row[place], int) for row in self.rows) for place in range(len(self.head))
        ]


class Section(NamedTuple):
    """A part of a report: its name in an address, its title, and a sentence below its tables."""

    name: str
    title: str
    tables: Sequence[SectionTable]
    note: str = ""


def sections(facts: Mapping[str, Any]) -> Iterator[Section]:
    """Yield the sections for the facts of a run's report, or of that across runs."""
    for sections_of in hooks("sections"):
        yield from sections_of(facts)
