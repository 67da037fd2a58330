"""Copies of the database, and what makes it again where it is lost."""

from __future__ import annotations

from pathlib import Path

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import Issuer, Reason
from flows.commands.result import Part, Result, Table
from flows.configuration import FileThereError
from flows.steps import Step, counted
from flows.wiring import open_database, wire

with on_first_use():
    from flows.operations import recovery


@entry("backup", form="the file is on the machine of the database")
def backup(context: Context, file: Path) -> Result:
    """Copy the database to FILE while others use it; of PostgreSQL, its server makes copies.

    Args:
        file: The copy; it must not exist.

    Example:
        cardlink backup cardlink-20261120.db
    """
    if file.exists():
        raise FileThereError(path=str(file))
    open_database(context.folder).backup(file)
    size = file.stat().st_size
    return Result({"file": str(file), "bytes": size}, [f"{file}: {size:,} bytes"])


@entry("recover", form="it is decided beside the backups and the bucket", ungoverned=True)
def recover(context: Context, issuer: Issuer, *, reason: Reason) -> Result:
    """Rebuild ISSUER's database from a backup, or from nothing, and the journal in the store.

    The entries that the store has and the database lacks are applied in order. Then a new
    incarnation of the journal begins, and databases of earlier ones are refused. What was done
    after the last stored entry is not known; it is listed as far as the store shows it.

    Example:
        cardlink recover first-bank --reason 'the disk of the database was lost, ticket 7'
    """
    recovered = recovery.recover(wire(context.folder, issuer), reason)
    until = recovered.until.isoformat(timespec="seconds") if recovered.until else None
    entries = counted(recovered.entries, "entry", "entries")
    known = f"what was done is known up to {until}" if until else "the store has no journal"
    lines: list[Part] = [
        f"{issuer}: {entries} of the journal applied; {known}",
        f"from now on the journal is {recovered.incarnation}; other databases are refused",
    ]
    if recovered.objects:
        objects = counted(recovered.objects, "object")
        lines.append(f"{objects} that no entry names: accepted as stored, see the journal")
    if recovered.unknown_persons:
        persons = counted(recovered.unknown_persons, "person", "persons")
        lines.append(f"decisions about {persons} whom nothing names any more: decide again")
    if recovered.unknown_links:
        links = counted(recovered.unknown_links, "single link")
        lines.append(f"{links} whose URL or cardholder is lost: ask the partner")
    if recovered.runs:
        lines.append(Table(("run that no entry names",), [(run,) for run in recovered.runs]))
    lines.append(
        "repeat the decisions made since then; submit and ingest take up what is in the store"
    )
    facts = {
        "issuer": issuer,
        "entries": recovered.entries,
        "until": until,
        "incarnation": recovered.incarnation,
        "runs": list(recovered.runs),
        "objects": recovered.objects,
        "unknown_persons": recovered.unknown_persons,
        "unknown_links": recovered.unknown_links,
    }
    return Result(facts, lines, Step("ingest", issuer))
