"""The rows of committed chunks, read anew from the run's source, each held against the ledger before it counts.

Which row stands where is the ledger's word, so nothing is decided again: not who is sent, not how rows are split.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import polars as pl

from flows.core.errors import OperatorError
from flows.core.ports import Store
from flows.core.rows.known import check_values
from flows.core.rows.picked import Picked
from flows.steps.again.corrections import by_row, cells_of
from flows.steps.again.reread import source_again
from flows.steps.edges import IssuerEdges
from flows.steps.night.scan import Scan, open_extract
from flows.steps.runs import keys_of, read_ledger
from flows.submissions.rows import Choice
from schemas import ledger
from schemas.manifest import Manifest
from schemas.portal import CUID

CHECKS = ["name_check", "address_check"]
SAME = ["cuid", "last_4", "expiration", *CHECKS]
RECORD = ["row", "origin", "fate", "chunk", "position", *SAME]
FIRST = 5  # row numbers named


class RowsDifferError(OperatorError):
    """The rows read anew are not those the ledger says were sent."""

    says = "{0}: {1} rows read anew are not those of the ledger (rows {2}). Nothing was sealed anew."
    then = "Another version or setting made them: cancel these chunks and send their rows with `cardlink resubmit`."

    def __init__(self, run: str, count: int, rows: str) -> None:
        super().__init__(run, count, rows)


def rows_again(edges: IssuerEdges, manifest: Manifest, numbers: Collection[int]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield number and rows of these chunks, rows in the order they were sent, chunks as they are complete.

    Raises RowsDifferError, SourceGoneError, and what reading raises; read to its end, it is the whole source.
    """
    wanted = _sent(edges.edges.store, manifest, numbers)
    entry, source = source_again(edges, manifest.run, manifest.source)
    picks = wanted.select("row", origin=pl.coalesce("origin", "row"))
    choice = Choice(picked=Picked(picks, by_row(cells_of(edges, manifest))), keep_cells=True)
    with open_extract(edges, entry, source) as stream:
        scan = Scan(edges, stream, source, manifest.as_of, choice)
        yield from _gathered(manifest.run, scan, wanted)


def _sent(store: Store, manifest: Manifest, numbers: Collection[int]) -> pl.DataFrame:
    parts = read_ledger(store, keys_of(manifest.run), manifest.ledger, RECORD)
    chosen = pl.col("chunk").is_in(list(numbers)) & (pl.col("fate") == ledger.SUBMITTED)
    return pl.concat([part.filter(chosen).drop("fate") for part in parts])


def _gathered(run: str, scan: Scan, wanted: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield the chunks that are complete; memory holds those that are begun."""
    sizes = wanted.group_by("chunk").agg(pl.len().alias("size"))
    begun: list[pl.DataFrame] = []
    missing = wanted["row"]
    for piece in scan:
        fresh = [_checked(run, rows, wanted) for rows in piece.chunks]
        missing = missing.filter(~missing.is_in(pl.concat([missing.clear(), *(one["row"] for one in fresh)]).implode()))
        begun += fresh
        if begun:
            rows = pl.concat(begun).join(sizes, on="chunk").with_columns(pl.len().over("chunk").alias("there"))
            whole = rows.filter(pl.col("there") == pl.col("size")).sort("chunk", "position")
            begun = [rows.filter(pl.col("there") < pl.col("size")).drop("size", "there")]
            yield from ((int(key[0]), part) for key, part in whole.partition_by("chunk", as_dict=True).items())
    if len(missing):
        raise RowsDifferError(run, len(missing), _named(missing))


def _checked(run: str, rows: pl.DataFrame, wanted: pl.DataFrame) -> pl.DataFrame:
    """Return rows with chunk and position of the ledger, where they are what it says."""
    told = check_values(rows.drop(CHECKS)).with_columns(cuid=CUID)
    beside = told.join(wanted.select("row", "chunk", "position", pl.col(SAME).name.prefix("ledger ")), on="row")
    unlike = [
        pl.col(name).ne_missing(pl.col(f"ledger {name}"))
        & (pl.col(f"ledger {name}").is_not_null() | (name not in CHECKS))
        for name in SAME
    ]
    differing = beside.filter(pl.any_horizontal(unlike))
    if differing.height:
        raise RowsDifferError(run, differing.height, _named(differing["row"]))
    return beside


def _named(rows: pl.Series) -> str:
    return ", ".join(map(str, rows.sort().head(FIRST)))
