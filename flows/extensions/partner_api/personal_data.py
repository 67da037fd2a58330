"""What is stored of cardholders here: found for an export or an erasure, and taken out."""

from collections.abc import Collection, Iterable, Iterator

import polars as pl
from sqlalchemy import Connection

from flows.book.stored_book import delete_rows
from flows.extensions.partner_api.placements import (
    mark_check,
    messages_of,
    placements_key,
    read_placements,
    transactions,
)
from flows.extensions.partner_api.tables import REPORTED_ROW
from flows.extensions.partner_api.transactions import POSITION, reported_rows
from flows.runs.context import IssuerContext
from flows.runs.erased import IDENTITY, Mention, People, Place, rows_of
from flows.runs.frames import from_parquet, write_parquet
from flows.runs.store import Cleaner, read
from flows.runs.stored_run import StoredRun

PLACE = "placements"
REPORTS = f"database, table {REPORTED_ROW.name}"
PLACES = {
    PLACE: Place(
        "ids at the partner, whether the link was opened, merchants at which the card was placed",
        "the funnel",
        "[retention] ledger_days after the last answer",
        erased=True,
    )
}


def folders() -> tuple[str, ...]:
    """Return the folders of an issuer that erasures clean."""
    return ("placements",)


def places() -> dict[str, Place]:
    """Return where personal data is kept."""
    return PLACES


def mentions(context: IssuerContext, people: People, runs: Collection[str]) -> Iterator[Mention]:
    """Yield what is known of cardholders: of their rows of these runs, and by reports."""
    for run in sorted(runs):
        yield from _in_run(StoredRun.by_id(context.adapters, run), people)
    rows = reported_rows(context.adapters, context.issuer.issuer)
    named = rows.filter(people.named_by(rows["cuid"]))
    if not named.is_empty():
        yield Mention(PLACE, REPORTS, named.to_dicts())
        # the reports themselves were dropped by the partner
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
    context: IssuerContext, cleaner: Cleaner, _people: People, named: Iterable[Mention]
) -> None:
    """Take cardholders out of what is known of links, and of transaction reports."""
    for mention in named:
        if mention.place != PLACE:
            continue
        if mention.key == REPORTS:
            _erase_reported(context, mention)
        elif mention.key.endswith(".json"):
            cleaner.delete(mention.key)
        else:
            run = StoredRun.by_id(context.adapters, mention.run)
            known = from_parquet(read(run.store, mention.key))
            others = known.filter(~pl.col("row").is_in(mention.rows))
            write_parquet(run.store, mention.key, others)
            mark_check(run)


def _erase_reported(context: IssuerContext, named: Mention) -> None:
    issuer = context.issuer.issuer

    def work(connection: Connection) -> None:
        for row in named.facts:
            place = {"file": row["file"], POSITION: row[POSITION]}
            delete_rows(connection, REPORTED_ROW, issuer, **place)

    context.adapters.database.act(issuer, work)
