"""The types of the commands' parameters: what a form offers and checks, and how the command line
spells each.
"""

from collections.abc import Callable, Sequence
from datetime import date
from typing import Annotated, Literal, NamedTuple

from flows.configuration import issuers
from flows.wiring import config_folder

Offer = Literal["", "runs", "targets", "extracts"]  # of an issuer; targets are it and its runs


class Field(NamedTuple):
    """What the type of a parameter does not say; of several, the outermost counts.

    `words` are a free text, which commands keep with what looks like a card masked; a form refuses
    what is written as a card, since Prefect stores its texts before any of our code can mask them.
    """

    option: str = ""  # on the command line, where its name does not say it
    metavar: str = ""
    folder: bool = False
    days: bool = False  # may be typed as 14d
    help: str = ""  # where the docstring has none
    # of a whole text, checked by forms; on the command line the command itself refuses bad text,
    # where the form is not said in words
    pattern: str = ""
    form: str = ""
    longest: int = 200
    words: bool = False
    least: float | None = None  # the limits of a number, both included
    most: float | None = None
    names: Callable[[], Sequence[str]] | None = None  # what a form offers, read when it is built
    checked: bool = False  # the command line takes nothing else
    offers: Offer = ""  # what a form offers to choose from, kept up to date on Prefect's server
    several: bool = False  # the command line takes several with commas between, one after another


CARD = r"[0-9]{13}|[0-9]{4}([ ._-])[0-9]{4}\1[0-9]{4}\1[0-9]|[0-9]{4}([ ._-])[0-9]{6}\2[0-9]{5}"

Issuer = Annotated[
    str,
    Field(
        names=lambda: issuers(config_folder()),
        help="The issuer, as its TOML file is named; several with commas between.",
        several=True,
    ),
]
RunName = Annotated[
    str,
    Field(
        pattern=r"[a-z0-9][a-z0-9-]*-\d{8}-[0-9a-f]{8}(-r\d+)?",
        help="The run's id.",
        offers="runs",
    ),
]
Target = Annotated[
    str,
    Field(
        pattern=r"[a-z0-9][a-z0-9-]*",
        help="The run's id; or an issuer: all of its runs; several with commas between.",
        several=True,
        offers="targets",
    ),
]
FileName = Annotated[str, Field(pattern=r"[^/\\.][^/\\]*(/[^/\\.][^/\\]*)*")]
ExtractName = Annotated[FileName, Field(offers="extracts")]
Reason = Annotated[
    str, Field(words=True, help="Why; kept in the audit trail. Never a card number.")
]
ReasonCode = Annotated[str, Field(pattern=r"[a-z_]+(\.[a-z0-9_]+){0,2}", longest=80)]
ListDigest = Annotated[str, Field(pattern=r"[0-9a-f]{12}")]
KeyName = Annotated[
    str, Field(pattern=r"[^\s+]{1,100}", form="1 to 100 characters without spaces and plus signs")
]
Number = Annotated[int, Field(least=1)]
Rows = Annotated[
    str,
    Field(
        metavar="N",
        pattern=r"[0-9]+(,[0-9]+)*",
        form="a number of rows, or several with commas between",
        help=(
            "How many rows, cards or links it is about, as the worklist or the dry run showed, a "
            "number for each issuer. Where there are more or fewer by now, nothing is decided. "
            "Rows, cardholders and chunks that are named one by one need none."
        ),
        several=True,
    ),
]
Share = Annotated[float, Field(least=0, most=1)]
Day = Annotated[date | None, Field("--date")]
DryRun = Annotated[bool, Field(help="Report what would be done, and change nothing.")]


def shown(rows: str, *, is_named: bool = False, dry_run: bool = False) -> str | None:
    """Return how many rows a decision must be about; None for a dry run, which shows them, and
    where they are named one by one.
    """
    return None if dry_run or (is_named and not rows) else rows
