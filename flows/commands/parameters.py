"""The types of the commands' parameters: what a form offers and checks, and how the command line spells each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import Annotated, NamedTuple

from flows.configuration import issuers
from flows.wiring import config_folder
from schemas.breaks import DECISIONS, KINDS


class Cli(NamedTuple):
    """How the command line spells a parameter, if its name does not say; `days` may be typed as 14d."""

    option: str = ""
    metavar: str = ""
    folder: bool = False
    days: bool = False


class Help(NamedTuple):
    """The help of a parameter that many commands share, unless their docstring has its own."""

    text: str


class Words(NamedTuple):
    """A free text, which commands keep with what looks like a card masked; a form refuses what is written as a card.

    A form's text is stored by Prefect before any of our code can mask it.
    """

    longest: int = 200
    card: str = r"[0-9]{13}|[0-9]{4}([ ._-])[0-9]{4}\1[0-9]{4}\1[0-9]|[0-9]{4}([ ._-])[0-9]{6}\2[0-9]{5}"


class Text(NamedTuple):
    """The pattern a form checks a whole text against; on the command line the command itself refuses bad text."""

    pattern: str
    longest: int = 200


class Range(NamedTuple):
    """The limits of a number, both included."""

    least: float
    most: float | None = None


class OneOf(NamedTuple):
    """The names a form offers, read when it is built; the command line checks them only where `checked`."""

    names: Callable[[], Sequence[str]]
    checked: bool = False


Issuer = Annotated[
    str,
    OneOf(lambda: issuers(config_folder())),
    Help("The issuer, as its TOML file is named."),
]
RunName = Annotated[str, Text(r"[a-z0-9][a-z0-9-]*-\d{8}-[0-9a-f]{8}(-r\d+)?"), Help("The run's id.")]
ExtractName = Annotated[str, Text(r"[^/\\.][^/\\]*(/[^/\\.][^/\\]*)*")]
Reason = Annotated[str, Words(), Help("Why; kept in the audit trail. Never a card number.")]
ReasonCode = Annotated[str, Text(r"[a-z_]+(\.[a-z0-9_]+){0,2}", 80)]
ListDigest = Annotated[str, Text(r"[0-9a-f]{12}")]
Break = Annotated[
    str,
    OneOf(lambda: [name for name, kind in KINDS.items() if not kind.notice]),
    Cli(metavar="BREAK"),
    Help("The kind of break to close or reopen, such as RESULT_SHORT."),
]
Place = Annotated[
    str, Text(r"chunk [0-9]{1,5}"), Help('One chunk, such as "chunk 7" (default: every break of that kind).')
]
Decision = Annotated[
    str,
    OneOf(lambda: list(DECISIONS), checked=True),
    Help("What was found out, and so what becomes of the rows; the report shows what a break offers."),
]
Number = Annotated[int, Range(1)]
Share = Annotated[float, Range(0, 1)]
Day = Annotated[date | None, Cli("--date")]
DryRun = Annotated[bool, Help("Report what would be done, and change nothing.")]
