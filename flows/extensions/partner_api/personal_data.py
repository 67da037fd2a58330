"""What is stored of cardholders here: found for an export or an erasure, and taken out."""

from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from flows.extensions.partner_api.placements import (
    mark_check,
    messages_of,
    placements_key,
    read_placements,
    transactions,
)
from flows.extensions.partner_api.transactions import kept_reports
from flows.operations.personal_data import Mention
from flows.runs.context import IssuerContext
from flows.runs.erased import People
from flows.runs.frames import from_parquet, write_parquet
from flows.runs.store import Cleaner, read
from flows.runs.stored_run import StoredRun
from schemas.manifest import LedgerPart


def placements_of_rows(run: StoredRun, part: LedgerPart, rows: Sequence[int]) -> Iterator[Mention]:
    """Yield the placements of rows of a ledger part, and their messages."""
    numbers = tuple(rows)
    known = read_placements(run, part).filter(pl.col("row").is_in(numbers))
    if not known.is_empty():
        yield Mention("placements", placements_key(run, part), known.to_dicts(), run.id, numbers)
    for key in _messages(run, part, numbers):
        text = read(run.store, key).decode("utf-8", "replace")
        yield Mention("placements", key, [{"message": text}], run.id, numbers)


def reports_on(context: IssuerContext, people: People) -> Iterator[Mention]:
    """Yield what is kept of the partner's transaction reports on some cardholders."""
    store = context.adapters.store
    for key in kept_reports(store, context.issuer.issuer):
        report = from_parquet(read(store, key))
        named = report.filter(people.named_by(report["cuid"]))
        if not named.is_empty():
            yield Mention("placements", key, named.to_dicts())
            # the report itself was dropped by the partner
            yield Mention("results", transactions(context.issuer.issuer), ())


def erase_placements(
    cleaner: Cleaner, run: StoredRun, part: LedgerPart, rows: Sequence[int]
) -> None:
    """Take rows out of what the service said of links."""
    for key in _messages(run, part, rows):
        cleaner.delete(key)
    known = read_placements(run, part)
    others = known.filter(~pl.col("row").is_in(rows))
    if others.height < known.height:
        write_parquet(run.store, placements_key(run, part), others)
        mark_check(run)


def erase_in_reports(context: IssuerContext, people: People, named: Iterable[Mention]) -> None:
    """Take cardholders out of the transaction reports that were kept."""
    store = context.adapters.store
    reports = set(kept_reports(store, context.issuer.issuer))
    for key in sorted(reports & {mention.key for mention in named}):
        report = from_parquet(read(store, key))
        write_parquet(store, key, report.filter(~people.named_by(report["cuid"])))


def _messages(run: StoredRun, part: LedgerPart, rows: Sequence[int]) -> list[str]:
    """Return the keys of the messages about rows."""
    folder = messages_of(run, part)
    prefixes = tuple(f"{folder}{row:09d}-" for row in rows)
    return [entry.key for entry in run.store.keys(folder) if entry.key.startswith(prefixes)]
