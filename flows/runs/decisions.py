"""What people decided, kind by kind: records of `schemas/records.py` in the table `decision`."""

from typing import Any, TypeVar

from sqlalchemy import func, select

from flows.runs.adapters import Adapters
from flows.runs.journal import Act
from schemas.database import DECISION
from schemas.records import Record

R = TypeVar("R", bound=Record)
_OWN = ("at", "by", "reason")  # fields that are columns


def decide(act: Act, kind: str, subject: str, record: Record) -> int:
    """Add a decision about a subject within an act; return its number."""
    last = select(func.max(DECISION.c.number)).where(DECISION.c.issuer == act.issuer)
    number = (act.connection.execute(last).scalar() or 0) + 1
    facts: dict[str, Any] = record.model_dump(mode="json", exclude=set(_OWN))
    act.insert(
        DECISION,
        number=number,
        kind=kind,
        subject=subject,
        at=record.at,
        by=record.by,
        reason=record.reason,
        facts=facts,
    )
    return number


def decisions(
    adapters: Adapters, issuer: str, kind: str, record: type[R], subject: str | None = None
) -> list[R]:
    """Return the decisions of a kind, the oldest first; `subject`: those about it alone."""
    columns = (DECISION.c.at, DECISION.c.by, DECISION.c.reason, DECISION.c.facts)
    query = select(*columns).where(DECISION.c.issuer == issuer, DECISION.c.kind == kind)
    if subject is not None:
        query = query.where(DECISION.c.subject == subject)
    with adapters.database.snapshot() as connection:
        rows = connection.execute(query.order_by(DECISION.c.number)).all()
    return [
        record.model_validate({**facts, "at": at, "by": by, "reason": reason})
        for at, by, reason, facts in rows
    ]
