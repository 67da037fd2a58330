"""What a command reports: facts for machines, lines and tables for people, the next step, the exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        aligned = []
        for head, *values in zip(self.columns, *self.rows, strict=True):
            texts = [str(head), *(f"{value:,}" if isinstance(value, int) else str(value) for value in values)]
            width, numbers = max(map(len, texts)), bool(values) and all(isinstance(value, int) for value in values)
            aligned.append([text.rjust(width) if numbers else text.ljust(width) for text in texts])
        return ["  ".join(row).rstrip() for row in zip(*aligned, strict=True)]

    @property
    def records(self) -> list[dict[str, object]]:
        """The table as one mapping a row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Link(NamedTuple):
    """Where people open something; an artifact in Prefect."""

    url: str
    text: str
    key: str


class Result(NamedTuple):
    """The outcome of a command, for the command line and for Prefect; `outbox`: whose outbox it changed."""

    facts: dict[str, Any]
    shown: Sequence[str | Table | Link] = ()
    next_step: str = ""
    exit_code: int = 0
    outbox: str = ""

    @property
    def lines(self) -> list[str]:
        """What a terminal shows."""
        shown = (part for part in self.shown if not isinstance(part, Link))
        parts = ([part] if isinstance(part, str) else part.lines if part.on_terminal else [] for part in shown)
        return [line for lines in parts for line in lines]


def artifact(records: Sequence[Mapping[str, object]], key: str, title: str) -> Table:
    """Return a table that Prefect alone shows, of one mapping a row."""
    columns = list(records[0]) if records else []
    return Table(columns, [[record.get(name, "") for name in columns] for record in records], key, title, False)
