"""The reconciled rows of a run, one Parquet object per ledger part: every file of a report is made from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO

import polars as pl

from flows.runs.keys import RunKeys
from flows.runs.store import Store, read
from schemas.manifest import LedgerPart

_LATER = {"reissue_check": pl.UInt32}  # columns that older versions did not write: null
CSV_ROWS = 50_000  # rows turned to text at a time


def read_rows(
    store: Store, keys: RunKeys, parts: Iterable[LedgerPart], columns: list[str] | None, only: pl.Expr | None = None
) -> Iterator[pl.DataFrame]:
    """Yield these columns (None: all) of a run's reconciled rows, part by part; `only` filters the rows."""
    for part in parts:
        yield from_parquet(read(store, rows_key(keys, part)), columns, only)


def from_parquet(data: bytes, columns: list[str] | None, only: pl.Expr | None) -> pl.DataFrame:
    """Return these columns (None: all) of a Parquet object; rows that `only` filters out are not decoded."""
    rows = pl.scan_parquet(BytesIO(data))
    if columns is not None:
        known = rows.collect_schema()
        absent = [pl.lit(None, _LATER[name]).alias(name) for name in columns if name in _LATER and name not in known]
        rows = rows.with_columns(absent)
    return (rows if only is None else rows.filter(only)).select(columns or pl.all()).collect()


def write_parquet(store: Store, key: str, frame: pl.DataFrame, metadata: dict[str, str] | None = None) -> None:
    """Write a derived frame as Parquet, with `metadata`."""
    out = BytesIO()
    # links are random: a higher level compresses no better
    frame.write_parquet(out, compression="zstd", compression_level=1, metadata=metadata)
    store.replace(key, [out.getvalue()])


def csv_pieces(frames: Iterable[pl.DataFrame], columns: Iterable[str]) -> Iterator[bytes]:
    """Yield a CSV in pieces: the header, then the rows."""
    yield pl.DataFrame(schema=dict.fromkeys(columns, pl.String)).write_csv().encode()
    for frame in frames:
        for piece in frame.iter_slices(CSV_ROWS):
            out = BytesIO()
            piece.write_csv(out, include_header=False)
            yield out.getvalue()


def rows_key(keys: RunKeys, part: LedgerPart) -> str:
    """Return the key of the reconciled rows of one ledger part."""
    return keys.report(f"rows/{part.name}")
