"""Decide about a result file by hand: add a record to the file's chain, and take the file up again at once.

The record counts from the next ingest on. A report made from scratch reads the same records, so it says the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

from flows.core.errors import OperatorError
from flows.core.names import RunKeys, results
from flows.core.ports import Store
from flows.core.redaction import redact
from flows.core.results.attribution import Attributed
from flows.steps.answers.ingest import Found, Ingested, examine, ingest
from flows.steps.answers.outcomes import Told
from flows.steps.edges import IssuerEdges, note
from flows.steps.mend.decided import chain_of, decisions
from flows.steps.records import add_record
from flows.steps.runs import keys_of, run_ids
from schemas.mended import Attribution

READERS = 8  # runs looked at at a time
Kind = Literal["attributed", "withdrawn", "again"]
EVENTS: dict[Kind, str] = {
    "attributed": "attributed by hand",
    "withdrawn": "attribution withdrawn",
    "again": "result taken up again",
}


class NoSuchResultError(OperatorError):
    """There is no result file of that name."""

    message = "No result file {name} under {prefix}."
    next_step = "Name one that is stored there, or drop it there."


class Decided(NamedTuple):
    """A record about a result file, what it makes of the row it is about, if any, and the ingest that followed."""

    record: Attribution
    row: dict[str, Any]
    ingested: Ingested | None


def find_result(edges: IssuerEdges, result: str) -> Found:
    """Return a result file by name or key, with what was decided about it; NoSuchResultError."""
    store, issuer = edges.edges.store, edges.issuer.issuer
    prefix = results(issuer)
    for entry in store.keys(prefix):
        if entry.key in (result, prefix + result):
            return Found(entry, decisions(store, issuer).get(chain_of(issuer, entry.key), ()))
    raise NoSuchResultError(name=redact(result), prefix=prefix)


def decision(edges: IssuerEdges, found: Found, digest: str, what: Kind, why: str) -> Attribution:
    """Return the record of a decision about the file of these bytes; the caller adds row and place."""
    outside, key = edges.edges, found.entry.key
    runs = tuple(sorted(_standing(outside.store, edges.issuer.issuer, key)))
    return Attribution(
        at=outside.now(),
        by=redact(outside.actor),
        reason=why,
        what=what,
        result=redact(key),
        digest=digest,
        runs=runs,
    )


def decide(edges: IssuerEdges, found: Found, record: Attribution, *, dry_run: bool) -> Decided:
    """Add a record and take the file up again; a dry run only tells what the record would make of the row."""
    _, after = examine(edges, found._replace(decided=(*found.decided, record)))
    row = after.outcomes.filter(position=record.position).select("state", "trouble", "run", "chunk", "row", "how")
    made = row.row(0, named=True) if row.height else {}
    if dry_run:
        return Decided(record, made, None)
    add_record(edges.edges.store, chain_of(edges.issuer.issuer, found.entry.key), record)
    for run in _concerned(record, after):
        told = {"result": record.result, "row": record.position} if record.position else {"result": record.result}
        note(edges.edges, keys_of(run), EVENTS[record.what], reason=record.reason, **told)
    return Decided(record, made, ingest(edges))


def _concerned(record: Attribution, after: Attributed) -> Sequence[str]:
    return sorted({*record.runs, *after.outcomes["run"].drop_nulls().unique(), record.run} - {""})


def _standing(store: Store, issuer: str, result: str) -> frozenset[str]:
    """Return the runs with which rows of a result file are kept now."""
    with ThreadPoolExecutor(READERS) as readers:
        told = readers.map(lambda run: (str(run), Told(store, RunKeys(run)).speaks(result)), run_ids(store, issuer))
        return frozenset(run for run, speaks in told if speaks)
