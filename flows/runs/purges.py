"""What was purged: a row of the table `purge` for each part of a run, and for links of no run.

It is written before the first delete, so that a purge which was killed is finished by the next.
"""

from typing import Any

from sqlalchemy import ColumnElement, func, select

from flows.runs.adapters import Adapters
from flows.runs.documents import record_of_row
from flows.runs.journal import Act
from schemas.database import PURGE
from schemas.records import Part, Purged


def add_purge(act: Act, record: Purged) -> None:
    """Record that a part is purged; what others recorded meanwhile stands."""
    of_part = select(PURGE.c.number).where(act.row(PURGE, {"run": record.run, "part": record.part}))
    if record.run and act.connection.execute(of_part).first():
        return
    last = select(func.max(PURGE.c.number)).where(PURGE.c.issuer == act.issuer)
    values: dict[str, Any] = record.model_dump(mode="json")
    moments = {"at": record.at, "since": record.since, "run": record.run or None}
    number = (act.connection.execute(last).scalar() or 0) + 1
    act.insert(PURGE, number=number, **{**values, **moments})


def purges(adapters: Adapters, issuer: str, *which: ColumnElement[bool]) -> list[Purged]:
    """Return the records of purges of which all these hold, the oldest first."""
    columns = [PURGE.c[name] for name in Purged.model_fields]
    query = select(*columns).where(PURGE.c.issuer == issuer, *which).order_by(PURGE.c.number)
    with adapters.database.snapshot() as connection:
        rows = connection.execute(query).mappings().all()
    facts = [{**row, "run": row["run"] or ""} for row in rows]
    return [record_of_row(each, f"A purge of {each['part']}", Purged) for each in facts]


def purge_of(adapters: Adapters, issuer: str, run: str, part: Part) -> Purged | None:
    """Return the record that a part of a run was purged; None where it was not."""
    records = purges(adapters, issuer, PURGE.c.run == run, PURGE.c.part == part)
    return records[0] if records else None


def last_purge(adapters: Adapters, issuer: str) -> Purged | None:
    """Return the last record of a purge; None before the first."""
    last = select(func.max(PURGE.c.number)).where(PURGE.c.issuer == issuer).scalar_subquery()
    records = purges(adapters, issuer, PURGE.c.number == last)
    return records[0] if records else None


def purged_runs(adapters: Adapters, issuer: str, part: Part) -> frozenset[str]:
    """Return the runs of which a part was purged."""
    query = select(PURGE.c.run).where(
        PURGE.c.issuer == issuer, PURGE.c.part == part, PURGE.c.run.is_not(None)
    )
    with adapters.database.snapshot() as connection:
        return frozenset(connection.execute(query).scalars())
