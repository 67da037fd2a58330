"""Parts that the outcomes of several commands have."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict


class Counts(TypedDict):
    """Rows of an extract by where they went; `trailer` is the count that it names itself.

    `set_aside`: lines that are no rows, by kind.
    """

    lines: int
    read: int
    submitted: int
    rejected: int
    duplicate: int
    suppressed: int
    trailer: int | None
    set_aside: dict[str, int] | None


class CommittedRun(TypedDict):
    """A run that a command committed, or that was committed `already`."""

    run: str
    counts: Counts
    reasons: dict[str, int]
    repairs: dict[str, int]
    already: bool
    chunks: int
    remarks: list[str]


class ReasonRows(TypedDict):
    """How many rows a reason concerns, and the first of them."""

    code: str
    rows: int
    lines: list[int]


class CheckedExtract(TypedDict):
    """What a dry run says of an extract."""

    extract: str
    run: str
    as_of: date
    counts: Counts
    chunks: int
    chunk_rows: list[int]
    found: list[ReasonRows]
    repairs: dict[str, int]
    refused: str
    already: str
    columns: list[str]
    remarks: list[str]
    others: str


class Chunk(TypedDict):
    """A chunk of the outbox: its file, and what was done with it."""

    run: str
    number: int
    name: str
    rows: int
    bytes: int
    sha256: str
    state: str
    since: datetime
    clock: datetime
    reason: str


class Decision(TypedDict):
    """What can be decided, its effect, and the command that does so."""

    decision: str
    effect: str
    command: str


class Break(TypedDict):
    """Something that does not balance."""

    name: str
    rows: int
    place: str
    then: str
    run: str
    since: datetime
    meaning: str
    decide: list[Decision]
    notice: bool


class BalanceLine(TypedDict):
    """One equation of the balance."""

    name: str
    left: int
    right: int
    closed: int
    holds: bool
    difference: int


class Waits(TypedDict):
    """Who has a link, and for whom the others wait."""

    cards: int
    linked: int
    waits: dict[str, int]
    sentence: str


class OpenWork(TypedDict):
    """What a run still waits for."""

    result: Waits
    cancelled: int  # rows of cancelled chunks
    sent: datetime
    answer_within_hours: int
    overdue: dict[str, int]
    items: list[dict[str, Any]]


class Hours(TypedDict):
    """Hours from the drop to the link."""

    since: str
    start: datetime | None
    links: int
    median: float | None
    slowest: float | None
    within: int
    share: float | None
    spread: dict[str, int]


class Report(TypedDict):
    """The summary of a run's report, as summary.json has it."""

    run: str
    as_of: date
    issuer: str
    seen: datetime
    verdict: str
    rows: dict[str, int]
    chunks: dict[str, int]
    open: OpenWork
    balance: list[BalanceLine]
    breaks: list[Break]
    more_breaks: int
    reasons: dict[str, list[dict[str, Any]]]
    expires: dict[str, int]
    hours: Hours


class ExtractState(TypedDict):
    """An extract: what became of it, and why."""

    key: str
    state: str
    sha256: str
    run: str
    other: str
    entry: bool
    dismissals: list[dict[str, Any]]
    waits: str
    why: list[str]


class RunStatus(TypedDict):
    """A run in words, and where its rows are: null before the commit."""

    run: str
    state: str
    read: int | None
    linked: int | None
    error: int | None
    awaiting: int | None
    rejected: int | None
    ineligible: int | None
    duplicate: int | None
    suppressed: int | None
    why: str


class WorkLine(TypedDict):
    """Something to do: `first` is the command to begin with, `each` what the line consists of."""

    due: datetime
    kind: str
    issuer: str
    run: str
    runs: int
    rows: int
    age_seconds: int
    who: str
    matter: str
    first: str
    decisions: list[Decision]
    each: NotRequired[list[dict[str, Any]]]


class Event(TypedDict):
    """What happened to a run."""

    at: datetime
    what: str
    by: str
    facts: dict[str, Any]


class NamedBreak(TypedDict):
    """A break by its name and place."""

    name: str
    rows: int
    place: str


class Finding(TypedDict):
    """An object that is not as the audit trail names it."""

    key: str
    what: str
    entry: int
    by: str
    at: datetime | Literal[""]  # where no entry names it


class CheckedPart(TypedDict):
    """One of the things that `check` looks at."""

    part: str
    text: str
    error: str
    exit_code: int


class LinkForm(TypedDict):
    """A form of the partner's links, and who confirmed it."""

    form: str
    state: str
    links: int
    by: NotRequired[str]
    at: NotRequired[datetime]
    reason: NotRequired[str]


# a function, since `from` is no name in a class
CheckedColumn = TypedDict(
    "CheckedColumn",
    {"column": str, "from": str, "filled": float, "shapes": str, "verdicts": str},
)
