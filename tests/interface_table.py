"""`tests/INTERFACE.md`, read: of each statement of the partner's interface what to type, what is
assumed, which settings and questions it has, and the tests that show it; and the page made of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

TABLE: Final = Path(__file__).parent / "INTERFACE.md"
NAMED: Final = re.compile(r"`([^`]+)`")
PAGE: Final = """# What the interface has, and how you reach it

<!-- Written by `python -m tests.reference` from `tests/INTERFACE.md`. -->

The partner's interface, statement by statement: what to type, what is assumed as long as you say nothing, and the settings that say
it. [SETTINGS.md](SETTINGS.md) explains each setting, [COMMANDS.md](COMMANDS.md) each command. Where the partner's document leaves
something open, the last column names the question of [INTERFACE_QUESTIONS.md](INTERFACE_QUESTIONS.md).
"""
HEAD: Final = ("statement", "to type", "assumed", "settings", "question")


class Statement(NamedTuple):
    """One row of the table, its cells as they are written."""

    what: str
    to_type: str
    assumed: str
    settings: str
    questions: str
    shown_by: str

    @property
    def commands(self) -> list[str]:
        """The command lines to type."""
        return NAMED.findall(self.to_type)

    @property
    def setting_names(self) -> list[str]:
        """The dotted names of its settings, or of tables of settings."""
        return NAMED.findall(self.settings)

    @property
    def question_names(self) -> list[str]:
        """The names of its questions."""
        return [name for name in self.questions.split(", ") if name]

    @property
    def tests(self) -> list[str]:
        """The tests that show it, as `path::name`."""
        return [name for name in NAMED.findall(self.shown_by) if "::" in name]


def sections() -> dict[str, tuple[str, list[Statement]]]:
    """Return the title and the statements of each section, by its number."""
    parts = re.split(r"^## ", TABLE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    by_number = {}
    for part in parts:
        title, *lines = part.splitlines()
        rows = [line for line in lines if line.startswith("| ")][1:]
        statements = [Statement(*line[2:-2].split(" | ")) for line in rows]
        by_number[title.split(" ", 1)[0].rstrip(".")] = (title, statements)
    return by_number


def interface_page() -> str:
    """Return the page for users of the interface: the table without its tests."""
    return PAGE + "".join(_section(*section) for section in sections().values())


def _section(title: str, statements: list[Statement]) -> str:
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    lines += (f"| {' | '.join(_cells(statement))} |" for statement in statements)
    return f"\n## {title}\n\n" + "".join(f"{line}\n" for line in lines)


def _cells(statement: Statement) -> Iterator[str]:
    yield from statement[:4]
    yield ", ".join(f"`{name}`" for name in statement.question_names)
