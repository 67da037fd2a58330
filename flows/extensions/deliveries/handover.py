"""What is handed over to somebody, one after another: links to receivers, acknowledgements to the
issuer.

Its row is made first, in the act of a journal entry, then its files, and then the row says that
they are all there (`done_at`). So a process that dies leaves a row that the next command finishes,
and no number has two contents. What comes of it afterwards is recorded once: the first counts.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, func, select

from flows.errors import CardlinkError, TryAgainError
from flows.extensions.deliveries.formats import Confirmed, HandedOver
from flows.extensions.deliveries.settings import Destination
from flows.runs.adapters import Adapters
from flows.runs.context import IssuerContext
from flows.runs.journal import Act, enter
from flows.runs.sealing import Plain, Sealer
from flows.runs.store import Store, is_stored, read_if_stored

R = TypeVar("R", bound=HandedOver)
DONE = "done"
CONFIRMED = "confirmed"


class Line(NamedTuple, Generic[R]):
    """Whom things are handed over to: rows of a table, those that have these values (`whose`)."""

    issuer: str
    table: Table
    record: type[R]
    whose: Mapping[str, str]

    def rows(self, *which: ColumnElement[bool]) -> list[ColumnElement[bool]]:
        """Return the conditions for those of its rows of which all these hold."""
        of_key = [self.table.c[name] == value for name, value in self.whose.items()]
        return [self.table.c.issuer == self.issuer, *of_key, *which]


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


def make(act: Act, line: Line[R], number: int, record: R, **others: Any) -> bool:
    """Add the row of what is to be handed over; False where the last one has another number than
    the one before: somebody else was first.
    """
    if _last_number(act.connection, line) != number - 1:
        return False
    act.insert(line.table, **line.whose, number=number, **record.model_dump(), **others)
    return True


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


def confirm_handed(adapters: Adapters, line: Line[R], number: int, reason: str) -> Confirmed | None:
    """Record that something has come; return the first record of that, None where it is not
    complete or not there.

    Raises NoReasonError.
    """
    signed = adapters.signed(reason)
    if handed(adapters, line, number) is None:
        return None
    columns = {f"confirmed_{name}": value for name, value in signed.items()}
    return note(adapters, line, number, CONFIRMED, **columns).confirmed


def _numbered(connection: Connection, line: Line[R], number: int) -> Handed[R] | None:
    return next(iter(read_handed(connection, line, line.table.c.number == number)), None)


def _last_number(connection: Connection, line: Line[R]) -> int:
    last = select(func.max(line.table.c.number)).where(*line.rows())
    return connection.execute(last).scalar() or 0


RECEIVED = "received"  # the receipt that is dropped beside the files
RECEIPT = 1 << 16  # bytes read of one
_SHA256 = re.compile(rb"\b[0-9a-f]{64}\b")


class NotSealedError(TryAgainError):
    """gpg sealed no file for whom it is for."""

    message = (
        "{name} could not be sealed to the key of whom it is for ({trouble}). Nothing was written."
    )
    next_step = "Run {same_command} again; if it persists, check key_file of its table in the TOML."


def sealer_of(
    context: IssuerContext, settings: Destination | None
) -> AbstractContextManager[Sealer | None]:
    """Open the sealer to the key that is pinned; it is None where the files stay in clear."""
    if settings is None or settings.key_file is None or settings.fingerprint is None:
        return nullcontext()
    return context.sealer_to(settings.key_file, settings.fingerprint)


def place_of(context: IssuerContext, settings: Destination) -> Store | None:
    """Open where files are taken; None where they stay in the store."""
    return context.place_of(settings.to) if settings.to else None


def sealed(plain: Mapping[str, bytes], sealer: Sealer | None) -> dict[str, bytes]:
    """Return the files as they are handed over, by name; NotSealedError."""
    if sealer is None:
        return dict(plain)
    messages = sealer.seal([Plain(name, content) for name, content in plain.items()])
    for message in messages:
        if message.trouble:
            raise NotSealedError(name=message.name, trouble=message.trouble)
    return {f"{message.name}.pgp": message.data for message in messages}


def copy_to(
    store: Store,
    folder: str,
    names: Iterable[str],
    place: Store,
    below: str,
    done: Mapping[str, bytes],
) -> None:
    """Copy the files of a folder to a place, below a prefix, and last what says that they are
    there.

    `done`: its name, and its content. Nothing where it is there already.
    """
    [(marker, content)] = done.items()
    if is_stored(place, below + marker):
        return
    for name in names:
        file = read_if_stored(store, folder + name)
        if file is not None:  # None: retention or an erasure removed it
            place.create(below + name, file)
    place.create(below + marker, content)


class Receipts:
    """The receipts that were dropped: beside the files in the store, or where they are taken.

    A place that cannot be read has none: whoever hands files over there says so.
    """

    def __init__(self, context: IssuerContext, settings: Destination) -> None:
        self._store = context.adapters.store
        self._place: Store | None = None
        with suppress(CardlinkError):
            self._place = place_of(context, settings)

    def newest(
        self,
        sent: Sequence[Handed[R]],
        folders: Callable[[Handed[R]], tuple[str, str]],
        sums: Callable[[Handed[R]], Iterable[Collection[str]]],
    ) -> tuple[int, tuple[str, ...]]:
        """Return the number of the last one whose receipt names the SHA-256 of all of its files, 0
        where there is none, and the receipts of later ones, which name others.

        `sent`: the last ones, the first first. `folders`: where the files are in the store, and
        at their place. `sums`: of all files, in each form in which they may be named.
        """
        doubts: list[str] = []
        for each in reversed(sent):
            own, elsewhere = folders(each)
            named = self._digests(own + RECEIVED, elsewhere + RECEIVED)
            if named is None:
                continue
            if any(whole and named.issuperset(whole) for whole in sums(each)):
                return each.number, tuple(doubts)
            doubts.append(own + RECEIVED)
        return 0, tuple(doubts)

    def _digests(self, own: str, elsewhere: str) -> set[str] | None:
        """Return the SHA-256 sums that receipts name; None where there is none."""
        texts = [read_if_stored(self._store, own, RECEIPT)]
        try:
            if self._place is not None:
                texts.append(read_if_stored(self._place, elsewhere, RECEIPT))
        except CardlinkError:
            self._place = None
        present = [text for text in texts if text is not None]
        if not present:
            return None
        return {sha256.decode() for sha256 in _SHA256.findall(b" ".join(present).lower())}


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
