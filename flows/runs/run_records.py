"""Runs as the table `run` has them: read by id, by extract, or by what else is asked for."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel
from sqlalchemy import ColumnElement, Connection, select

from flows.runs.documents import record_of_row
from flows.runs.journal import plain
from schemas.database import RUN
from schemas.manifest import Manifest, Plan
from schemas.records import Abandoned

State = Literal["planned", "replaced", "abandoned", "committed"]
B = TypeVar("B", bound=BaseModel)


class RunRecord(NamedTuple):
    """A row of the table `run`: its columns are described there."""

    run: str
    as_of: date
    selection: str
    reason: str
    plan: Mapping[str, Any]
    planned_at: datetime
    state: State
    replaced_by: str | None
    abandoned_at: datetime | None
    abandoned_by: str | None
    abandoned_why: str | None
    turn: int | None
    committed_at: datetime | None
    dropped_at: datetime | None
    manifest: Mapping[str, Any] | None

    @property
    def is_ended(self) -> bool:
        """Whether the run is committed or abandoned."""
        return self.state in ("committed", "abandoned")

    def facts(self) -> dict[str, Any]:
        """Return its columns as plain facts."""
        return {name: plain(value) for name, value in self._asdict().items()}

    def planned(self) -> Plan:
        """Return its plan; RowChangedError."""
        return record_of_row(self.plan, f"run {self.run}", Plan)

    def end(self) -> Manifest | Abandoned | None:
        """Return what ended it, None where nothing did; RowChangedError."""
        match self.state:
            case "committed":
                return record_of_row(self.manifest, f"run {self.run}", Manifest)
            case "abandoned":
                facts = {
                    "run": self.run,
                    "at": self.abandoned_at,
                    "by": self.abandoned_by,
                    "reason": self.abandoned_why,
                }
                return record_of_row(facts, f"run {self.run}", Abandoned)
        return None


def records_where(
    connection: Connection, issuer: str, *which: ColumnElement[bool]
) -> list[RunRecord]:
    """Return the runs of an issuer of which all these hold, in the order of their plans."""
    columns = [RUN.c[name] for name in RunRecord._fields]
    query = select(*columns).where(RUN.c.issuer == issuer, *which).order_by(RUN.c.number)
    return [RunRecord(*row) for row in connection.execute(query)]


def record_of(connection: Connection, issuer: str, run: str) -> RunRecord | None:
    """Return a run, None where it was never planned."""
    return next(iter(records_where(connection, issuer, RUN.c.run == run)), None)
