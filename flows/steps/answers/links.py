"""Write the links: CSV as the system that sends them wants it ([links] of the issuer's TOML), Parquet as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl

from flows.core.names import RunKeys
from flows.core.ports import Store
from flows.core.report import tables
from flows.steps.rows import csv_pieces, write_parquet
from schemas.links import LinkSettings
from schemas.manifest import LedgerPart


def keep_links(store: Store, keys: RunKeys, part: LedgerPart, rows: pl.DataFrame) -> pl.DataFrame:
    """Write the links among the reconciled rows of a ledger part, links/part-*.parquet, and return them."""
    links = tables.links(rows)
    write_parquet(store, keys.report(f"links/{part.name}"), links)
    return links


def write_links(store: Store, keys: RunKeys, links: Iterator[pl.DataFrame], settings: LinkSettings) -> None:
    """Write all links of a run, part after part, as links.csv (or links-00001.csv … of `rows_per_file`)."""
    columns = list(settings.columns.values())
    written = set()
    mailed = (tables.mailing(part, settings) for part in links)
    for number, frames in enumerate(_files(mailed, settings.rows_per_file), start=1):
        key = keys.report(f"links-{number:05d}.csv" if settings.rows_per_file else "links.csv")
        store.replace(key, csv_pieces(frames, columns))
        written.add(key)
    _empty_leftovers(store, keys, written, columns)


def _files(frames: Iterator[pl.DataFrame], limit: int | None) -> Iterator[Iterable[pl.DataFrame]]:
    """Yield the frames of each file: all of them, or at most `limit` rows."""
    if limit is None:
        yield frames
        return
    waiting = next(frames, None)
    while waiting is not None:
        while waiting.height <= limit and (more := next(frames, None)) is not None:
            waiting = pl.concat([waiting, more])
        yield [waiting.head(limit)]
        waiting = waiting.slice(limit) if waiting.height > limit else None


def _empty_leftovers(store: Store, keys: RunKeys, written: set[str], columns: list[str]) -> None:
    """Leave only a header in link files of an earlier report: a link taken back since must not be sent from there."""
    for entry in list(store.keys(keys.report("links"), shallow=True)):
        if entry.key.endswith(".csv") and entry.key not in written:
            store.replace(entry.key, csv_pieces([], columns))
