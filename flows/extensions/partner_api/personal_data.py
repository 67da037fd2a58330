"""What is stored of cardholders here: found for an export or an erasure, and taken out."""

from collections.abc import Collection, Iterable, Iterator

import polars as pl

from flows.extensions.partner_api.placements import (
    mark_check,
    messages_of,
    placements_key,
    read_placements,
    transactions,
)
from flows.extensions.partner_api.transactions import kept_reports
from flows.runs.context import IssuerContext
from flows.runs.erased import IDENTITY, Mention, People, Place, rows_of
from flows.runs.frames import from_parquet, write_parquet
from flows.runs.store import Cleaner, read
from flows.runs.stored_run import StoredRun

PLACE = "placements"
PLACES = {
    PLACE: Place(
        "ids at the partner, whether the link was opened, merchants at which the card was placed",
        "the funnel",
        "[retention] ledger_days after the last answer",
        erased=True,
    )
}


def mentions(context: IssuerContext, people: People, runs: Collection[str]) -> Iterator[Mention]:
    """Yield what is known of cardholders: of their rows of these runs, and by reports."""
    for run in sorted(runs):
        yield from _in_run(StoredRun.by_id(context.adapters, run), people)
    store = context.adapters.store
    for key in kept_reports(store, context.issuer.issuer):
        report = from_parquet(read(store, key))
        named = report.filter(people.named_by(report["cuid"]))
        if not named.is_empty():
            yield Mention(PLACE, key, named.to_dicts())
            # the report itself was dropped by the partner
            yield Mention("results", transactions(context.issuer.issuer), ())


def _in_run(run: StoredRun, people: People) -> Iterator[Mention]:
    """Yield the placements of cardholders in a run, and their messages."""
    for part in run.committed().ledger:
        names = run.ledger_part(part, IDENTITY)
        rows = tuple(names.filter(rows_of(people, names))["row"])
        known = read_placements(run, part).filter(pl.col("row").is_in(rows))
        if not known.is_empty():
            yield Mention(PLACE, placements_key(run, part), known.to_dicts(), run.id, rows)
        folder = messages_of(run, part)
        prefixes = tuple(f"{folder}{row:09d}-" for row in rows)
        for entry in run.store.keys(folder):
            if entry.key.startswith(prefixes):
                text = read(run.store, entry.key).decode("utf-8", "replace")
                yield Mention(PLACE, entry.key, [{"message": text}], run.id, rows)


def erase(
    context: IssuerContext, cleaner: Cleaner, people: People, named: Iterable[Mention]
) -> None:
    """Take cardholders out of what is known of links, and of transaction reports."""
    store = context.adapters.store
    for mention in named:
        if mention.place != PLACE:
            continue
        if mention.key.endswith(".json"):
            cleaner.delete(mention.key)
            continue
        frame = from_parquet(read(store, mention.key))
        if mention.run:
            others = frame.filter(~pl.col("row").is_in(mention.rows))
        else:
            others = frame.filter(~people.named_by(frame["cuid"]))
        write_parquet(store, mention.key, others)
        if mention.run:
            mark_check(StoredRun.by_id(context.adapters, mention.run))
