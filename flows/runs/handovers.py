"""What is handed over to somebody, one after another: links to receivers, for instance.

Its row is made first, in the act of a journal entry, then its files, and then the row says that
they are all there (`done_at`). So a process that dies leaves a row that the next command finishes,
and no number has two contents. What comes of it afterwards is recorded once: the first counts.
"""

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, func, select

from flows.runs.adapters import Adapters
from flows.runs.journal import Act, enter
from schemas.records import Confirmed, HandedOver

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
