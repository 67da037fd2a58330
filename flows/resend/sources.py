"""Where rows that go out again are read from: the very bytes of their run, or a corrected extract."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import NamedTuple

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

# A row of the corrected extract; `number` and `run` only where it has such columns.
CORRECTED: dict[str, pl.DataType | type[pl.DataType]] = {"row": pl.UInt32, "cuid": pl.String}

LISTED = 10  # row numbers named in a message


def by_number(rows: pl.DataFrame, run: str) -> pl.DataFrame:
    """Return row and origin by the column `number`; rows without one, or of another run, stand for nothing."""
    ours = pl.lit(value=True) if "run" not in rows.columns else pl.col("run").fill_null(run).is_in([run, ""])
    number = pl.col("number").str.strip_chars().cast(pl.UInt32, strict=False)
    return _picks(rows.filter(ours).with_columns(origin=number))


def by_cuid(rows: pl.DataFrame, ours: pl.DataFrame) -> pl.DataFrame:
    """Return row and origin by cuid; `ours` has row and cuid of every row of the run with one of these cuids."""
    return _picks(rows.join(ours.rename({"row": "origin"}), on="cuid", maintain_order="left"))


def ambiguous(picks: pl.DataFrame) -> pl.DataFrame:
    """Return the picks that cannot be told apart: several rows for one, or one for several."""
    return picks.filter(pl.col("row").is_duplicated() | pl.col("origin").is_duplicated())


def _picks(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.col(name).cast(kind) for name, kind in PICK.items()).drop_nulls().unique(maintain_order=True)


class SourceGoneError(OperatorError):
    """The extract a run was made of is not there any more, or holds other bytes now."""

    message = "{extract}, the extract of run {run}, is gone or has changed: its rows cannot be read again."
    next_step = "Put the same file back, or name a newer extract with --extract."


def reopen_source(context: IssuerContext, run: str, source: SourceIdentity) -> tuple[Entry, SourceIdentity]:
    """Return a run's source as it lies there now, known by its digest; SourceGoneError."""
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


def selection_bytes(rows: pl.DataFrame) -> bytes:
    """Return the rows of a run (row, origin) as they are kept: the same rows are the same bytes."""
    out = BytesIO()
    rows.select(pl.col(name).cast(kind) for name, kind in PICK.items()).sort("row").write_parquet(out)
    return out.getvalue()


def rows_digest(rows: pl.DataFrame) -> str:
    """Return the SHA-256 of the rows asked for (row, origin), in any order."""
    ordered = rows.select(pl.col(name).cast(kind) for name, kind in PICK.items()).sort("row")
    return digest(ordered.write_csv().encode())


def write_selection(context: IssuerContext, keys: RunKeys, rows: pl.DataFrame) -> None:
    """Write which rows (row, origin) of its source a run is of."""
    write_once(context.adapters.store, keys.selection, selection_bytes(rows))


class AmbiguousRowsError(OperatorError):
    """Rows of a corrected extract that may stand for several rows of the run."""

    message = "{extract}: cannot tell which of its rows {rows} replaces which of the rows {run_rows} of {run}."
    next_step = "Give each the number of the row it replaces, once, in a column `row`."


class RowMatches(NamedTuple):
    """`picks`: row of the corrected extract, and origin, the run's row that it replaces; `rows`: how many it has."""

    picks: pl.DataFrame
    numbers: pl.Series


def replaced_rows(context: IssuerContext, entry: Entry, source: SourceIdentity, manifest: Manifest) -> RowMatches:
    """Match the rows of a corrected extract with those of a run; AmbiguousRowsError, and what reading raises."""
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
    return RowMatches(picks, rows["row"])


def numbered(rows: pl.Series) -> str:
    """Name the first rows by number, and how many more there are."""
    first = ", ".join(str(row) for row in rows.sort().head(LISTED))
    return first + (f" and {len(rows) - LISTED:,} more" if len(rows) > LISTED else "")


def _rows(context: IssuerContext, entry: Entry, source: SourceIdentity) -> Iterator[pl.DataFrame]:
    """Yield row, cuid and, where there are such columns, number and run of every row that can be read."""
    issuer = context.issuer
    with open_extract(context, entry, source) as stream:
        extract = read_extract(stream, issuer.source, source.key)
        strict = issuer.source.strict
        mapping = plan_mapping(
            extract.header, issuer.columns, source.key, where=issuer.filter, strict=strict, beside=BESIDE
        )
        said = {name: header for header, name in ((ROW, "number"), (RUN, "run")) if header in extract.header}
        for block in extract:
            mapped, _ = map_rows(block.rows, mapping)
            named = normalise(mapped, issuer.rules).select("row", pl.col(CUID).alias("cuid"))
            if said:
                beside = block.rows.select("row", **said)
                named = named.join(beside, on="row", how="left", maintain_order="left")
            yield named.with_columns(pl.col("row").cast(pl.UInt32))
