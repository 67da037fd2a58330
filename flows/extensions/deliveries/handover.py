"""What is handed over to somebody, one after another: links to receivers, acknowledgements to the
issuer.

Its row is made first, in the act of a journal entry, then its files, then its marker, which says
that they are all there, and then the row says so too (`done_at`). So a process that dies leaves a
row that a later command finishes or supersedes, and no number has two contents. What comes of it
afterwards is recorded once: the first counts.

Level-triggered, as alerts are: whichever command comes next brings whoever it is for whatever the
last one lacks, until it is there. A place that is down fails nothing: why it cannot be reached is
kept with the row, and it is left alone for a while that doubles from attempt to attempt.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, func, select

from flows.errors import CardlinkError, OperatorError, TryAgainError
from flows.extensions.deliveries.formats import Confirmed, HandedOver
from flows.extensions.deliveries.settings import DEFAULT, Destination
from flows.extensions.deliveries.webhook import Answer
from flows.runs.adapters import Adapters
from flows.runs.context import IssuerContext
from flows.runs.errors import NotFoundError
from flows.runs.journal import Act, enter
from flows.runs.sealing import Plain, Sealer
from flows.runs.store import Store, is_stored, read, read_if_stored
from flows.runs.stored_journal import flush_journal
from flows.steps import Step

R = TypeVar("R", bound=HandedOver)
DONE = "done"
CONFIRMED = "confirmed"
MARKER = "done.json"  # written last: whoever reads takes only folders that have it
FIRST_WAIT = timedelta(minutes=5)
LONGEST_WAIT = timedelta(hours=6)
DOUBLINGS = 8  # after which the wait is the longest in any case
IS_THERE = Answer(is_taken=True)


class NotSealedError(TryAgainError):
    """gpg sealed no file for whom it is for."""

    message = (
        "{name} could not be sealed to the key of whom it is for ({trouble}). Nothing was written."
    )
    next_step = "Run {same_command} again; if it persists, check key_file of its table in the TOML."


class HandedOverMeanwhileError(TryAgainError):
    """Another process has just made the next delivery or acknowledgement."""

    message = "Another command made {what} {number} of {issuer} meanwhile. Nothing was written."
    next_step = "Run {same_command} again: it hands over what is new after that one."


class NotReachedError(OperatorError):
    """Somebody has not got what was handed over last."""

    message = "{whom} has not got what was handed over last, since {since}: {problem}."
    next_step = "Ask there, or correct its table in the TOML; it is tried again by itself."


class Line(NamedTuple, Generic[R]):
    """Whom things are handed over to: rows of a table, those that have these values (`whose`).

    `own`: where its folders are, below the issuer's; `below`: the same where they are taken.
    """

    issuer: str
    table: Table
    record: type[R]
    whose: Mapping[str, str]
    own: str
    below: str

    def rows(self, *which: ColumnElement[bool]) -> list[ColumnElement[bool]]:
        """Return the conditions for those of its rows of which all these hold."""
        of_key = [self.table.c[name] == value for name, value in self.whose.items()]
        return [self.table.c.issuer == self.issuer, *of_key, *which]

    def folder(self, number: int) -> str:
        """Return the prefix of the files with a number, in the store."""
        return f"{self.issuer}/{self.own}/{number:06d}/"

    def place(self, number: int) -> str:
        """Return the prefix of the files with a number, where they are taken."""
        return f"{self.issuer}/{self.below}/{number:06d}/"


class Trouble(NamedTuple):
    """Why the last one has not come: columns of its row.

    `failing_since`, `tried_at`: the first and the last of the `tries` in a row that failed.
    """

    tries: int
    problem: str
    failing_since: datetime
    tried_at: datetime
    not_before: datetime


class Handed(NamedTuple, Generic[R]):
    """What was handed over under a number: what was made (`record`), and the columns of its row."""

    number: int
    record: R
    row: Mapping[str, Any]

    @property
    def is_done(self) -> bool:
        """Whether all of its files were in the store."""
        return self.row["done_at"] is not None

    @property
    def confirmed(self) -> Confirmed | None:
        """Who recorded that it has come, when and why; None where nobody has."""
        if self.row["confirmed_at"] is None:
            return None
        return Confirmed(**{name: self.row[f"confirmed_{name}"] for name in Confirmed.model_fields})

    @property
    def trouble(self) -> Trouble | None:
        """Why it has not come; None where nothing is in the way."""
        if not self.row["tries"]:
            return None
        return Trouble(*(self.row[name] for name in Trouble._fields))


def read_handed(
    connection: Connection, line: Line[R], *which: ColumnElement[bool]
) -> list[Handed[R]]:
    """Return what was handed over, the first first; `which`: only that."""
    query = select(line.table).where(*line.rows(*which)).order_by(line.table.c.number)
    rows = [dict(row) for row in connection.execute(query).mappings()]
    fields = line.record.model_fields
    return [
        Handed(row["number"], line.record(**{name: row[name] for name in fields}), row)
        for row in rows
    ]


def handed(adapters: Adapters, line: Line[R], number: int) -> Handed[R] | None:
    """Return what was handed over under a number; None where nothing was."""
    with adapters.database.snapshot() as connection:
        return _numbered(connection, line, number)


def last_handed(adapters: Adapters, line: Line[R]) -> Handed[R] | None:
    """Return what was handed over last; None where nothing was."""
    with adapters.database.snapshot() as connection:
        return _numbered(connection, line, _last_number(connection, line))


def make(act: Act, line: Line[R], number: int, record: R, **others: Any) -> None:
    """Add the row of what is to be handed over; what stands in the way goes on until somebody is
    reached.
    """
    last = _numbered(act.connection, line, _last_number(act.connection, line))
    failing = last.trouble._asdict() if last and last.trouble else {"tries": 0}
    values = {**failing, **record.model_dump(), **others}
    act.insert(line.table, **line.whose, number=number, **values)


def note(adapters: Adapters, line: Line[R], number: int, step: str, **others: Any) -> Handed[R]:
    """Record once that a step came (`done`, `confirmed`, …) and when; return what is recorded.

    `others`: more columns, of which `confirmed_reason` is why. What is not complete comes to
    nobody: of that no other step is recorded.
    """

    def work(act: Act) -> Handed[R]:
        [known] = read_handed(act.connection, line, line.table.c.number == number)
        if known.row[f"{step}_at"] is not None or not (known.is_done or step == DONE):
            return known
        values = {f"{step}_at": adapters.now(), **others}
        act.update(line.table, {**line.whose, "number": number}, **values)
        return known._replace(row={**known.row, **values})

    reason = others.get("confirmed_reason", "")
    return enter(adapters, line.issuer, f"{line.table.name} {step}", work, reason=reason)


def confirm_handed(
    context: IssuerContext, line: Line[R], number: int, reason: str, listing: Step
) -> Confirmed:
    """Record that something has come; return the first record of that.

    Raises NotFoundError where it is not complete or not there; `listing` shows what is.
    NoReasonError.
    """
    adapters = context.adapters
    signed = adapters.signed(reason)
    columns = {f"confirmed_{name}": value for name, value in signed.items()}
    confirmed = None
    if handed(adapters, line, number) is not None:
        confirmed = note(adapters, line, number, CONFIRMED, **columns).confirmed
    if confirmed is None:
        to = [f" to {whose}" for whose in line.whose.values() if whose != DEFAULT]
        missing = f"complete {line.table.name} {number}{''.join(to)}"
        raise NotFoundError(place=line.issuer, what=missing, command=listing)
    return confirmed


def _numbered(connection: Connection, line: Line[R], number: int) -> Handed[R] | None:
    return next(iter(read_handed(connection, line, line.table.c.number == number)), None)


def _last_number(connection: Connection, line: Line[R]) -> int:
    last = select(func.max(line.table.c.number)).where(*line.rows())
    return connection.execute(last).scalar() or 0


# Writing
# --------------------------------------------------------------------------------------------------


def sealer_of(
    context: IssuerContext, settings: Destination
) -> AbstractContextManager[Sealer | None]:
    """Open the sealer to the key that is pinned; it is None where the files stay in clear."""
    if settings.key_file is None or settings.fingerprint is None:
        return nullcontext()
    return context.sealer_to(settings.key_file, settings.fingerprint)


def sealed(plain: Mapping[str, bytes], sealer: Sealer | None) -> dict[str, bytes]:
    """Return the files as they are handed over, by name; NotSealedError."""
    if sealer is None:
        return dict(plain)
    messages = sealer.seal([Plain(name, content) for name, content in plain.items()])
    for message in messages:
        if message.trouble:
            raise NotSealedError(name=message.name, trouble=message.trouble)
    return {f"{message.name}.pgp": message.data for message in messages}


def free_number(context: IssuerContext, line: Line[R], last: int) -> int:
    """Return the next number of which the store has nothing: a lost database may have had it."""
    number = last + 1
    while next(iter(context.adapters.store.keys(line.folder(number))), None) is not None:
        number += 1
    return number


def begin(
    context: IssuerContext,
    line: Line[R],
    number: int,
    record: R,
    also: Callable[[Act], None],
    *,
    after: int,
    **columns: Any,
) -> None:
    """Make the row of what is to be handed over after a number, and first what goes with it.

    Raises HandedOverMeanwhileError.
    """
    kind = line.table.name

    def work(act: Act) -> None:
        if _last_number(act.connection, line) != after:
            raise HandedOverMeanwhileError(what=kind, issuer=line.issuer, number=number)
        also(act)
        make(act, line, number, record, **columns)

    enter(context.adapters, line.issuer, f"{kind} made", work)


def complete(
    context: IssuerContext,
    line: Line[R],
    number: int,
    files: Mapping[str, bytes],
    marker: Callable[[], bytes],
) -> None:
    """Write files, unless they are there, then the marker, and that they are all there."""
    store = context.adapters.store
    for name, content in files.items():
        store.create(line.folder(number) + name, content)
    store.create(line.folder(number) + MARKER, marker())
    note(context.adapters, line, number, DONE)


# Bringing
# --------------------------------------------------------------------------------------------------


def bring(
    context: IssuerContext,
    line: Line[R],
    settings: Destination,
    marker: str = MARKER,
    announce: Callable[[Handed[R]], Answer] = lambda _: IS_THERE,
    *,
    at_once: bool = True,
) -> str:
    """Bring the last one to whoever it is for, as far as that is not done; return why that cannot
    be done, "" where it is.

    `marker`: its name there. `announce` says that it is there. `at_once`: also to somebody who is
    left alone for a while.
    """
    last = last_handed(context.adapters, line)
    if last is None:
        return ""
    if not last.is_done and is_stored(context.adapters.store, line.folder(last.number) + MARKER):
        last = note(context.adapters, line, last.number, DONE)  # its process died in between
    trouble = last.trouble
    if trouble and not at_once and context.adapters.now() < trouble.not_before:
        return trouble.problem
    flush_journal(context.adapters, line.issuer)
    try:
        answer = _attempt(context, line, settings, marker, announce, last)
    except CardlinkError as error:  # a problem, too
        answer = Answer(is_taken=False, problem=error.what_happened)
    if trouble or not answer.is_taken:
        _note_attempt(context, line, last.number, answer)
    return "" if answer.is_taken else answer.problem


def _attempt(
    context: IssuerContext,
    line: Line[R],
    settings: Destination,
    marker: str,
    announce: Callable[[Handed[R]], Answer],
    last: Handed[R],
) -> Answer:
    """Hand the last one over, as far as it is not there."""
    store = context.adapters.store
    folder = line.folder(last.number)
    # its files are gone, or a later command finishes them
    if last.confirmed or not last.is_done or not is_stored(store, folder + max(last.record.names)):
        return IS_THERE
    place = place_of(context, settings)
    if place is not None:
        _copy(store, folder, last.record.names, place, line.place(last.number), marker)
    return announce(last)


def place_of(context: IssuerContext, settings: Destination) -> Store | None:
    """Open where files are taken; None where they stay in the store."""
    return context.place_of(settings.to) if settings.to else None


def place_lines(context: IssuerContext, settings: Destination) -> list[str]:
    """Return what is fine about a key and a place, by a trial seal and a listing."""
    lines = []
    with sealer_of(context, settings) as sealer:
        if sealer is not None:
            lines.append(f"{settings.fingerprint}: the trial seal is as expected")
    place = place_of(context, settings)
    if place is not None:
        count = sum(1 for _ in place.keys("", shallow=True))
        lines.append(f"{settings.to}: can be listed, {count:,} objects")
    return lines or ["stays in the store, in clear"]


def _copy(
    store: Store, folder: str, names: Sequence[str], place: Store, below: str, marker: str
) -> None:
    """Copy the files of a folder to a place, below a prefix, and last the marker; nothing where
    that is there already.
    """
    if is_stored(place, below + marker):
        return
    for name in names:
        file = read_if_stored(store, folder + name)
        if file is not None:  # None: retention or an erasure removed it
            place.create(below + name, file)
    place.create(below + marker, read(store, folder + MARKER))


def _note_attempt(context: IssuerContext, line: Line[R], number: int, answer: Answer) -> None:
    """Keep why somebody was not reached, and from when it is tried again; or that they were."""

    def work(act: Act) -> None:
        [known] = read_handed(act.connection, line, line.table.c.number == number)
        failed = {} if answer.is_taken else _failed(context.adapters.now(), answer, known.trouble)
        act.update(
            line.table,
            {**line.whose, "number": number},
            **{"tries": 0, **dict.fromkeys(Trouble._fields[1:]), **failed},
        )

    enter(context.adapters, line.issuer, f"{line.table.name} tried", work)


def _failed(now: datetime, answer: Answer, earlier: Trouble | None) -> dict[str, Any]:
    """Return what is kept of an attempt that failed: Trouble."""
    tries = 1 + (earlier.tries if earlier else 0)
    wait = min(FIRST_WAIT * 2 ** min(tries - 1, DOUBLINGS), LONGEST_WAIT)
    since = earlier.failing_since if earlier else now
    not_before = max(now + wait, answer.not_before or now)
    return Trouble(tries, answer.problem, since, now, not_before)._asdict()
