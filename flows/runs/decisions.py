"""What people decided, kind by kind: records of `schemas/records.py` in the table `decision`.

What is decided is checked in the transaction in which it is written: there readers are given
`adapters.within` the act, so that of two people who decide at once one sees what the other did.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, func, select

from flows.runs.adapters import Adapters
from flows.runs.documents import record_of_row
from flows.runs.journal import COMMAND, Act, Entry, entries, plain
from schemas.database import DECISION, JOURNAL, METADATA
from schemas.records import Record

EXTRACT: Final = "extract"  # by the digest of its content
DAY: Final = "day"
FORM: Final = "link form"
BREAK: Final = "break"  # by run
ANSWER: Final = "answer"  # by run
CARDS: Final = "cards"
LINKS: Final = "links"
RESEAL: Final = "chunks"  # by run
LEDGER: Final = "ledger"  # by run
ERASURE: Final = "cardholders"
RESULT_ROW: Final = "result row"  # by the digest of its file's key

R = TypeVar("R", bound=Record)
_OWN = ("at", "by", "reason")  # fields that are columns


def decide(act: Act, kind: str, subject: str, record: Record, stands: str | None = None) -> int:
    """Add a decision about a subject within an act; return its number.

    `stands`: what of the subject is decided, which nothing else decides until that is taken back.
    """
    last = select(func.max(DECISION.c.number)).where(DECISION.c.issuer == act.issuer)
    number = (act.connection.execute(last).scalar() or 0) + 1
    facts: dict[str, Any] = record.model_dump(mode="json", exclude=set(_OWN))
    act.insert(
        DECISION,
        number=number,
        kind=kind,
        subject=subject,
        stands=stands,
        at=record.at,
        by=record.by,
        reason=record.reason,
        facts=facts,
    )
    return number


def lift(act: Act, kind: str, subject: str, stands: str) -> None:
    """Let what stands, if anything, stand no more: a later one takes it back or replaces it."""
    standing = {"kind": kind, "subject": subject, "stands": stands}
    if act.connection.execute(select(DECISION.c.number).where(act.row(DECISION, standing))).first():
        act.update(DECISION, standing, stands=None)


def decisions(
    adapters: Adapters,
    issuer: str,
    kind: str,
    record: type[R],
    subject: str | None = None,
    *,
    standing: bool = False,
) -> list[R]:
    """Return the decisions of a kind, the oldest first; RowChangedError.

    `subject`: those about it alone; `standing`: those that are not taken back.
    """
    which = [] if subject is None else [DECISION.c.subject == subject]
    if standing:
        which.append(DECISION.c.stands.is_not(None))
    return [decision for _, decision in _read(adapters, issuer, kind, record, *which)]


def decisions_by_subject(
    adapters: Adapters, issuer: str, kind: str, record: type[R]
) -> dict[str, tuple[R, ...]]:
    """Return the decisions of a kind by subject, the oldest first."""
    by_subject = defaultdict[str, list[R]](list)
    for subject, decision in _read(adapters, issuer, kind, record):
        by_subject[subject].append(decision)
    return {subject: tuple(chain) for subject, chain in by_subject.items()}


def standing_subjects(adapters: Adapters, issuer: str, kind: str) -> frozenset[str]:
    """Return the subjects of the decisions of a kind that stand."""
    query = select(DECISION.c.subject).where(
        DECISION.c.issuer == issuer, DECISION.c.kind == kind, DECISION.c.stands.is_not(None)
    )
    with adapters.database.snapshot() as connection:
        return frozenset(connection.execute(query).scalars())


def count_decisions(adapters: Adapters, issuer: str, kind: str, subject: str) -> int:
    """Return how many decisions of a kind there are about a subject, also those taken back."""
    query = select(func.count()).where(
        DECISION.c.issuer == issuer, DECISION.c.kind == kind, DECISION.c.subject == subject
    )
    with adapters.database.snapshot() as connection:
        return connection.execute(query).scalar_one()


def decision_rows(
    adapters: Adapters, issuer: str, subjects: Collection[str]
) -> list[dict[str, Any]]:
    """Return all decisions about some subjects as plain facts, the oldest first."""
    query = select(DECISION).where(
        DECISION.c.issuer == issuer, DECISION.c.subject.in_(list(subjects))
    )
    with adapters.database.snapshot() as connection:
        rows = connection.execute(query.order_by(DECISION.c.number)).mappings().all()
    return [{**row, "at": row["at"].isoformat()} for row in rows]


def done_before(adapters: Adapters, issuer: str, command: str) -> Entry | None:
    """Return what a command line did when it was given last; None where it did nothing, or what it
    wrote is something else by now.
    """
    is_by_command = JOURNAL.c.facts[COMMAND].as_string() == command
    done = entries(adapters, issuer, is_by_command)
    if not done:
        return None
    of_entry = (JOURNAL.c.issuer == issuer, JOURNAL.c.number == done[-1].number)
    with adapters.database.snapshot() as connection:
        changes = connection.execute(select(JOURNAL.c.changes).where(*of_entry)).scalar_one()
        stands = all(_stands(connection, issuer, change) for change in changes)
    return done[-1] if changes and stands else None


def _stands(connection: Connection, issuer: str, change: Mapping[str, Any]) -> bool:
    """Return whether a row is as an entry of the journal says that it was written."""
    table = METADATA.tables.get(change["table"])
    if table is None:  # of an extension that was taken away
        return False
    values = change["values"] or {}
    key = change.get("key") or {
        column.name: values[column.name] for column in table.primary_key if column.name in values
    }
    key |= {name: value for name, value in values.items() if name in key}
    query = select(table).where(
        table.c.issuer == issuer, *(table.c[name] == value for name, value in key.items())
    )
    row = connection.execute(query).mappings().first()
    if row is None or not values:
        return row is None and not values
    written = {name: _plain(row[name]) for name in values}
    return written == values


def _plain(value: Any) -> Any:
    return plain(value.astimezone(UTC) if isinstance(value, datetime) else value)


def _read(
    adapters: Adapters, issuer: str, kind: str, record: type[R], *which: ColumnElement[bool]
) -> list[tuple[str, R]]:
    """Return the decisions of a kind of which all these hold, each with its subject."""
    columns = (DECISION.c[name] for name in ("subject", "facts", *_OWN))
    query = select(*columns).where(DECISION.c.issuer == issuer, DECISION.c.kind == kind, *which)
    with adapters.database.snapshot() as connection:
        rows = connection.execute(query.order_by(DECISION.c.number)).all()
    place = f"A decision ({kind})"
    return [
        (subject, record_of_row({**facts, **dict(zip(_OWN, own, strict=True))}, place, record))
        for subject, facts, *own in rows
    ]
