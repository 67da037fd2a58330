"""Bring the analysts' export up to date: the runs that changed, and the book of the day.

`analysis/exported.json` says what each run's files were made from, and which write of each file
that was. What is missing, was changed by somebody else, or was made by another version is made
anew. What changed is known from the database, so an export reads the changed runs and
no others. Nothing is deleted here: purges and erasures do that.

The book of a large issuer takes seconds. Beyond BOOK_AT_ONCE rows it is written by an ingest that
has nothing to take in, minutes later, so that no ingest of results waits for it.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from typing import NamedTuple

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError

from flows import __version__
from flows.analysis.exported_rows import as_parquet, row_files, write_rows
from flows.analysis.exported_runs import exported_run, run_key, write_run
from flows.book.book import Book, read_book
from flows.book.link_stages import version_of
from flows.book.stored_book import RunRow
from flows.book.upkeep import stored_runs
from flows.errors import CardlinkError
from flows.runs.adapters import Adapters
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.decisions import CARDS, LINKS, count_decisions
from flows.runs.frames import shaped
from flows.runs.identity import canonical, digest
from flows.runs.keys import analysis, hive, keys_of
from flows.runs.store import Store, read_if_stored
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from flows.tracing import stage
from schemas.analysis import EXPORT, ExportedBook

LOG = logging.getLogger("cardlink")
CODE = f"{EXPORT}, cardlink {__version__}"
BOOK_AT_ONCE = 100_000  # rows of all runs up to which the book is always written at once
AT_A_TIME = 2  # threads
PURGED = "purged"  # what a run without a ledger is made from


class _Files(BaseModel):
    """What a run's, or the book's, files were made from, and which write of each file that was."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    made_of: str
    files: dict[str, str]
    rows: int = 0


class _Exported(BaseModel):
    """What the export consists of (`exported.json`): by run, and the books of the last day."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    code: str = CODE
    runs: dict[str, _Files] = {}
    book: _Files | None = None


class Export(NamedTuple):
    """What an export wrote: runs, their rows, and the cards of the book.

    `cards`: None where the book was written before, or is written later (`is_book_due`).
    """

    runs: int
    rows: int
    cards: int | None
    is_book_due: bool


def export(context: IssuerContext, *, anew: bool = False, is_busy: bool = False) -> Export:
    """Write what is new for analysts.

    `anew`: all of it; books of earlier days stay, since they cannot be made again. `is_busy`: a
    large book may wait for the next call.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    before = _Exported() if anew else _read_exported(store, issuer)
    runs = _write_runs(context.adapters, issuer, before)
    is_at_once = not is_busy or sum(runs.rows.values()) <= BOOK_AT_ONCE
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    book = _write_book(context.adapters, issuer, before.book, today, is_at_once=is_at_once)
    written = _listed(store, issuer)
    files = {run: _files(run, runs.sources[run], runs.rows[run], written) for run in runs.sources}
    book_files = {key: written[key] for key in book.keys if key in written}
    now = _Exported(runs=files, book=_Files(made_of=book.made_of, files=book_files))
    if now != before:
        _write_exported(store, issuer, now)
    return Export(len(runs.anew), sum(runs.rows[run] for run in runs.anew), book.cards, book.is_due)


def export_where_wanted(context: IssuerContext, *, is_busy: bool) -> None:
    """Bring the export up to date at the end of an ingest, where `[analysis] export` says so.

    What goes wrong is logged and changes nothing: the next ingest makes up for it.
    """
    if not context.issuer.analysis.export:
        return
    try:
        with stage("export") as note:
            done = export(context, is_busy=is_busy)
            note(runs=done.runs, rows=done.rows)
    except CardlinkError as error:
        LOG.warning("The analysts' export was not brought up to date: %s", error.what_happened)


def export_erased(run: StoredRun) -> None:
    """Write the exported rows of a run anew after an erasure, whatever the settings say now."""
    if row_files(run.store, run.keys):
        write_rows(run)


class _Runs(NamedTuple):
    """What the files of each run are made from, how many rows it has, and which were written."""

    sources: dict[str, str]
    rows: dict[str, int]
    anew: frozenset[str]


def _write_runs(adapters: Adapters, issuer: str, before: _Exported) -> _Runs:
    """Write the runs that are not exported as they are now.

    Again where another process changed one meanwhile, so that the last write is of the last state.
    """
    store = adapters.store
    written = _listed(store, issuer)
    sources = _sources(adapters, issuer)
    rows = {run: before.runs[run].rows for run in sources if run in before.runs}
    stale = [
        run for run, made_of in sources.items() if not _fits(before.runs.get(run), made_of, written)
    ]
    anew = set[str]()
    while stale:
        pairs = [(StoredRun.by_id(adapters, run), sources[run]) for run in stale]
        counts = concurrently(lambda pair: _write(*pair), pairs, AT_A_TIME)
        rows |= dict(zip(stale, counts, strict=True))
        anew.update(stale)
        now = _sources(adapters, issuer)
        stale = [run for run in now if now[run] != sources.get(run)]
        sources = now
    return _Runs(sources, rows, frozenset(anew))


class _Book(NamedTuple):
    """The book of a day: its files, what they were made from, its cards, and whether it waits."""

    keys: list[str]
    made_of: str
    cards: int | None = None
    is_due: bool = False


def _write_book(
    adapters: Adapters, issuer: str, before: _Files | None, today: date, *, is_at_once: bool
) -> _Book:
    """Write the book of the day where it is another than the one that is exported."""
    basis = digest(f"{today} {book_basis(adapters, issuer)}".encode())
    key = book_key(issuer, today)
    if before is not None and _fits(before, basis, _listed(adapters.store, issuer)):
        return _Book([key], basis)
    if not is_at_once:
        return _Book(
            [*before.files] if before else [], before.made_of if before else "", None, True
        )
    return _Book([key], basis, write_book(adapters, issuer, today))


def _sources(adapters: Adapters, issuer: str) -> dict[str, str]:
    """Return what the files of each run are made from."""
    runs = StoredRuns(adapters, issuer)
    rows = stored_runs(adapters, runs)
    return {str(run): _source(rows, runs, str(run)) for run in runs.ids}


def _source(rows: Mapping[str, RunRow], runs: StoredRuns, run: str) -> str:
    """Return what a run's files are made from: the objects that the book has of it, if it has."""
    if run in runs.without_ledger:
        return PURGED
    row = rows.get(run)
    if row is not None and row.is_committed and row.objects is not None:
        return row.objects
    return digest(repr(exported_run(StoredRun.by_id(runs.adapters, run))).encode())


def _write(run: StoredRun, made_of: str) -> int:
    """Write the files of a run; return how many rows it has."""
    write_run(run)
    if run.manifest is None or made_of == PURGED:
        return 0
    write_rows(run)
    return run.manifest.counts.read


def _fits(known: _Files | None, made_of: str, written: Mapping[str, str]) -> bool:
    """Return whether files are there, and were made from what is stored now."""
    if known is None or known.made_of != made_of:
        return False
    return all(written.get(key) == version for key, version in known.files.items())


def _listed(store: Store, issuer: str) -> dict[str, str]:
    """Return which write of each file of the export is stored."""
    return {entry.key: f"{entry.size} {entry.version}" for entry in store.keys(analysis(issuer))}


def _files(run: str, made_of: str, rows: int, written: Mapping[str, str]) -> _Files:
    keys = keys_of(run)
    own = run_key(keys.run)
    files = {
        key: version
        for key, version in written.items()
        if key == own or (made_of != PURGED and key.startswith(keys.analysis))
    }
    return _Files(made_of=made_of, files=files, rows=rows)


def _read_exported(store: Store, issuer: str) -> _Exported:
    """Return what the export consists of; of another version, or damaged, it is made anew."""
    content = read_if_stored(store, _exported_key(issuer))
    with suppress(ValidationError):
        exported = _Exported.model_validate_json(content or b"")
        if exported.code == CODE:
            return exported
    return _Exported()


def _write_exported(store: Store, issuer: str, exported: _Exported) -> None:
    store.replace(_exported_key(issuer), [canonical(exported.model_dump(mode="json"))])


def _exported_key(issuer: str) -> str:
    return f"{analysis(issuer)}exported.json"


def write_book(adapters: Adapters, issuer: str, today: date) -> int:
    """Write where each card stands today; return how many there are."""
    cards = exported_book(read_book(adapters, issuer), today)
    adapters.store.replace(book_key(issuer, today), [as_parquet(cards)])
    return cards.height


def book_key(issuer: str, day: date) -> str:
    """Return the key of the book of a day."""
    return f"{hive(issuer, 'book', day)}book.parquet"


def exported_book(book: Book, today: date) -> pl.DataFrame:
    """Return where each issue of each card stands on a day, in the order of their first rows."""
    cards = book.cards(today)
    first = book.folded.attempt("first", "run", "row")
    named = cards.with_columns(
        card_run=first["run"], card_row=first["row"], is_current="current", first_seen="first"
    )
    return shaped(named, ExportedBook.dtypes()).sort("card_run", "card_row", maintain_order=True)


def book_basis(adapters: Adapters, issuer: str) -> str:
    """Return a digest of what the book is read from; it differs where the book may differ."""
    decisions = [count_decisions(adapters, issuer, kind, "") for kind in (CARDS, LINKS)]
    return digest(f"{version_of(adapters, issuer)} {decisions}".encode())
