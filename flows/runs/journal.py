"""The journal of an issuer: who did what, when; an entry in the transaction of each act.

An entry has the digest of the one before, the rows that the act wrote, and, where the process has
the key, a proof. So a row or an entry that somebody else changed does not fit any more.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, insert, select, update

from flows.redaction import redact
from flows.runs.adapters import Adapters
from flows.runs.identity import canonical, digest
from schemas.database import JOURNAL

T = TypeVar("T")
COMMAND = "command"  # the fact of a decision that says by which command line it was made
_SEALED = ("digest", "proof")  # columns of an entry that are made of the others


class Act:
    """A transaction in which an act is done: what it writes is in its journal entry.

    Rows that follow from others are written by the `connection` alone.
    """

    def __init__(self, connection: Connection, issuer: str, run: str | None = None) -> None:
        self.connection = connection
        self.issuer = issuer
        self.run = run
        self.changes: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {}
        self.notes: list[tuple[str, str, dict[str, Any]]] = []  # what was done to which run, facts

    @property
    def number(self) -> int:
        """The number of its journal entry."""
        return _newest(self.connection, self.issuer)[0] + 1

    def insert(self, table: Table, **values: Any) -> None:
        """Insert a row of the issuer."""
        self.connection.execute(insert(table).values(issuer=self.issuer, **values))
        self._change(table, values)

    def update(self, table: Table, key: Mapping[str, Any], **values: Any) -> None:
        """Set columns of the row of the issuer that has this key."""
        self.connection.execute(update(table).where(self.row(table, key)).values(**values))
        self._change(table, values, key)

    def delete(self, table: Table, key: Mapping[str, Any]) -> None:
        """Delete the row of the issuer that has this key."""
        self.connection.execute(delete(table).where(self.row(table, key)))
        self._change(table, None, key)

    def note(self, what: str, run: str, /, **facts: Any) -> None:
        """Say in an entry of its own what the act does to a run."""
        self.notes.append((what, run, facts))

    def row(self, table: Table, key: Mapping[str, Any]) -> ColumnElement[bool]:
        """Return the condition for the issuer's rows that have these values."""
        of_key = [table.c[name] == value for name, value in key.items()]
        return and_(table.c.issuer == self.issuer, *of_key)

    def _change(
        self, table: Table, values: Mapping[str, Any] | None, key: Mapping[str, Any] | None = None
    ) -> None:
        change: dict[str, Any] = {"table": table.name, "values": values and plain(values)}
        if key is not None:
            change["key"] = plain(key)
        self.changes.append(change)


def enter(
    adapters: Adapters,
    issuer: str,
    what: str,
    work: Callable[[Act], T],
    *,
    run: str | None = None,
    reason: str = "",
) -> T:
    """Do one act of an issuer, in one transaction with its journal entry; return what `work` does.

    Nothing is entered where `work` neither writes nor notes anything. `work` may be repeated whole,
    so it changes nothing outside. `run`: which it is done to; an act that finds out sets its own.
    """

    def act(connection: Connection) -> T:
        doing = Act(connection, issuer, run)
        result = work(doing)
        own = (what, doing.run, doing.facts, doing.changes)
        entries = [own] if doing.changes or doing.facts else []
        if reason and adapters.command:
            doing.facts[COMMAND] = adapters.command
        entries += [(done, of_run, facts, []) for done, of_run, facts in doing.notes]
        for done, of_run, facts, changes in entries:
            entry = {
                "at": adapters.now().astimezone(UTC),
                "by": redact(adapters.actor),
                "what": done,
                "run": of_run,
                "reason": reason,
                "facts": plain(facts),
                "changes": changes,
            }
            connection.execute(
                insert(JOURNAL).values(**_chained(adapters, connection, issuer, entry))
            )
        return result

    return adapters.database.act(issuer, act)


class Entry(NamedTuple):
    """An entry of the journal, as people read it."""

    number: int
    at: datetime
    by: str
    what: str
    run: str | None
    reason: str
    facts: Mapping[str, Any]


def entries(adapters: Adapters, issuer: str, *which: ColumnElement[bool]) -> list[Entry]:
    """Return the entries of an issuer's journal of which all these hold, the oldest first."""
    columns = [JOURNAL.c[name] for name in Entry._fields]
    query = select(*columns).where(JOURNAL.c.issuer == issuer, *which).order_by(JOURNAL.c.number)
    with adapters.database.snapshot() as connection:
        return [Entry(*row) for row in connection.execute(query)]


def last_number(adapters: Adapters, issuer: str, run: str, apart: str = "") -> int:
    """Return the number of the last entry about a run, `apart` from those of an act; 0 without."""
    entry = JOURNAL.c
    last = select(func.max(entry.number)).where(entry.issuer == issuer, entry.run == run)
    with adapters.database.snapshot() as connection:
        return connection.scalar(last.where(entry.what != apart)) or 0


def content_of(entry: Mapping[str, Any]) -> bytes:
    """Return what digest and proof of an entry are of: its columns as canonical JSON."""
    return canonical(plain({name: entry[name] for name in entry if name not in _SEALED}))


def _newest(connection: Connection, issuer: str) -> tuple[int, str]:
    """Return number and digest of the issuer's last entry; 0 and "" before the first."""
    last = select(JOURNAL.c.number, JOURNAL.c.digest).where(JOURNAL.c.issuer == issuer)
    newest = connection.execute(last.order_by(JOURNAL.c.number.desc()).limit(1)).first()
    return (newest.number, newest.digest) if newest else (0, "")


def _chained(
    adapters: Adapters, connection: Connection, issuer: str, entry: Mapping[str, Any]
) -> dict[str, Any]:
    """Return an entry with number, digests and proof, as the next of the issuer's journal."""
    number, before = _newest(connection, issuer)
    prover = adapters.prover
    chained = {
        **entry,
        "issuer": issuer,
        "number": number + 1,
        "before": before,
        "proved_by": prover.key,
    }
    content = content_of(chained)
    return {**chained, "digest": digest(content), "proof": prover.proof(content)}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: times in UTC and days as ISO texts."""
    match value:
        case datetime() | date():
            return value.isoformat()
        case Mapping():
            return {name: plain(each) for name, each in value.items()}
        case str():
            return value
        case Sequence():
            return [plain(each) for each in value]
        case _:
            return value
