"""Runs that are put into a database as they would stand there, without the work before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from flows.book.known_runs import KnownPlan
from flows.runs.adapters import Adapters
from flows.runs.chunks import as_offered
from flows.runs.journal import Entry
from flows.runs.keys import RunId, keys_of
from schemas.database import CHUNK, RUN
from schemas.manifest import Counts, Manifest, Plan, SourceIdentity
from schemas.rules import RECIPE

COUNTS = Counts(lines=1, read=1, submitted=1, rejected=0, duplicate=0, suppressed=0)


def a_plan(run: str, **otherwise: Any) -> Plan:
    """Return a plan of a run, of an extract that is nowhere."""
    keys = keys_of(run)
    source = SourceIdentity(
        key=f"{keys.run.issuer}/extracts/{run}.csv", version="1", size=1, sha256=keys.run.sha8 * 8
    )
    fields: dict[str, Any] = {
        "run": run,
        "source": source,
        "as_of": keys.run.day,
        "settings_sha256": "0" * 64,
        "settings": {},
        "recipe": RECIPE,
        "recipients": ("A" * 40,),
        "release": "1.2.3",
    }
    return Plan(**fields | otherwise)


def a_manifest(plan: Plan, **otherwise: Any) -> Manifest:
    """Return the manifest of a plan, by default of nothing that was sent."""
    shared = {
        name: getattr(plan, name) for name in set(Manifest.model_fields) & set(Plan.model_fields)
    }
    fields = {"counts": COUNTS, "reasons": {}, "repairs": {}, "chunks": (), "ledger": ()}
    return Manifest(**shared | fields | otherwise)


def plant(adapters: Adapters, plan: Plan, *, at: datetime | None = None, **columns: Any) -> str:
    """Store a run that was planned; `columns` are others of the table `run`."""
    issuer = keys_of(plan.run).run.issuer

    def write(connection: Connection) -> None:
        number = connection.scalar(select(func.max(RUN.c.number)).where(RUN.c.issuer == issuer))
        values = {
            "issuer": issuer,
            "run": plan.run,
            "number": (number or 0) + 1,
            "source_key": plan.source.key,
            "source_version": plan.source.version,
            "source_size": plan.source.size,
            "source_sha256": plan.source.sha256,
            "as_of": plan.as_of,
            "selection": plan.selection.sha256 if plan.selection else "",
            "repeats": plan.selection.of if plan.selection else None,
            "reason": plan.reason,
            "plan": plan.model_dump(mode="json"),
            "planned_at": at or adapters.now(),
            "state": "planned",
            "report_due": False,
        }
        connection.execute(insert(RUN).values(**values | columns))

    adapters.database.act(issuer, write)
    return plan.run


def plant_commit(
    adapters: Adapters,
    manifest: Manifest,
    at: datetime | None = None,
    dropped: datetime | None = None,
) -> str:
    """Commit a run that was planted."""
    issuer = keys_of(manifest.run).run.issuer

    def write(connection: Connection) -> None:
        turn = connection.scalar(select(func.max(RUN.c.turn)).where(RUN.c.issuer == issuer))
        values = {
            "state": "committed",
            "turn": (turn or 0) + 1,
            "committed_at": at or adapters.now(),
            "dropped_at": dropped,
            "sequence": manifest.sequence,
            "manifest": manifest.model_dump(mode="json"),
        }
        connection.execute(update(RUN).where(RUN.c.run == manifest.run).values(**values))
        for chunk in manifest.chunks:
            offered = as_offered(at or adapters.now(), adapters.actor)
            row = {"issuer": issuer, "run": manifest.run, **chunk.model_dump(), **offered}
            connection.execute(insert(CHUNK).values(**row))

    adapters.database.act(issuer, write)
    return manifest.run


def plant_committed(
    adapters: Adapters, day: date, sha8: str, dropped: datetime | None = None, **otherwise: Any
) -> str:
    """Store a run that was planned and committed; return its id."""
    plan = a_plan(str(RunId("bank", day, sha8)), **otherwise)
    plant(adapters, plan)
    return plant_commit(adapters, a_manifest(plan), dropped, dropped)


def entered(what: str, at: datetime, number: int = 1, **facts: Any) -> Entry:
    """Return an entry of the journal as it is read."""
    return Entry(number, at, "tester:1", what, None, "", facts)


def set_run(adapters: Adapters, run: str, **columns: Any) -> None:
    """Set columns of a run, as if something else had happened."""
    issuer = keys_of(run).run.issuer
    changed = update(RUN).where(RUN.c.run == run).values(**columns)
    adapters.database.act(issuer, lambda connection: connection.execute(changed).close())


@contextmanager
def before_its_commit(adapters: Adapters, run: str) -> Iterator[None]:
    """Let a committed run be one that is not committed yet, for a `with` block."""
    names = ("state", "turn", "committed_at", "dropped_at", "sequence", "manifest")
    query = select(*(RUN.c[name] for name in names)).where(RUN.c.run == run)
    with adapters.database.snapshot() as connection:
        committed = connection.execute(query).one()._asdict()
    set_run(adapters, run, **dict.fromkeys(names) | {"state": "planned"})
    yield
    set_run(adapters, run, **committed)


def known_plan(run: str, day: date, **otherwise: Any) -> KnownPlan:
    """Return what is known of a committed run of a whole extract."""
    fields: dict[str, Any] = {
        "run": run,
        "number": 1,
        "key": "",
        "version": "",
        "size": 1,
        "sha256": "",
        "as_of": day,
        "selection": "",
        "reason": "",
        "planned_at": datetime.combine(day, time(), UTC),
        "state": "committed",
        "turn": 1,
        "committed_at": None,
    }
    return KnownPlan(**fields | otherwise)
