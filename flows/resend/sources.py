"""Where resent rows are read from: the very bytes of their run, or a corrected extract."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import polars as pl

from flows.errors import OperatorError
from flows.extracts.mapping import map_rows, plan_mapping
from flows.extracts.open import open_extract
from flows.extracts.reader import read_extract
from flows.results.lineage import run_rows
from flows.runs.context import IssuerContext
from flows.runs.identity import digest
from flows.runs.keys import RunKeys
from flows.runs.store import Entry, ObjectMissingError, write_once
from flows.submissions.normalise import normalise
from flows.submissions.plan import identify
from flows.submissions.selection import PICK
from schemas.corrections import BESIDE, ROW, RUN
from schemas.manifest import Manifest, SourceIdentity
from schemas.portal import CUID

# A row of the corrected extract, with `number` and `run` where it has such columns.
CORRECTED: dict[str, pl.DataType | type[pl.DataType]] = {"row": pl.UInt32, "cuid": pl.String}
LISTED = 10  # row numbers named in a message


class SourceGoneError(OperatorError):
    """The extract of a run is missing, or has other bytes now."""

    message = "{extract}, the extract of run {run}, is gone or has changed: its rows cannot be read again."
    next_step = "Put the same file back, or name a newer extract with --extract."


class AmbiguousRowsError(OperatorError):
    """Rows of a corrected extract could replace several rows of the run."""

    message = "{extract}: cannot tell which of its rows {rows} replaces which of the rows {run_rows} of {run}."
    next_step = "Give each the number of the row it replaces, once, in a column `row`."


def reopen_source(context: IssuerContext, run: str, source: SourceIdentity) -> tuple[Entry, SourceIdentity]:
    """Return a run's source as it is stored now, checked by its digest; SourceGoneError."""
    store = context.adapters.store
    try:
        with store.open(source.key) as stream:
            entry = stream.entry
        same = source if entry.version == source.version else identify(store, entry)
    except ObjectMissingError:
        raise SourceGoneError(extract=source.key, run=run) from None
    if same.sha256 != source.sha256:
        raise SourceGoneError(extract=source.key, run=run)
    return entry, same


def rows_digest(rows: pl.DataFrame) -> str:
    """Return the SHA-256 of selected rows (row, origin), in any order."""
    return digest(_typed(rows).sort("row").write_csv().encode())


def write_selection(context: IssuerContext, keys: RunKeys, rows: pl.DataFrame) -> None:
    """Store which rows (row, origin) of its source a run sends; the same rows are the same bytes."""
    out = BytesIO()
    _typed(rows).sort("row").write_parquet(out)
    write_once(context.adapters.store, keys.selection, out.getvalue())


def _typed(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.col(name).cast(kind) for name, kind in PICK.items())


def replaced_rows(
    context: IssuerContext, entry: Entry, source: SourceIdentity, manifest: Manifest
) -> tuple[pl.DataFrame, pl.Series]:
    """Return which rows of a corrected extract replace which of a run (PICK), and all its rows; AmbiguousRowsError."""
    rows = pl.concat([pl.DataFrame(schema=CORRECTED), *_rows(context, entry, source)], how="diagonal")
    if "number" in rows.columns:
        picks = by_number(rows, manifest.run)
    else:
        cuids = rows["cuid"].drop_nulls().unique().implode()
        ours = [part.filter(pl.col("cuid").is_in(cuids)) for part in run_rows(context.adapters.store, manifest)]
        picks = by_cuid(rows, pl.concat(ours).select("row", "cuid"))
    unclear = ambiguous(picks)
    if unclear.height:
        raise AmbiguousRowsError(
            extract=entry.key,
            rows=numbered(unclear["row"].unique()),
            run_rows=numbered(unclear["origin"].unique()),
            run=manifest.run,
        )
    return picks, rows["row"]


def by_number(rows: pl.DataFrame, run: str) -> pl.DataFrame:
    """Return row and origin by the column `number`; rows without one, or of another run, replace nothing."""
    ours = pl.lit(value=True) if "run" not in rows.columns else pl.col("run").fill_null(run).is_in([run, ""])
    number = pl.col("number").str.strip_chars().cast(pl.UInt32, strict=False)
    return _typed(rows.filter(ours).with_columns(origin=number)).drop_nulls().unique(maintain_order=True)


def by_cuid(rows: pl.DataFrame, ours: pl.DataFrame) -> pl.DataFrame:
    """Return row and origin by cuid; `ours` has row and cuid of every row of the run with one of these cuids."""
    found = rows.join(ours.rename({"row": "origin"}), on="cuid", maintain_order="left")
    return _typed(found).drop_nulls().unique(maintain_order=True)


def ambiguous(picks: pl.DataFrame) -> pl.DataFrame:
    """Return the picks of which one row replaces several, or several replace one."""
    return picks.filter(pl.col("row").is_duplicated() | pl.col("origin").is_duplicated())


def numbered(rows: pl.Series) -> str:
    """List the first row numbers, and how many more there are."""
    first = ", ".join(str(row) for row in rows.sort().head(LISTED))
    return first + (f" and {len(rows) - LISTED:,} more" if len(rows) > LISTED else "")


def _rows(context: IssuerContext, entry: Entry, source: SourceIdentity) -> Iterator[pl.DataFrame]:
    """Yield row, cuid and, where there are such columns, number and run of every readable row."""
    issuer = context.issuer
    with open_extract(context, entry, source) as stream:
        extract = read_extract(stream, issuer.source, source.key)
        mapping = plan_mapping(extract.header, issuer, source.key, context.header.names, BESIDE)
        given = {name: header for header, name in ((ROW, "number"), (RUN, "run")) if header in extract.header}
        for block in extract:
            mapped, _ = map_rows(block.rows, mapping)
            named = normalise(mapped, issuer.rules).select("row", pl.col(CUID).alias("cuid"))
            beside = block.rows.select("row", **given)
            named = named.join(beside, on="row", how="left", maintain_order="left")
            yield named.with_columns(pl.col("row").cast(pl.UInt32))
