"""The partner's transaction reports: read by name, every row once, none dropped; kept as Parquet,
whatever their names.

A report fed twice, or in any order with others, says the same: what counts is put together anew
from all of them.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import chain
from typing import NamedTuple

import polars as pl

from flows.partner_api.funnel import REPORTED, kept_frame, kept_reports
from flows.partner_api.job_records import code
from flows.redaction import redact
from flows.results.csv_records import DELIMITERS, HEAD
from flows.results.decisions import SHOWN
from flows.results.masking import printable, storable
from flows.results.opening import DAMAGE, EMPTY, LIMIT, NOT_A_RESULT, TOO_LARGE, text_of
from flows.results.read import day_in
from flows.runs.documents import read_rows, read_summary
from flows.runs.identity import digest
from flows.runs.keys import keys_of, placements, transactions
from flows.runs.single_links import prompted_singles
from flows.runs.store import Entry, Store, read
from schemas.breaks import DAMAGED_TRANSACTIONS, UNKNOWN_TRANSACTION, Break, break_of
from schemas.ledger import LINKED
from schemas.manifest import Manifest
from schemas.partner_api.link_placements import AUTHENTICATED, BILLABLE, ENDS, PLACED, TRANSACTIONS
from schemas.tables import parquet

_LINE_END = re.compile(r"\r\n|\r|\n")
ROW = pl.Schema({"position": pl.UInt32(), **dict.fromkeys(TRANSACTIONS, pl.String())})

POSITION = "position"


class Transactions(NamedTuple):
    """One report: SHA-256 of its bytes, name, rows (position from 1, then TOLD), problem codes.

    A row that is too long, or ends with its cuid, has none: half a cuid may be somebody else's.
    """

    digest: str
    name: str
    rows: pl.DataFrame
    problems: tuple[str, ...]


def read_transactions(content: bytes, name: str) -> Transactions:
    """Read a transaction report (plain or gzip bytes, any delimiter and date); nothing is
    raised.
    """
    text, problems = text_of(content)
    cells, problem = _rows(_LINE_END.split(text))
    rows = pl.DataFrame(cells, schema=ROW, orient="row")
    return Transactions(
        hashlib.sha256(content).hexdigest(), name, _reported(rows), (*problems, *problem)
    )


def _rows(lines: list[str]) -> tuple[Iterator[tuple[int | str | None, ...]], list[str]]:
    """Return position and cells of every non-blank line below the header, and problem codes."""
    heads = ((at, head) for at, line in enumerate(lines[:HEAD]) if (head := _head(line)))
    at, head = next(heads, (0, None))
    if head is None:
        return iter(()), [NOT_A_RESULT if any(line.strip() for line in lines) else EMPTY]
    delimiter, places, width = head
    reported = (line for line in lines[at + 1 :] if line.strip().strip(delimiter))
    # Line by line: no cell of a report spans lines, so a quote left open spoils its own line only.
    records = (next(csv.reader([printable(line)], delimiter=delimiter), []) for line in reported)
    return (
        _fit(number, record, places, width) for number, record in enumerate(records, start=1)
    ), []


def _head(line: str) -> tuple[str, dict[str, int], int] | None:
    """Find the delimiter for which `line` is a report's header, and the places of its columns."""
    for delimiter in DELIMITERS:
        cells = next(csv.reader([line], delimiter=delimiter), [])
        folded = [re.sub(r"[^a-z0-9]", "", cell.lower()) for cell in cells]
        found = (
            (name, next((one for one in all_ if one in folded), None))
            for name, all_ in TRANSACTIONS.items()
        )
        places = {name: folded.index(spelling) for name, spelling in found if spelling is not None}
        if {"cuid", "status"} <= places.keys():
            return delimiter, places, len(cells)
    return None


def _fit(
    number: int, record: list[str], places: dict[str, int], width: int
) -> tuple[int | str | None, ...]:
    whole = len(record) >= width or places["cuid"] + 1 < len(record)
    fits = whole and not any(cell.strip() for cell in record[width:])
    cells = {name: record[at].strip() or None for name, at in places.items() if at < len(record)}
    return (
        number,
        cells.get("cuid") if fits else None,
        cells.get("status"),
        cells.get("completed_on"),
    )


def _reported(rows: pl.DataFrame) -> pl.DataFrame:
    """Return what each row means: placed, ended otherwise, or still running."""
    words = rows["status"].unique().to_list()
    status = pl.col("status").replace_strict(
        words, [code(word) for word in words], return_dtype=pl.String
    )
    coded = rows.with_columns(
        status.alias("status"), day_in("completed_on").alias("completed_on"), storable("cuid")
    )
    placed, ended = (
        pl.col("status").is_in(PLACED),
        pl.col("status").is_in(ENDS) | pl.col("completed_on").is_not_null(),
    )
    return coded.with_columns(
        pl.lit(value=True).alias("opened"),
        pl.col("status").is_in(AUTHENTICATED).alias("authenticated"),
        (~placed & ~ended).alias("running"),
        pl.when(placed).then(pl.lit(BILLABLE)).when(ended).then("status").alias("termination_type"),
        pl.lit(None, pl.String).alias("merchant_site"),
    ).select("position", *REPORTED)


class ReadTransactions(NamedTuple):
    """All transaction reports of an issuer: their number, their rows, and what does not match."""

    files: int
    rows: int
    breaks: tuple[Break, ...]


def ingest_transactions(store: Store, issuer: str, runs: Iterable[Manifest]) -> ReadTransactions:
    """Keep every transaction report that is new or has changed; name the rows whose cuid has a link
    in none of `runs`.

    A report that is taken away later still counts.
    """
    kept = set(kept_reports(store, issuer))
    listed = {
        _key(issuer, entry): entry
        for entry in store.keys(transactions(issuer))
        if entry.key[-1] != "/"
    }
    for key, entry in listed.items():
        if key not in kept or _facts(read(store, key))["version"] != _version(entry):
            _keep(store, key, entry)
    files = sorted(kept | listed.keys())
    strange = _unknown_marks(store, issuer, files, runs)
    breaks = {one for key in files for one in _breaks(read(store, key), strange)}
    return ReadTransactions(
        len(files),
        sum(kept_frame(store, key, [POSITION]).height for key in files),
        tuple(sorted(breaks)),
    )


def _key(issuer: str, entry: Entry) -> str:
    """Return where a report is kept: named after the file, so that a complete one replaces a
    half-written one.
    """
    return f"{placements(issuer)}reports/{digest(entry.key.encode())[:32]}.parquet"


def _version(entry: Entry) -> str:
    return f"{entry.size}|{entry.version}"


def _keep(store: Store, key: str, entry: Entry) -> None:
    name = redact(entry.key.rpartition("/")[2])  # a report may be named after a card
    report = read_transactions(read(store, entry.key) if entry.size <= LIMIT else b"", name)
    problems = report.problems if entry.size <= LIMIT else (TOO_LARGE,)
    facts = {"name": report.name, "problems": json.dumps(problems), "version": _version(entry)}
    store.replace(key, [parquet(report.rows, facts, compression="zstd")])


def _facts(content: bytes) -> dict[str, str]:
    return pl.read_parquet_metadata(BytesIO(content))


def _unknown_marks(
    store: Store, issuer: str, files: Iterable[str], runs: Iterable[Manifest]
) -> pl.Series:
    """Return 64-bit hashes of the cuids without a link; runs are read until every one is found."""
    markers = [kept_frame(store, key, ["cuid"]).drop_nulls().select(_mark()) for key in files]
    left = pl.concat([pl.DataFrame(schema={"mark": pl.UInt64}), *markers])["mark"].unique()
    for linked in chain(
        _prompted_marks(store, issuer), *(_linked(store, manifest) for manifest in runs)
    ):
        left = left.filter(~left.is_in(linked.implode()))
        if left.is_empty():
            break
    return left


def _prompted_marks(store: Store, issuer: str) -> Iterator[pl.Series]:
    cuids = [one.asked.cuid for one in prompted_singles(store, issuer)]
    yield pl.DataFrame({"cuid": cuids}, {"cuid": pl.String}).select(_mark())["mark"]


def _linked(store: Store, manifest: Manifest) -> Iterator[pl.Series]:
    keys = keys_of(manifest.run)
    if read_summary(store, keys) is not None:
        for rows in read_rows(store, keys, manifest.ledger, ["cuid", "state"]):
            yield rows.filter(state=LINKED).select(_mark())["mark"]


def _mark() -> pl.Expr:
    return pl.col("cuid").hash().alias("mark")


def _breaks(content: bytes, strange: pl.Series) -> Iterator[Break]:
    facts = _facts(content)
    rows = pl.read_parquet(BytesIO(content), columns=[POSITION, "cuid"])
    for problem in json.loads(facts["problems"]):
        if problem in DAMAGE:
            yield break_of(DAMAGED_TRANSACTIONS, rows.height, f"{facts['name']} ({problem})")
    lost = rows.filter(pl.col("cuid").is_null() | pl.col("cuid").hash().is_in(strange.implode()))
    if lost.height:
        first = ", ".join(map(str, lost[POSITION].head(SHOWN)))
        yield break_of(UNKNOWN_TRANSACTION, lost.height, f"{facts['name']}, rows {first}")
