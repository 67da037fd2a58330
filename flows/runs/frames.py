"""Frames as they are stored: Parquet of every version, CSV that a spreadsheet may open."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import IO

import polars as pl

from flows.readable import cells
from flows.runs.store import Store
from flows.runs.versions import NewerDocumentError
from schemas.tables import FORMAT, parquet

# columns that older versions did not write: null
_LATER: dict[str, pl.DataType | type[pl.DataType]] = {
    "reissue_check": pl.UInt32,
    "how": pl.String,
    "trouble": pl.String,
    "result": pl.String,
    "found": pl.List(pl.String),
}
CSV_ROWS = 50_000  # rows turned to text at a time


def from_parquet(
    content: bytes,
    key: str,
    columns: list[str] | None,
    only: pl.Expr | None,
    records: Callable[[], pl.DataFrame] | None = None,
) -> pl.DataFrame:
    """Return these columns (None: all) of a Parquet object.

    Rows that `only` filters out are not decoded. What older versions did not write is taken from
    the `records` of its rows, else null. Raises NewerDocumentError where a newer one no longer
    writes it.
    """
    rows = pl.scan_parquet(BytesIO(content))
    lacking = set(columns or ()).difference(rows.collect_schema())
    if lacking:
        written = int(pl.read_parquet_metadata(BytesIO(content)).get("format", 1))
        if written > FORMAT:
            raise NewerDocumentError(key=key, format=written)
        rows = _completed(rows, lacking, records)
    if only is not None:
        rows = rows.filter(only)
    return rows.select(columns or pl.all()).collect()


def from_parquets(
    objects: Sequence[tuple[str, bytes]], columns: list[str], only: pl.Expr
) -> pl.DataFrame:
    """Return these columns of several Parquet objects (key, content), one after another.

    As `from_parquet` does; small ones that were written alike take a tenth of its time.
    """
    contents: list[IO[bytes]] = [BytesIO(content) for _, content in objects]
    try:
        rows = pl.scan_parquet(contents, extra_columns="ignore").filter(only)
        return rows.select(columns).collect()
    except pl.exceptions.PolarsError:  # one of them was written by another version
        return pl.concat(from_parquet(content, key, columns, only) for key, content in objects)


def _completed(
    rows: pl.LazyFrame, lacking: Iterable[str], records: Callable[[], pl.DataFrame] | None
) -> pl.LazyFrame:
    """Add columns that an older version did not write."""
    if records is None:
        return rows.with_columns(pl.lit(None, _LATER[name]).alias(name) for name in lacking)
    known = records().lazy().select("row", *lacking)
    return rows.join(known, on="row", how="left", maintain_order="left")


def write_parquet(
    store: Store, key: str, frame: pl.DataFrame, metadata: dict[str, str] | None = None
) -> None:
    """Write a derived frame as Parquet, with `metadata`."""
    # links are random: a higher level compresses no better; nobody looks for a range of values
    options = {"compression": "zstd", "compression_level": 1, "statistics": False}
    store.replace(key, [parquet(frame, metadata, **options)])


def shaped(
    rows: pl.DataFrame, schema: Mapping[str, pl.DataType | type[pl.DataType]]
) -> pl.DataFrame:
    """Return the columns of a schema, cast to its types; null where `rows` does not have one."""
    return rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(None).alias(name)).cast(kind)
        for name, kind in schema.items()
    )


def csv_pieces(
    frames: Iterable[pl.DataFrame], columns: Iterable[str], *, unchanged: bool = False
) -> Iterator[bytes]:
    """Yield a CSV in pieces: the header, then the rows.

    Cells are as people may see them (`flows.readable`), unless they are for machines: `unchanged`.
    """
    yield pl.DataFrame(schema=dict.fromkeys(columns, pl.String)).write_csv().encode()
    for frame in frames:
        for piece in (frame if unchanged else frame.with_columns(cells())).iter_slices(CSV_ROWS):
            out = BytesIO()
            piece.write_csv(out, include_header=False)
            yield out.getvalue()
