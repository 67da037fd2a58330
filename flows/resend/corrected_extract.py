"""A corrected extract: which of its rows replaces which row of a run, by number or by cuid."""

from collections.abc import Iterator

import polars as pl

from flows.errors import OperatorError
from flows.extracts.mapping import map_rows, plan_mapping
from flows.extracts.opening import open_extract
from flows.extracts.rows import open_rows
from flows.results.row_states import run_rows
from flows.runs.context import IssuerContext
from flows.runs.errors import numbered
from flows.runs.frames import shaped
from flows.runs.store import Entry
from flows.runs.stored_run import StoredRun
from flows.submissions.normalise import normalise
from flows.submissions.row_scope import PICK
from schemas.corrections import BESIDE, ROW, RUN
from schemas.manifest import SourceIdentity
from schemas.portal import CUID

# A row of the corrected extract, with `number` and `run` where it has such columns.
CORRECTED: dict[str, pl.DataType | type[pl.DataType]] = {"row": pl.UInt32, "cuid": pl.String}


class AmbiguousRowsError(OperatorError):
    """Rows of a corrected extract could replace several rows of the run."""

    message = (
        "{extract}: cannot tell which of its rows {rows} replaces which of the rows {run_rows} "
        "of {run}."
    )
    next_step = "Give each the number of the row it replaces, once, in a column `row`."


def replaced_rows(
    context: IssuerContext, entry: Entry, source: SourceIdentity, run: StoredRun
) -> tuple[pl.DataFrame, pl.Series]:
    """Return which rows of a corrected extract replace which of a run (PICK), and all its rows.

    Raises AmbiguousRowsError.
    """
    frames = _rows(context, entry, source)
    rows = pl.concat([pl.DataFrame(schema=CORRECTED), *frames], how="diagonal")
    if "number" in rows.columns:
        picks = by_number(rows, run.id)
    else:
        picks = by_cuid(rows, _rows_with_cuids(run, rows["cuid"]))
    unclear = picks.filter(pl.col("row").is_duplicated() | pl.col("origin").is_duplicated())
    if unclear.height:
        raise AmbiguousRowsError(
            extract=entry.key,
            rows=numbered(unclear["row"].unique()),
            run_rows=numbered(unclear["origin"].unique()),
            run=run.id,
        )
    return picks, rows["row"]


def _rows_with_cuids(run: StoredRun, cuids: pl.Series) -> pl.DataFrame:
    """Return row and cuid of every row of a run that has one of these cuids."""
    is_named = pl.col("cuid").is_in(cuids.drop_nulls().unique().implode())
    parts = [part.filter(is_named) for part in run_rows(run)]
    return pl.concat(parts).select("row", "cuid")


def by_number(rows: pl.DataFrame, run: str) -> pl.DataFrame:
    """Return row and origin by the column `number`.

    Rows without a number, or of another run, replace nothing.
    """
    if "run" in rows.columns:
        rows = rows.filter(pl.col("run").fill_null(run).is_in([run, ""]))
    number = pl.col("number").str.strip_chars().cast(pl.UInt32, strict=False)
    picks = shaped(rows.with_columns(origin=number), PICK)
    return picks.drop_nulls().unique(maintain_order=True)


def by_cuid(rows: pl.DataFrame, rows_of_run: pl.DataFrame) -> pl.DataFrame:
    """Return row and origin by cuid.

    `rows_of_run`: row and cuid of every row of the run with one of these cuids.
    """
    originals = rows_of_run.rename({"row": "origin"})
    picks = shaped(rows.join(originals, on="cuid", maintain_order="left"), PICK)
    return picks.drop_nulls().unique(maintain_order=True)


def _rows(context: IssuerContext, entry: Entry, source: SourceIdentity) -> Iterator[pl.DataFrame]:
    """Yield row, cuid and, where there are such columns, number and run of every readable row."""
    issuer = context.issuer
    with open_extract(context, entry, source) as stream:
        extract = open_rows(stream, issuer.source, source.key)
        mapping = plan_mapping(
            extract.header,
            issuer,
            source.key,
            context.header.names,
            BESIDE,
            as_of=context.adapters.now().date(),
        )
        columns = {"number": ROW, "run": RUN}
        columns = {name: column for name, column in columns.items() if column in extract.header}
        for block in extract:
            mapped = map_rows(block.rows, mapping).sent
            named = normalise(mapped, issuer.rules).select("row", pl.col(CUID).alias("cuid"))
            beside = block.rows.select("row", **columns)
            joined = named.join(beside, on="row", how="left", maintain_order="left")
            yield joined.with_columns(pl.col("row").cast(pl.UInt32))
