"""The links of a run as the sending system takes them: links.csv, or files of so many rows."""

from collections.abc import Iterable, Iterator

import polars as pl

from flows.runs.frames import csv_pieces
from flows.runs.stored_run import StoredRun
from schemas.ledger import LINKED
from schemas.settings import LinkSettings
from schemas.tables import Links


def verified_links(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the links of reconciled rows (`schemas.tables.Links`): verified ones, unchanged."""
    return rows.filter(state=LINKED).select(*Links.dtypes())


def write_links(run: StoredRun, links: Iterator[pl.DataFrame], settings: LinkSettings) -> None:
    """Write all links of a run.

    Link files of an earlier report keep only their header: a link withdrawn since must not be sent
    from them.
    """
    written = set()
    for name, pieces in link_files(links, settings):
        key = run.keys.report(name)
        run.store.replace(key, pieces)
        written.add(key)
    for entry in list(run.store.keys(run.keys.report("links"), shallow=True)):
        if entry.key.endswith(".csv") and entry.key not in written:
            run.store.replace(entry.key, csv_pieces([], settings.columns.values()))


def link_files(
    links: Iterator[pl.DataFrame], settings: LinkSettings
) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield name and content of links.csv, or of links-00001.csv and so on.

    Columns, their names and the date format are those of the sending system.
    """
    names = list(settings.columns.values())
    cells = [pl.col(column).alias(name) for column, name in settings.columns.items()]
    expires_on = pl.col("expires_on").dt.strftime(settings.strftime)
    mailed = (part.with_columns(expires_on).select(cells) for part in links)
    for number, frames in enumerate(_files(mailed, settings.rows_per_file), start=1):
        name = f"links-{number:05d}.csv" if settings.rows_per_file else "links.csv"
        yield name, csv_pieces(frames, names, unchanged=True)


def _files(frames: Iterator[pl.DataFrame], limit: int | None) -> Iterator[Iterable[pl.DataFrame]]:
    """Yield the frames of each file: all of them, or `limit` rows at a time."""
    if limit is None:
        yield frames
        return
    waiting = next(frames, None)
    while waiting is not None:
        while waiting.height <= limit and (following := next(frames, None)) is not None:
            waiting = pl.concat([waiting, following])
        yield [waiting.head(limit)]
        waiting = waiting.slice(limit) if waiting.height > limit else None
