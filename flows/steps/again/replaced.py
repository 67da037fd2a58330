"""A corrected extract: read it, and find which of its rows replaces which row of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from flows.core.errors import OperatorError
from flows.core.extract.mapping import map_rows, plan_mapping
from flows.core.extract.reader import read_extract
from flows.core.life.replacing import CORRECTED, ambiguous, by_cuid, by_number
from flows.core.ports import Entry
from flows.core.rows.normalise import normalise
from flows.steps.answers.run_rows import run_rows
from flows.steps.edges import IssuerEdges
from flows.steps.night.scan import open_extract
from schemas.corrections import BESIDE, ROW, RUN
from schemas.manifest import Manifest, SourceIdentity
from schemas.portal import CUID

LISTED = 10  # row numbers named in a message


class AmbiguousRowsError(OperatorError):
    """Rows of a corrected extract that may stand for several rows of the run."""

    message = "{extract}: cannot tell which of its rows {rows} replaces which of the rows {run_rows} of {run}."
    next_step = "Give each the number of the row it replaces, once, in a column `row`."


class Replaced(NamedTuple):
    """`picks`: row of the corrected extract, and origin, the run's row that it replaces; `rows`: how many it has."""

    picks: pl.DataFrame
    numbers: pl.Series


def replaced_rows(edges: IssuerEdges, entry: Entry, source: SourceIdentity, manifest: Manifest) -> Replaced:
    """Match the rows of a corrected extract with those of a run; AmbiguousRowsError, and what reading raises."""
    rows = pl.concat([pl.DataFrame(schema=CORRECTED), *_rows(edges, entry, source)], how="diagonal")
    if "number" in rows.columns:
        picks = by_number(rows, manifest.run)
    else:
        cuids = rows["cuid"].drop_nulls().unique().implode()
        ours = [part.filter(pl.col("cuid").is_in(cuids)) for part in run_rows(edges.edges.store, manifest)]
        picks = by_cuid(rows, pl.concat(ours).select("row", "cuid"))
    unclear = ambiguous(picks)
    if unclear.height:
        raise AmbiguousRowsError(
            extract=entry.key,
            rows=numbered(unclear["row"].unique()),
            run_rows=numbered(unclear["origin"].unique()),
            run=manifest.run,
        )
    return Replaced(picks, rows["row"])


def numbered(rows: pl.Series) -> str:
    """Name the first rows by number, and how many more there are."""
    first = ", ".join(str(row) for row in rows.sort().head(LISTED))
    return first + (f" and {len(rows) - LISTED:,} more" if len(rows) > LISTED else "")


def _rows(edges: IssuerEdges, entry: Entry, source: SourceIdentity) -> Iterator[pl.DataFrame]:
    """Yield row, cuid and, where there are such columns, number and run of every row that can be read."""
    issuer = edges.issuer
    with open_extract(edges, entry, source) as stream:
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
