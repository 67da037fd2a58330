"""What a command reports: facts for machines, lines and tables for people, the next step, the exit
code.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple, Self

from flows.errors import CardlinkError, full_text

MOST = 50  # rows of a table on a page of Markdown; its own artifact, or a file, has them all


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
            texts = [
                str(head),
                *(f"{value:,}" if isinstance(value, int) else str(value) for value in values),
            ]
            width, numbers = (
                max(map(len, texts)),
                bool(values) and all(isinstance(value, int) for value in values),
            )
            aligned.append([text.rjust(width) if numbers else text.ljust(width) for text in texts])
        return ["  ".join(row).rstrip() for row in zip(*aligned, strict=True)]

    @property
    def markdown(self) -> str:
        """The table as Markdown, with its title and its first rows."""
        shown = [
            [f"{one:,}" if isinstance(one, int) else escaped(str(one)) for one in row]
            for row in self.rows[:MOST]
        ]
        head = [[escaped(one) for one in self.columns], ["---"] * len(self.columns)]
        rows = [f"| {' | '.join(row)} |" for row in (*head, *shown)]
        more = [f"\nand {len(self.rows) - MOST:,} more"] if len(self.rows) > MOST else []
        return "\n".join([*([f"**{escaped(self.title)}**\n"] if self.title else []), *rows, *more])

    @property
    def records(self) -> list[dict[str, object]]:
        """The table as one mapping a row, of values that JSON has."""
        plain = (
            [str(cell) if isinstance(cell, date) else cell for cell in row] for row in self.rows
        )
        return [dict(zip(self.columns, row, strict=True)) for row in plain]


class Link(NamedTuple):
    """Where people open something; an artifact in Prefect."""

    url: str
    text: str
    key: str


class Result(NamedTuple):
    """The outcome of a command, for the command line and for Prefect; `outbox`: whose outbox it
    changed.

    `headline`: what came of it in one sentence, where the first line shown does not say it.
    """

    facts: dict[str, Any]
    shown: Sequence[str | Table | Link] = ()
    next_step: str = ""
    exit_code: int = 0
    outbox: str = ""
    headline: str = ""

    def beside(self, unread: Mapping[str, CardlinkError]) -> Self:
        """Return it with a row for each issuer that could not be read, and with the exit code of
        its error.
        """
        table = Table(
            ("not read", "why, and what to do"),
            [(name, full_text(one)) for name, one in unread.items()],
        )
        code = max([self.exit_code, *(one.exit_code for one in unread.values())])
        shown = [*self.shown, "", table] if unread else self.shown
        return self._replace(
            facts={**self.facts, "unread": table.records}, shown=shown, exit_code=code
        )

    @property
    def sentence(self) -> str:
        """What came of it, in one sentence."""
        return self.headline or next(
            (part for part in self.shown if isinstance(part, str) and part), ""
        )

    @property
    def markdown(self) -> str:
        """Everything that is shown, as one page of Markdown."""
        texts = [f"## {escaped(self.sentence)}"]
        for part in self.shown:
            if isinstance(part, Link):
                texts.append(f"[{escaped(part.text)}]({part.url})")
            elif isinstance(part, Table):
                texts += [part.markdown] if part.rows else []
            else:
                texts += [escaped(part.strip())] if part.strip() not in ("", self.sentence) else []
        return "\n\n".join(texts)

    @property
    def lines(self) -> list[str]:
        """What a terminal shows."""
        shown = (part for part in self.shown if not isinstance(part, Link))
        parts = (
            [part] if isinstance(part, str) else part.lines if part.on_terminal else []
            for part in shown
        )
        return [line for lines in parts for line in lines]


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 chunk`, `2 chunks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def artifact(records: Sequence[Mapping[str, object]], key: str, title: str) -> Table:
    """Return a table that Prefect alone shows, of one mapping a row."""
    columns = list(records[0]) if records else []
    return Table(
        columns,
        [[record.get(name, "") for name in columns] for record in records],
        key,
        title,
        False,
    )
