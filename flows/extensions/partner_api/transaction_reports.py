"""The partner's transaction reports: read by name, every row once, none dropped, and kept.

A report fed twice, or in any order with others, says the same: what counts is derived anew from
all of them.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import polars as pl
from sqlalchemy import Connection, insert, select

from flows.book.stored_book import delete_rows, insert_rows
from flows.extensions.partner_api.job_records import code, site_name
from flows.extensions.partner_api.link_stages import (
    POSITION,
    REPORT,
    from_status,
    reported_rows,
)
from flows.extensions.partner_api.placements import transactions
from flows.extensions.partner_api.profile import INTERFACE, Profile, Words
from flows.extensions.partner_api.tables import REPORTED_ROW, TRANSACTION_REPORT
from flows.extensions.partner_api.translation import fold, meaning_of
from flows.results.breaks import FORMS
from flows.results.csv_records import DELIMITERS, HEAD
from flows.results.decisions import SHOWN
from flows.results.masking import mask, mask_key, printable, storable
from flows.results.opening import DAMAGE, EMPTY, LIMIT, NOT_A_RESULT, TOO_LARGE, text_of
from flows.results.partner_days import PartnerDay, read_days
from flows.runs.adapters import Adapters
from flows.runs.dropped_files import dropped_files
from flows.runs.identity import canonical, digest
from flows.runs.single_links import prompted_singles
from flows.runs.store import Entry, read
from flows.runs.stored_run import StoredRun
from schemas.breaks import (
    DAMAGED_TRANSACTIONS,
    UNKNOWN_TRANSACTION,
    UNREADABLE_TRANSACTIONS,
    Break,
    break_of,
)
from schemas.ledger import LINKED

UNREADABLE_DAY: Final = "file.day.form "  # and the form: a problem of a report
_LINE_END = re.compile(r"\r\n|\r|\n")
ROW = pl.Schema({POSITION: pl.UInt32(), **dict.fromkeys(INTERFACE.fields("report"), pl.String())})


class Transactions(NamedTuple):
    """One report: SHA-256 of its bytes, name, rows (position from 1, then REPORT), problem codes.

    A row that is too long, or ends with its cuid, has none: half a cuid may be somebody else's.
    """

    digest: str
    name: str
    rows: pl.DataFrame
    problems: tuple[str, ...]


class _Header(NamedTuple):
    """The header of a report."""

    line: int  # from 0
    delimiter: str
    places: dict[str, int]  # of its columns, from 0, by our name
    width: int  # in cells


class _Row(NamedTuple):
    """One row, as ROW has it; a name that the header lacks is absent."""

    position: int
    cuid: str | None
    status: str | None
    completed_on: str | None
    merchant_site: str | None


def read_transactions(content: bytes, name: str, profile: Profile = INTERFACE) -> Transactions:
    """Read a transaction report (plain or gzip bytes, any delimiter and date).

    `profile`: its columns, and what the partner's statuses mean. Nothing is raised.
    """
    text, problems = text_of(content)
    lines = _LINE_END.split(text)
    header = _header(lines, profile.fields("report"))
    if header is None:
        has_content = any(line.strip() for line in lines)
        problems.append(NOT_A_RESULT if has_content else EMPTY)
        rows = pl.DataFrame(schema=ROW)
    else:
        rows = pl.DataFrame(_rows(lines, header), schema=ROW, orient="row")
    sha256 = hashlib.sha256(content).hexdigest()
    days = read_days(rows["completed_on"].drop_nulls())
    forms = {day.form for day in days.values() if day.form}
    problems += [f"{UNREADABLE_DAY}{form}" for form in sorted(forms)[:FORMS]]
    return Transactions(sha256, name, _meanings(rows, profile.words, days), tuple(problems))


def _header(lines: Sequence[str], columns: Mapping[str, Sequence[str]]) -> _Header | None:
    """Find the header, and the delimiter by which it has the columns that are needed."""
    for number, line in enumerate(lines[:HEAD]):
        for delimiter in DELIMITERS:
            cells = next(csv.reader([line], delimiter=delimiter), [])
            places = _places(cells, columns)
            if {"cuid", "status"} <= places.keys():
                return _Header(number, delimiter, places, len(cells))
    return None


def _places(cells: Sequence[str], columns: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the place of each column, by the first of its spellings that is there."""
    folded = list(map(fold, cells))
    places = {}
    for name, spellings_of_it in columns.items():
        spellings = map(fold, spellings_of_it)
        present = [spelling for spelling in spellings if spelling in folded]
        if present:
            places[name] = folded.index(present[0])
    return places


def _rows(lines: Sequence[str], header: _Header) -> Iterator[_Row]:
    """Yield every non-blank line below the header.

    Line by line: no cell of a report spans lines, so a quote left open spoils its own line only.
    """
    below = lines[header.line + 1 :]
    filled = (line for line in below if line.strip().strip(header.delimiter))
    for position, line in enumerate(filled, start=1):
        cells = next(csv.reader([printable(line)], delimiter=header.delimiter), [])
        yield _row(position, cells, header)


def _row(position: int, cells: Sequence[str], header: _Header) -> _Row:
    by_name = {
        name: cells[place].strip() or None
        for name, place in header.places.items()
        if place < len(cells)
    }
    is_whole = len(cells) >= header.width or header.places["cuid"] + 1 < len(cells)
    has_more = any(cell.strip() for cell in cells[header.width :])
    return _Row(
        position,
        by_name.get("cuid") if is_whole and not has_more else None,
        by_name.get("status"),
        by_name.get("completed_on"),
        by_name.get("merchant_site"),
    )


def _meanings(rows: pl.DataFrame, words: Words, days: Mapping[str, PartnerDay]) -> pl.DataFrame:
    """Return what each row means: placed, ended otherwise, still running, or nothing known."""
    iso_days = {text: str(read.day) for text, read in days.items() if read.day}
    coded = rows.with_columns(
        _each("status", lambda word: _status_code(meaning_of(word, words.report))),
        _each("completed_on", iso_days.get).str.to_date("%Y-%m-%d"),
        _each("merchant_site", site_name),
        pl.lit(value=True).alias("opened"),
    )
    return coded.with_columns(*from_status()).select(POSITION, *REPORT)


def _each(column: str, reading: Callable[[str], str | None]) -> pl.Expr:
    """Return a column with each of its texts as it is read; they are few."""

    def read(texts: pl.Series) -> pl.Series:
        words = texts.drop_nulls().unique().to_list()
        readings = list(map(reading, words))
        return texts.replace_strict(words, readings, default=None, return_dtype=pl.String)

    return pl.col(column).map_batches(read, pl.String)


def _status_code(word: str) -> str:
    """Return a status as a code: `Shipped to the site` is SHIPPED_TO_THE_SITE.

    Of words that are not known to be harmless nothing is kept: they are OTHER.
    """
    if mask(word) != word or any(map(str.isdecimal, word)):
        return code(word)
    return code(re.sub(r"[\W_]+", "_", word).strip("_"))


READING: Final = 3  # raised where a report is read in another way


class ReadTransactions(NamedTuple):
    """All transaction reports of an issuer: their number, their rows, and what does not match."""

    files: int
    rows: int
    breaks: tuple[Break, ...]


def ingest_transactions(
    adapters: Adapters, issuer: str, runs: Iterable[StoredRun], profile: Profile
) -> ReadTransactions:
    """Keep every transaction report that is new or has changed.

    Its breaks name the rows whose cuid has a link in none of `runs`. A report that is taken away
    later still counts.
    """
    runs = list(runs)
    report = TRANSACTION_REPORT.c
    with adapters.database.snapshot() as connection:
        versions = select(report.file, report.version).where(report.issuer == issuer)
        known = dict(connection.execute(versions).tuples().all())
    for entry in dropped_files(adapters.store, transactions(issuer), shown_as_is=False).files:
        file = digest(entry.key.encode())[:32]
        if entry.key[-1] != "/" and known.get(file) != _version(entry, profile):
            _keep(adapters, issuer, file, entry, runs, profile)
    with adapters.database.snapshot() as connection:
        columns = select(report.file, report.name, report.problems)
        files = connection.execute(columns.where(report.issuer == issuer)).all()
    rows = reported_rows(adapters, issuer)
    unknown = _unknown_marks(adapters, issuer, rows, runs)
    breaks = set(
        chain.from_iterable(
            _breaks(name, problems, rows.filter(file=file), unknown)
            for file, name, problems in files
        )
    )
    return ReadTransactions(len(files), rows.height, tuple(sorted(breaks)))


def _version(entry: Entry, profile: Profile) -> str:
    """Return what is kept of a file's version; read in another way, it is read anew."""
    words = profile.words.model_dump(mode="json")
    tables = {"report": profile.fields("report"), "words": words}
    reading = digest(canonical(tables))[:8]
    return f"{READING}|{reading}|{entry.size}|{entry.version}"


def _keep(
    adapters: Adapters,
    issuer: str,
    file: str,
    entry: Entry,
    runs: Iterable[StoredRun],
    profile: Profile,
) -> None:
    """Keep what a report says; of a cuid that has no link only what is harmless.

    A report with one that was left out is read again the next time.
    """
    name = mask_key(entry.key.rpartition("/")[2])  # it may be named after a card
    if entry.size > LIMIT:
        report = read_transactions(b"", name)._replace(problems=(TOO_LARGE,))
    else:
        report = read_transactions(read(adapters.store, entry.key), name, profile)
    unknown = _unknown_marks(adapters, issuer, report.rows, runs)
    is_unknown = pl.col("cuid").hash().is_in(unknown.implode())
    is_harmless = pl.col("cuid") == storable("cuid", is_unknown)
    rows = report.rows.with_columns(pl.when(~is_unknown | is_harmless).then("cuid"))
    is_whole = rows["cuid"].null_count() == report.rows["cuid"].null_count()
    facts = {
        "file": file,
        "name": report.name,
        "version": _version(entry, profile) if is_whole else "",
        "problems": list(report.problems),
    }

    def write(connection: Connection) -> None:
        for table in (REPORTED_ROW, TRANSACTION_REPORT):
            delete_rows(connection, table, issuer, file=file)
        connection.execute(insert(TRANSACTION_REPORT).values(issuer=issuer, **facts))
        kept = rows.drop("opened").with_columns(file=pl.lit(file))
        insert_rows(connection, REPORTED_ROW, issuer, kept)

    adapters.database.act(issuer, write)


def _unknown_marks(
    adapters: Adapters, issuer: str, rows: pl.DataFrame, runs: Iterable[StoredRun]
) -> pl.Series:
    """Return 64-bit hashes of the cuids of reported rows that have no link.

    Runs are read until every one is found.
    """
    unknown = rows.select("cuid").drop_nulls().select(_mark())["mark"].unique()
    linked_in_runs = chain.from_iterable(map(_linked_marks, runs))
    for linked in chain(_prompted_marks(adapters, issuer), linked_in_runs):
        unknown = unknown.filter(~unknown.is_in(linked.implode()))
        if unknown.is_empty():
            break
    return unknown


def _prompted_marks(adapters: Adapters, issuer: str) -> Iterator[pl.Series]:
    cuids = [single.asked.cuid for single in prompted_singles(adapters, issuer)]
    yield pl.DataFrame({"cuid": cuids}, {"cuid": pl.String}).select(_mark())["mark"]


def _linked_marks(run: StoredRun) -> Iterator[pl.Series]:
    """Yield the hashes of the cuids that have a link in a run, part by part."""
    if run.summary is not None:
        for rows in run.rows(["cuid", "state"]):
            yield rows.filter(state=LINKED).select(_mark())["mark"]


def _mark() -> pl.Expr:
    return pl.col("cuid").hash().alias("mark")


def _breaks(
    name: str, problems: Iterable[str], rows: pl.DataFrame, unknown: pl.Series
) -> Iterator[Break]:
    """Yield what does not match in a report."""
    for problem in problems:
        if problem in DAMAGE:
            yield break_of(DAMAGED_TRANSACTIONS, rows.height, f"{name} ({problem})")
        if problem.startswith(UNREADABLE_DAY):
            form = problem.removeprefix(UNREADABLE_DAY)
            yield break_of(UNREADABLE_TRANSACTIONS, rows.height, f"{name} ({form})")
    is_unknown = pl.col("cuid").is_null() | pl.col("cuid").hash().is_in(unknown.implode())
    unmatched = rows.filter(is_unknown)
    if unmatched.height:
        first = ", ".join(map(str, unmatched[POSITION].head(SHOWN)))
        yield break_of(UNKNOWN_TRANSACTION, unmatched.height, f"{name}, rows {first}")
