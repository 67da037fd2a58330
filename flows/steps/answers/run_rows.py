"""The rows of a committed run as they stand: what became of each that was sent, and why the others were not."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import polars as pl

from flows.core.life.wanted import CANCELLED, RUN_ROW
from flows.core.ports import Store
from flows.steps.edges import read
from flows.steps.operate.outbox import standing_of
from flows.steps.rows import rows_key
from flows.steps.runs import UnknownRunError, finished, keys_of, read_ledger, read_summary
from schemas import ledger
from schemas.manifest import LedgerPart, Manifest
from schemas.states import AWAITING

RECORD = ["row", "origin", "cuid", "last_4", "fate", "chunk", "reasons"]
NOTHING = pl.DataFrame(schema={"row": pl.UInt32, "settled": pl.String, "told": pl.List(pl.String)})


def committed(store: Store, run: str) -> Manifest:
    """Return the manifest of a committed run; UnknownRunError, AbandonedError."""
    manifest = finished(store, keys_of(run))
    if manifest is None:
        raise UnknownRunError(run=run)
    return manifest


def run_rows(store: Store, manifest: Manifest) -> Iterator[pl.DataFrame]:
    """Yield every row of a run (`flows.core.life.wanted.RUN_ROW`), part by part."""
    keys = keys_of(manifest.run)
    cancelled = [one.chunk.number for one in standing_of(store, keys, manifest) if one.state == "cancelled"]
    reported = read_summary(store, keys) is not None
    for part, records in zip(manifest.ledger, read_ledger(store, keys, manifest.ledger, RECORD), strict=True):
        settled = _settled(store, manifest, part) if reported else NOTHING
        rows = records.join(settled, on="row", how="left", maintain_order="left")
        yield rows.with_columns(state=_state(cancelled), reasons=_reasons()).select(
            pl.col(name).cast(kind) for name, kind in RUN_ROW.items()
        )


def _settled(store: Store, manifest: Manifest, part: LedgerPart) -> pl.DataFrame:
    content = BytesIO(read(store, rows_key(keys_of(manifest.run), part)))
    return pl.read_parquet(content, columns=["row", "state", "reasons"]).rename({"state": "settled", "reasons": "told"})


def _state(cancelled: list[int]) -> pl.Expr:
    unanswered = pl.col("settled").fill_null(AWAITING)
    never = (unanswered == AWAITING) & pl.col("chunk").is_in(cancelled)
    sent = pl.when(never).then(pl.lit(CANCELLED)).otherwise(unanswered)
    return pl.when(pl.col("fate") == ledger.SUBMITTED).then(sent).otherwise("fate")


def _reasons() -> pl.Expr:
    """The partner's reasons where the row was sent: what we only warned of refused nothing."""
    return pl.when(pl.col("fate") == ledger.SUBMITTED).then("told").otherwise("reasons")
