"""What a verb reports: facts for machines, lines and tables for people, the next step, the exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class Table(NamedTuple):
    """Rows under a head: lines on a terminal; with a key an artifact in Prefect."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    key: str = ""
    title: str = ""
    on_terminal: bool = True

    @property
    def lines(self) -> list[str]:
        """The table as text; columns of numbers are aligned right."""
        cells = [list(self.columns), *([_text(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        right = [bool(self.rows) and all(isinstance(row[at], int) for row in self.rows) for at in range(len(widths))]
        return [_aligned(row, widths, right) for row in cells]

    @property
    def records(self) -> list[dict[str, object]]:
        """The table as one mapping a row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Link(NamedTuple):
    """Where something is for people to open; an artifact in Prefect."""

    url: str
    text: str
    key: str


class Result(NamedTuple):
    """The outcome of a verb, for the command line and for Prefect; `outbox` is the issuer whose outbox it changed."""

    facts: dict[str, Any]
    shown: Sequence[str | Table | Link] = ()
    next_step: str = ""
    exit_code: int = 0
    outbox: str = ""

    @property
    def lines(self) -> list[str]:
        """What a terminal shows."""
        return list(self._lines())

    def _lines(self) -> Iterator[str]:
        for part in self.shown:
            if isinstance(part, str):
                yield part
            elif isinstance(part, Table) and part.on_terminal:
                yield from part.lines


def artifact(records: Sequence[Mapping[str, object]], key: str, title: str) -> Table:
    """Return a table that Prefect alone shows, of one mapping a row."""
    columns = list(records[0]) if records else []
    return Table(columns, [[record.get(name, "") for name in columns] for record in records], key, title, False)


def _text(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _aligned(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    laid = (
        text.rjust(width) if number else text.ljust(width)
        for text, width, number in zip(row, widths, right, strict=True)
    )
    return "  ".join(laid).rstrip()
