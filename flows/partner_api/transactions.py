"""The partner's transaction reports: kept as Parquet, whatever their names.

A report fed twice, or in any order with others, says the same: what counts is derived anew from
all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import chain
from typing import Final, NamedTuple

import polars as pl

from flows.partner_api.transaction_report import read_transactions
from flows.results.decisions import SHOWN
from flows.results.masking import mask_key, storable
from flows.results.opening import DAMAGE, LIMIT, TOO_LARGE
from flows.runs.identity import canonical, digest
from flows.runs.keys import placements, transactions
from flows.runs.single_links import prompted_singles
from flows.runs.store import Entry, Store, read
from flows.runs.stored_run import StoredRun
from flows.runs.transactions import POSITION, kept_frame, kept_reports
from schemas.breaks import DAMAGED_TRANSACTIONS, UNKNOWN_TRANSACTION, Break, break_of
from schemas.ledger import LINKED
from schemas.partner_api.profile import Profile
from schemas.tables import parquet

READING: Final = 2  # raised where a report is read in another way


class ReadTransactions(NamedTuple):
    """All transaction reports of an issuer: their number, their rows, and what does not match."""

    files: int
    rows: int
    breaks: tuple[Break, ...]


def ingest_transactions(
    store: Store, issuer: str, runs: Iterable[StoredRun], profile: Profile
) -> ReadTransactions:
    """Keep every transaction report that is new or has changed.

    Its breaks name the rows whose cuid has a link in none of `runs`. A report that is taken away
    later still counts.
    """
    runs = list(runs)
    kept = set(kept_reports(store, issuer))
    dropped = {
        _key(issuer, entry): entry
        for entry in store.keys(transactions(issuer))
        if entry.key[-1] != "/"
    }
    for key, entry in dropped.items():
        if key not in kept or _facts(read(store, key))["version"] != _version(entry, profile):
            _keep(store, issuer, key, entry, runs, profile)
    files = sorted(kept | dropped.keys())
    cuids = [kept_frame(store, key, ["cuid"]) for key in files]
    unknown = _unknown_marks(store, issuer, cuids, runs)
    breaks = set(chain.from_iterable(_breaks(read(store, key), unknown) for key in files))
    rows = sum(kept_frame(store, key, [POSITION]).height for key in files)
    return ReadTransactions(len(files), rows, tuple(sorted(breaks)))


def _key(issuer: str, entry: Entry) -> str:
    """Return where a report is kept: named after the file.

    So a complete one replaces a half-written one.
    """
    return f"{placements(issuer)}reports/{digest(entry.key.encode())[:32]}.parquet"


def _version(entry: Entry, profile: Profile) -> str:
    """Return what is kept of a file's version; read in another way, it is read anew."""
    tables = profile.model_dump(mode="json", include={"report", "words"})
    reading = digest(canonical(tables))[:8]
    return f"{READING}|{reading}|{entry.size}|{entry.version}"


def _keep(
    store: Store, issuer: str, key: str, entry: Entry, runs: Iterable[StoredRun], profile: Profile
) -> None:
    """Keep what a report says; of a cuid that has no link only what is harmless.

    A report with one that was left out is read again the next time.
    """
    name = mask_key(entry.key.rpartition("/")[2])  # it may be named after a card
    if entry.size > LIMIT:
        report = read_transactions(b"", name)._replace(problems=(TOO_LARGE,))
    else:
        report = read_transactions(read(store, entry.key), name, profile)
    unknown = _unknown_marks(store, issuer, [report.rows], runs)
    is_unknown = pl.col("cuid").hash().is_in(unknown.implode())
    is_harmless = pl.col("cuid") == storable("cuid", is_unknown)
    rows = report.rows.with_columns(pl.when(~is_unknown | is_harmless).then("cuid"))
    is_whole = rows["cuid"].null_count() == report.rows["cuid"].null_count()
    facts = {
        "name": report.name,
        "problems": json.dumps(report.problems),
        "version": _version(entry, profile) if is_whole else "",
    }
    store.replace(key, [parquet(rows, facts, compression="zstd")])


def _facts(content: bytes) -> dict[str, str]:
    return pl.read_parquet_metadata(BytesIO(content))


def _unknown_marks(
    store: Store, issuer: str, reports: Iterable[pl.DataFrame], runs: Iterable[StoredRun]
) -> pl.Series:
    """Return 64-bit hashes of the cuids of reports that have no link.

    Runs are read until every one is found.
    """
    frames = [rows.select("cuid").drop_nulls().select(_mark()) for rows in reports]
    unknown = pl.concat([pl.DataFrame(schema={"mark": pl.UInt64}), *frames])["mark"].unique()
    linked_in_runs = chain.from_iterable(map(_linked_marks, runs))
    for linked in chain(_prompted_marks(store, issuer), linked_in_runs):
        unknown = unknown.filter(~unknown.is_in(linked.implode()))
        if unknown.is_empty():
            break
    return unknown


def _prompted_marks(store: Store, issuer: str) -> Iterator[pl.Series]:
    cuids = [single.asked.cuid for single in prompted_singles(store, issuer)]
    yield pl.DataFrame({"cuid": cuids}, {"cuid": pl.String}).select(_mark())["mark"]


def _linked_marks(run: StoredRun) -> Iterator[pl.Series]:
    """Yield the hashes of the cuids that have a link in a run, part by part."""
    if run.summary is not None:
        for rows in run.rows(["cuid", "state"]):
            yield rows.filter(state=LINKED).select(_mark())["mark"]


def _mark() -> pl.Expr:
    return pl.col("cuid").hash().alias("mark")


def _breaks(content: bytes, unknown: pl.Series) -> Iterator[Break]:
    """Yield what does not match in a report that was kept."""
    facts = _facts(content)
    rows = pl.read_parquet(BytesIO(content), columns=[POSITION, "cuid"])
    for problem in json.loads(facts["problems"]):
        if problem in DAMAGE:
            yield break_of(DAMAGED_TRANSACTIONS, rows.height, f"{facts['name']} ({problem})")
    is_unknown = pl.col("cuid").is_null() | pl.col("cuid").hash().is_in(unknown.implode())
    unmatched = rows.filter(is_unknown)
    if unmatched.height:
        first = ", ".join(map(str, unmatched[POSITION].head(SHOWN)))
        yield break_of(UNKNOWN_TRANSACTION, unmatched.height, f"{facts['name']}, rows {first}")
