"""Read the rows of sent chunks again from the source, each compared with the ledger."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import polars as pl

from flows.errors import OperatorError
from flows.extracts.opening import open_extract
from flows.resend.corrections import by_row, cells_of
from flows.resend.selected_run import reopen_source
from flows.runs.cards import CONTENT_FINGERPRINTS, add_fingerprints
from flows.runs.context import IssuerContext
from flows.runs.stored_run import StoredRun
from flows.steps import ROW, WHY, Sentence, Slot, Step
from flows.submissions.row_scope import RowScope, SelectedRows
from flows.submissions.scan import Scan
from schemas.ledger import SUBMITTED
from schemas.portal import CUID

SAME = ["cuid", "last_4", "expiration", *CONTENT_FINGERPRINTS]
RECORD = ["row", "origin", "fate", "chunk", "position", *SAME]
FIRST = 5  # row numbers named


class RowsDifferError(OperatorError):
    """The rows read again differ from those in the ledger."""

    message = (
        "{run}: {count:row} read again and not those of the ledger (rows {rows}). "
        "Nothing was resealed."
    )
    next_step = Sentence(
        "Another version or setting built them: cancel these chunks, and send their rows again: "
        "{resubmit}.",
        resubmit=Step("resubmit", Slot("run"), row=ROW, reason=WHY),
    )


def reread_rows(
    context: IssuerContext, run: StoredRun, numbers: Collection[int]
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield number and rows of these chunks, each chunk once it is complete.

    The rows are in the order they were sent. Reads the whole source. Raises RowsDifferError,
    SourceGoneError, and what reading raises.
    """
    manifest = run.committed()
    is_sent = pl.col("chunk").is_in(list(numbers)) & (pl.col("fate") == SUBMITTED)
    sent = pl.concat([part.filter(is_sent).drop("fate") for part in run.ledger(RECORD)])
    picks = sent.select("row", origin=pl.coalesce("origin", "row"))
    entry, source = reopen_source(context, run.id, manifest.source)
    selected = SelectedRows(picks, by_row(cells_of(context, manifest)))
    scope = RowScope(selected=selected, keep_cells=True)
    with open_extract(context, entry, source) as stream:
        scan = Scan(context, stream, source, manifest.as_of, scope)
        yield from _complete_chunks(run.id, scan, sent)


def _complete_chunks(
    run: str, scan: Scan, sent: pl.DataFrame
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield the chunks that are complete; memory holds those begun."""
    sizes = sent.group_by("chunk").agg(pl.len().alias("size"))
    missing = sent["row"]
    begun: list[pl.DataFrame] = []
    for piece in scan:
        checked = [_checked(run, rows, sent) for rows in piece.chunks]
        read = pl.concat([missing.clear(), *(rows["row"] for rows in checked)])
        missing = missing.filter(~missing.is_in(read.implode()))
        begun += checked
        if begun:
            split = _split(pl.concat(begun), sizes)
            begun = [split.begun]
            for key, rows in split.complete.partition_by("chunk", as_dict=True).items():
                yield int(key[0]), rows
    if len(missing):
        raise RowsDifferError(run=run, count=len(missing), rows=_first_rows(missing))


class _Split(NamedTuple):
    """Rows of complete chunks, in order, and of chunks whose other rows were not read yet."""

    complete: pl.DataFrame
    begun: pl.DataFrame


def _split(rows: pl.DataFrame, sizes: pl.DataFrame) -> _Split:
    counted = rows.join(sizes, on="chunk").with_columns(pl.len().over("chunk").alias("read"))
    is_complete = pl.col("read") == pl.col("size")
    complete = counted.filter(is_complete).sort("chunk", "position")
    begun = counted.filter(pl.col("read") < pl.col("size")).drop("size", "read")
    return _Split(complete, begun)


def _checked(run: str, rows: pl.DataFrame, sent: pl.DataFrame) -> pl.DataFrame:
    """Return rows with their chunk and position in the ledger; RowsDifferError."""
    recorded = sent.select("row", "chunk", "position", pl.col(SAME).name.prefix("ledger "))
    reread = add_fingerprints(rows.drop(CONTENT_FINGERPRINTS)).with_columns(cuid=CUID)
    beside = reread.join(recorded, on="row")
    differing = beside.filter(pl.any_horizontal(_differs(name) for name in SAME))
    if differing.height:
        raise RowsDifferError(run=run, count=differing.height, rows=_first_rows(differing["row"]))
    return beside


def _differs(name: str) -> pl.Expr:
    """Return whether a column differs from the ledger's; older ledgers lack the fingerprints."""
    recorded = pl.col(f"ledger {name}")
    differs = pl.col(name).ne_missing(recorded)
    if name in CONTENT_FINGERPRINTS:
        return differs & recorded.is_not_null()
    return differs


def _first_rows(rows: pl.Series) -> str:
    return ", ".join(map(str, rows.sort().head(FIRST)))
