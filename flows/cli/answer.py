"""What a command says: one JSON object or lines for people on stdout, what to type next on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import click


class Answer(NamedTuple):
    """The outcome of a command: facts for machines, lines for people, the next step, the exit code."""

    facts: dict[str, Any]
    lines: Sequence[str]
    then: str = ""
    exit_code: int = 0


def say(answer: Answer, *, as_json: bool) -> None:
    """Print an answer the way it was asked for."""
    if as_json:
        click.echo(json.dumps({**answer.facts, "next": answer.then, "exit_code": answer.exit_code}, default=str))
        return
    for line in answer.lines:
        click.echo(line)
    if answer.then:
        click.echo(f"next: {answer.then}", err=True)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lay out rows under a head; numbers stand right, the rest left."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    plain = [list(row) for row in rows] if isinstance(rows, list) else []
    widths = [max(len(line[at]) for line in [list(head), *cells]) for at in range(len(head))]
    right = [all(isinstance(row[at], int) for row in plain) and bool(plain) for at in range(len(head))]

    def lay(line: Sequence[str]) -> str:
        laid = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, right, strict=True)
        )
        return "  ".join(laid).rstrip()

    return [lay(list(head)), *(lay(line) for line in cells)]
