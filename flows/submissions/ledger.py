"""The ledger of a run: records made from rows, checked by the model in `schemas.ledger`, written as Parquet parts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO

import numpy as np
import polars as pl
from pandera.config import ValidationDepth, config_context
from pandera.errors import SchemaErrors

from flows.errors import BugError
from flows.runs.identity import digest
from flows.runs.keys import RunKeys
from flows.runs.store import ConflictError, Store, read
from schemas import ledger
from schemas.ledger import Ledger
from schemas.manifest import LedgerPart
from schemas.portal import CUID
from schemas.tables import parquet


def sent_records(chunks: Sequence[pl.DataFrame], numbers: Sequence[int]) -> pl.DataFrame:
    """Return the ledger records of the rows of some chunks (at least one), in the chunks' order."""
    heights = [chunk.height for chunk in chunks]
    places = np.concatenate([np.arange(1, height + 1, dtype=np.uint16) for height in heights])
    records = pl.concat(chunks).with_columns(
        pl.col(CUID).alias("cuid"),
        pl.lit(ledger.SUBMITTED).alias("fate"),
        pl.Series("chunk", np.repeat(np.array(numbers, np.uint32), heights)),
        pl.Series("position", places),
    )
    return records.select(*ledger.dtypes())


def with_reasons(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Add the list column `reasons` ("column|code" each, empty where there is none).

    Not by `pl.format`: polars 2.1 panics in it where columns have different chunks, as concatenated verdicts do.
    """
    if verdicts.is_empty():
        return rows.with_columns(pl.lit([], pl.List(pl.String)).alias("reasons"))
    coded = verdicts.select("row", reasons=pl.concat_str("column", "code", separator="|"))
    reasons = coded.group_by("row", maintain_order=True).agg("reasons")
    joined = rows.select("row").join(reasons, on="row", how="left", maintain_order="left")
    return rows.with_columns(joined["reasons"].fill_null([]))


def unsent_records(rows: pl.DataFrame, fate: str) -> pl.DataFrame:
    """Return ledger records of rows with their `reasons`; a cuid that holds a card number is left out."""
    holds_card = pl.col("reasons").list.contains(f"{CUID}|cardholder.cuid.card_number")
    kept = {name: pl.col(name) for name in ("cuid_made", "last_4", "expiration", "reasons")}
    return _unsent(rows, fate, cuid=pl.when(~holds_card).then(CUID), **kept)


def unread_records(lines: pl.DataFrame, fate: str) -> pl.DataFrame:
    """Return ledger records of lines of which only the place and one code are known."""
    return _unsent(lines, fate, cuid_made=pl.lit(False), reasons=pl.concat_list("|" + pl.col("code")))


def _unsent(rows: pl.DataFrame, fate: str, **cells: pl.Expr) -> pl.DataFrame:
    """Return ledger records, without origin, of rows that are not sent; cells that are not given are null."""
    given = {"row": pl.col("row"), "line": pl.col("line"), "fate": pl.lit(fate), **cells}
    kinds = {name: kind for name, kind in ledger.dtypes().items() if name != "origin"}
    return rows.select(given.get(name, pl.lit(None)).cast(kind).alias(name) for name, kind in kinds.items())


def check_records(records: pl.DataFrame) -> None:
    """Raise BugError, which names columns and shows no cell, where records are not as the ledger's model declares."""
    try:
        with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
            Ledger.validate(records, lazy=True)
        return
    except SchemaErrors as errors:
        problem = ", ".join(dict.fromkeys(str(error.schema.name) for error in errors.schema_errors))
    except Exception as error:  # noqa: BLE001  polars' errors may show cells, as pandera's do: ours is raised below
        problem = type(error).__name__
    raise BugError(place="ledger", kind=problem)


class LedgerWriter:
    """Write ledger records in parts, which chunks never span."""

    def __init__(self, store: Store, keys: RunKeys, part_rows: int = 250_000, *, anew: bool = False) -> None:
        self._store, self._keys, self._part_rows, self._anew = store, keys, part_rows, anew
        self._waiting: list[pl.DataFrame] = []
        self._parts: list[LedgerPart] = []

    def add(self, records: pl.DataFrame) -> None:
        """Take records, in any order, and write a part of them where they are enough."""
        self._waiting.append(records)
        if sum(map(len, self._waiting)) >= self._part_rows:
            self.finish()

    def finish(self) -> list[LedgerPart]:
        """Write the rest and return all parts."""
        if any(map(len, self._waiting)):
            self._parts.append(self._write(len(self._parts) + 1, self._waiting))
            self._waiting = []
        return self._parts

    def _write(self, number: int, records: list[pl.DataFrame]) -> LedgerPart:
        """Create a part; where it exists, it counts if it holds the same records, whoever wrote its bytes."""
        frame = pl.concat(records).sort("row")
        check_records(frame)
        name = f"part-{number:05d}.parquet"
        key, data = self._keys.ledger + name, parquet(frame, compression="zstd", statistics=True)
        if self._anew:  # a dry run, maybe with other settings than those of the run that is stored
            self._store.replace(key, [data])
        else:
            self._store.create(key, data)
        stored = read(self._store, key)
        part, same = LedgerPart(name=name, rows=frame.height, sha256=digest(stored)), stored == data
        with suppress(pl.exceptions.PolarsError):  # not Parquet
            if same or pl.read_parquet(BytesIO(stored)).equals(frame):
                return part
        raise ConflictError(key=key)
