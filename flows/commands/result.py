"""What a command reports: facts for machines, lines and tables for people, the next step, the exit
code.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from itertools import chain
from typing import Any, Final, NamedTuple, Self

from flows.errors import CardlinkError
from flows.steps import COMMAND_LINE, Sentence, Step, Text, Words, in_words

BY_WEIGHT: Final = (0, 75, 3, 2, 4, 1)  # exit codes: what may pass by itself is the least
OUT_OF_BALANCE: Final = "Out of balance"  # the state of a flow that ended well, with exit code 4
MOST = 50  # rows of a table on a page of Markdown; its own artifact, or a file, has them all


def worst(codes: Iterable[int]) -> int:
    """Return the worst of several exit codes, as README has them; 0 where there is none."""
    return max(codes, key=BY_WEIGHT.index, default=0)


class Link(NamedTuple):
    """Where people open something; an artifact in Prefect, unless it is a cell of a table."""

    url: str
    text: str | Step
    key: str = ""


class Place(NamedTuple):
    """Where files are, for who works on the store: a terminal shows it behind the text, Prefect
    shows the text alone.
    """

    path: str
    text: str = ""


class Table(NamedTuple):
    """Rows under a head: lines on a terminal; with a key an artifact in Prefect."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    key: str = ""
    title: str = ""
    on_terminal: bool = True

    def lines(self, words: Words = COMMAND_LINE) -> list[str]:
        """Return the table as text; columns of numbers are aligned right."""
        columns = [
            _aligned(head, cells, words)
            for head, *cells in zip(self.columns, *self.rows, strict=True)
        ]
        return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]

    @property
    def markdown(self) -> str:
        """The table as Markdown, with its title and its first rows."""
        rows = [
            [escaped(head) for head in self.columns],
            ["---"] * len(self.columns),
            *([_cell_markdown(cell) for cell in row] for row in self.rows[:MOST]),
        ]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        if self.title:
            lines.insert(0, f"**{escaped(self.title)}**\n")
        if len(self.rows) > MOST:
            lines.append(f"\nand {len(self.rows) - MOST:,} more")
        return "\n".join(lines)

    @property
    def records(self) -> list[dict[str, object]]:
        """The table as one mapping a row, of values that JSON has."""
        rows = ([_plain(cell) for cell in row] for row in self.rows)
        return [dict(zip(self.columns, row, strict=True)) for row in rows]


Part = str | Sentence | Table | Link | Place  # of what a result shows


class Result(NamedTuple):
    """The outcome of a command, for the command line and for Prefect; `outbox`: whose outbox it
    changed.

    `headline`: what came of it in one sentence, where the first line shown does not say it.
    `failure`: the error that a flow ends with, after it has shown everything.
    `rows`: how many a decision is about that has to carry their number.
    `is_idle`: there was nothing to do, so that of scheduled flow runs the newest is enough.
    """

    facts: dict[str, Any]
    shown: Sequence[Part] = ()
    next_step: Step | None = None
    exit_code: int = 0
    outbox: str = ""
    headline: str = ""
    failure: CardlinkError | None = None
    is_idle: bool = False
    rows: int | None = None

    def beside(self, unread: Mapping[str, CardlinkError]) -> Self:
        """Return it with a row for each issuer that could not be read, and with the exit code of
        its error.
        """
        rows = [(name, error.text) for name, error in unread.items()]
        table = Table(("not read", "why, and what to do"), rows)
        codes = [error.exit_code for error in unread.values()]
        return self._replace(
            facts={**self.facts, "unread": table.records},
            shown=[*self.shown, "", table] if unread else self.shown,
            exit_code=worst([self.exit_code, *codes]),
        )

    def telling(self, settings: Sequence[Text]) -> Self:
        """Return it with what a person should know of the settings it was done with."""
        if not settings:
            return self
        facts = {**self.facts, "settings_changed": [str(text) for text in settings]}
        return self._replace(facts=facts, shown=[*self.shown, *settings])

    @property
    def sentence(self) -> str:
        """What came of it, in one sentence."""
        if self.headline:
            return self.headline
        return next(iter(self.texts), "")

    @property
    def texts(self) -> list[str]:
        """The texts among what is shown, without empty lines."""
        lines = (part.text if isinstance(part, Place) else part for part in self.shown)
        return [str(line) for line in lines if isinstance(line, Text) and line]

    @property
    def markdown(self) -> str:
        """Everything that is shown, as one page of Markdown."""
        texts = [f"## {escaped(self.sentence)}"]
        for part in self.shown:
            if isinstance(part, Link):
                texts.append(_link_markdown(part))
            elif isinstance(part, Table):
                texts += [part.markdown] if part.rows else []
            else:
                line = str(part.text if isinstance(part, Place) else part).strip()
                texts += [escaped(line)] if line not in ("", self.sentence) else []
        return "\n\n".join(texts)

    @property
    def lines(self) -> list[str]:
        """What a terminal shows."""
        return [in_words(line) for line in self.lines_in(COMMAND_LINE)]

    def lines_in(self, words: Words) -> list[Text]:
        """Return what a terminal shows, tables in these words."""
        lines = list[Text]()
        for part in self.shown:
            if isinstance(part, Text):
                lines.append(part)
            elif isinstance(part, Place):
                lines.append(": ".join(filter(None, (part.text, part.path))))
            elif isinstance(part, Table) and part.on_terminal:
                lines += part.lines(words)
        return lines


def _aligned(head: str, cells: Sequence[object], words: Words) -> list[str]:
    """Return the texts of a column, all of one width."""
    texts = [head, *(_cell_text(cell, words) for cell in cells)]
    width = max(map(len, texts))
    numbers = bool(cells) and all(isinstance(cell, int | None) for cell in cells)
    return [text.rjust(width) if numbers else text.ljust(width) for text in texts]


def _cell_text(cell: object, words: Words) -> str:
    if isinstance(cell, Link):
        cell = cell.text
    if cell is None:
        return ""
    return f"{cell:,}" if isinstance(cell, int) else in_words(cell, words)


def _cell_markdown(cell: object) -> str:
    if isinstance(cell, Link):
        return _link_markdown(cell)
    if cell is None:
        return ""
    return f"{cell:,}" if isinstance(cell, int) else escaped(str(cell))


def _link_markdown(link: Link) -> str:
    return f"[{escaped(str(link.text))}]({link.url})"


def _plain(cell: object) -> object:
    """Return a cell as a value that JSON has."""
    if isinstance(cell, Link):
        cell = cell.text
    return str(cell) if isinstance(cell, date | Step | Sentence) else cell


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", text)


def artifact(records: Sequence[Mapping[str, object]], key: str, title: str) -> Table:
    """Return a table that Prefect alone shows, of one mapping a row."""
    columns = list(records[0]) if records else []
    rows = [[record.get(name, "") for name in columns] for record in records]
    return Table(columns, rows, key, title, on_terminal=False)


def of_several(
    by_target: Sequence[tuple[str, Result]], refused: Mapping[str, CardlinkError]
) -> Result:
    """Return what came of a command for each of its targets as one, with the worst exit code."""
    results = [result for _, result in by_target]
    lines = [
        Sentence("{target}: {error}", target=target, error=error.text)
        for target, error in refused.items()
    ]
    facts = {
        "issuers": [result.facts for result in results],
        "refused": {target: str(error.text) for target, error in refused.items()},
    }
    codes = [result.exit_code for result in results]
    codes += [error.exit_code for error in refused.values()]
    failures = (result.failure for result in results)
    return Result(
        facts,
        _shown_together(results, lines),
        _next_step(by_target),
        worst(codes),
        headline="; ".join([*(result.sentence for result in results), *map(str, lines)]),
        failure=next(filter(None, failures), None),
    )


def _shown_together(results: Sequence[Result], lines: Sequence[Sentence]) -> list[Part]:
    """Return what results show, with an empty line between two, and these lines behind them."""
    shown: list[Part] = list(chain.from_iterable([*result.shown, ""] for result in results))
    if not lines:
        return shown[:-1]
    return [*shown, *lines]


def _next_step(by_target: Sequence[tuple[str, Result]]) -> Step | None:
    """Return the next step for all that have the same one but for the target, else the first."""
    steps = [(target, result.next_step) for target, result in by_target]
    known = [(target, step) for target, step in steps if step is not None]
    if not known:
        return None
    first_target, first = known[0]
    rows = [dict(step.options).get("rows") for _, step in known]
    same = [
        target
        for (target, step), own in zip(known, rows, strict=True)
        if step == first.adding(rows=own).about(first_target, target)
    ]
    if len(same) < len(known):
        return first
    of_each = ",".join(str(own or 0) for own in rows) if any(rows) else None
    return first.adding(rows=of_each).about(first_target, ",".join(same))
