"""The ledger of a run: its records, made of rows and checked as `schemas.ledger` declares, written as Parquet parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, lru_cache
from io import BytesIO

import numpy as np
import pandera.polars as pa
import polars as pl
from pandera.config import ValidationDepth, config_context

from flows.errors import BugError
from flows.runs.identity import digest
from flows.runs.keys import RunKeys
from flows.runs.store import ConflictError, Store, read
from schemas import ledger
from schemas.ledger import Ledger
from schemas.manifest import LedgerPart
from schemas.portal import CUID

PART_ROWS = 250_000


def sent_records(chunks: Sequence[pl.DataFrame], numbers: Sequence[int]) -> pl.DataFrame:
    """Return the ledger records of the rows of some chunks, at least one, in the chunks' order."""
    heights = [chunk.height for chunk in chunks]
    places = np.concatenate([np.arange(1, height + 1, dtype=np.uint16) for height in heights])
    return pl.concat(chunks).select(
        "row",
        "line",
        pl.col(CUID).alias("cuid"),
        "cuid_made",
        "last_4",
        "expiration",
        pl.lit(ledger.SUBMITTED).alias("fate"),
        pl.Series("chunk", np.repeat(np.array(numbers, np.uint32), heights)),
        pl.Series("position", places),
        "origin",
        "name_check",
        "address_check",
        "reasons",
    )


def with_reasons(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Add the list column `reasons` ("column|code" each, empty where there is none).

    Not by `pl.format`: polars 2.1 panics in it where columns have different chunks, as concatenated verdicts do.
    """
    if verdicts.is_empty():
        return rows.with_columns(pl.lit([], pl.List(pl.String)).alias("reasons"))
    reported = verdicts.select("row", reasons=pl.concat_str("column", "code", separator="|")).group_by(
        "row", maintain_order=True
    )
    joined = rows.select("row").join(reported.agg("reasons"), on="row", how="left", maintain_order="left")
    return rows.with_columns(joined["reasons"].fill_null([]))


def unsent_records(rows: pl.DataFrame, verdicts: pl.DataFrame, fate: str) -> pl.DataFrame:
    """Return ledger records of rows that verdicts refuse."""
    if rows.is_empty():
        return pl.DataFrame(schema=ledger.dtypes()).drop("origin")
    return resting_records(with_reasons(rows, verdicts), fate)


def resting_records(rows: pl.DataFrame, fate: str) -> pl.DataFrame:
    """Return ledger records of rows whose reasons are with them; a cuid that holds a card number is left out."""
    holds_card = pl.col("reasons").list.contains(f"{CUID}|cardholder.cuid.card_number")
    return rows.select(
        "row",
        "line",
        pl.when(~holds_card).then(CUID).alias("cuid"),
        "cuid_made",
        "last_4",
        "expiration",
        *_unsent(fate),
        "reasons",
    )


def unread_records(lines: pl.DataFrame, fate: str) -> pl.DataFrame:
    """Return ledger records of lines nothing is known of but their place and one code."""
    nothing = pl.lit(None, pl.String)
    return lines.select(
        "row",
        "line",
        nothing.alias("cuid"),
        pl.lit(False).alias("cuid_made"),
        nothing.alias("last_4"),
        nothing.alias("expiration"),
        *_unsent(fate),
        pl.concat_list("|" + pl.col("code")).alias("reasons"),
    )


def _unsent(fate: str) -> tuple[pl.Expr, ...]:
    return (
        pl.lit(fate).alias("fate"),
        pl.lit(None, pl.UInt32).alias("chunk"),
        pl.lit(None, pl.UInt16).alias("position"),
        pl.lit(None, pl.UInt32).alias("name_check"),
        pl.lit(None, pl.UInt32).alias("address_check"),
    )


def check_records(records: pl.DataFrame) -> None:
    """Raise BugError, which names the columns and shows no cell, where records are not as the ledger's model says."""
    problem = _misshapen(tuple(records.schema.items()))
    if not problem:
        held = records.select(_rules())
        problem = ", ".join(name for name in held.columns if not held[name].item())
    if problem:
        raise BugError(place="ledger", kind=problem)


@lru_cache(8)
def _misshapen(shape: tuple[tuple[str, pl.DataType], ...]) -> str:
    """Return the name of pandera's error where a frame has not the ledger's shape, else nothing; asked once a shape."""
    try:
        with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_ONLY):
            Ledger.validate(pl.DataFrame(schema=dict(shape)))
    except Exception as error:  # noqa: BLE001  pandera raises its own and polars' errors
        return type(error).__name__
    return ""


@cache
def _rules() -> tuple[pl.Expr, ...]:
    """Return, by column, whether every record keeps what the model declares; a null keeps all but `nullable`."""
    return tuple(
        pl.all_horizontal(
            pl.lit(column.nullable) | (pl.col(name).null_count() == 0),
            *(_declared(pl.col(name), check).fill_null(True).all() for check in column.checks),
        ).alias(name)
        for name, column in Ledger.to_schema().columns.items()
    )


def _declared(cell: pl.Expr, check: pa.Check) -> pl.Expr:
    """Return one of pandera's own checks as an expression; KeyError for one the ledger has not used so far."""
    asked: dict[str, Callable[..., pl.Expr]] = {
        "greater_than_or_equal_to": lambda min_value: cell >= min_value,
        "isin": lambda allowed_values: cell.is_in(list(allowed_values)),
        "str_matches": lambda pattern: cell.str.contains(pattern),
    }
    return asked[str(check.name)](**(check.statistics or {}))


class LedgerWriter:
    """Collect ledger records and write them in parts of about 250,000, by row number within a part.

    A part is written beside the rows that come after it; close the writer where it is left early.
    """

    def __init__(self, store: Store, keys: RunKeys, part_rows: int = PART_ROWS, name: str = "part") -> None:
        self._store = store
        self._keys = keys
        self._part_rows = part_rows
        self._name = name
        self._waiting: list[pl.DataFrame] = []
        self._height = 0
        self._parts: list[LedgerPart] = []
        self._writer = ThreadPoolExecutor(1, "ledger")
        self._under_way: list[Future[LedgerPart]] = []

    def add(self, records: pl.DataFrame) -> None:
        """Take records, in any order; raises what went wrong with a part before."""
        self._waiting.append(records)
        self._height += records.height
        if self._height >= self._part_rows:
            self._collect()
            self._under_way.append(self._writer.submit(self._write, len(self._parts) + 1, self._taken()))

    def finish(self) -> list[LedgerPart]:
        """Write what is left and return all parts."""
        self._collect()
        if self._height:
            self._parts.append(self._write(len(self._parts) + 1, self._taken()))
        self.close()
        return self._parts

    def close(self) -> None:
        """End the thread once the part under way is written."""
        self._writer.shutdown()

    def _collect(self) -> None:
        """Wait for the part under way: two at a time would hold twice the rows."""
        self._parts += [part.result() for part in self._under_way]
        self._under_way = []

    def _taken(self) -> list[pl.DataFrame]:
        waiting, self._waiting, self._height = self._waiting, [], 0
        return waiting

    def _write(self, number: int, records: list[pl.DataFrame]) -> LedgerPart:
        frame = pl.concat(records).sort("row")
        check_records(frame)
        name = f"{self._name}-{number:05d}.parquet"
        out = BytesIO()
        frame.write_parquet(out, compression="zstd", statistics=True)
        stored = self._settle(self._keys.ledger + name, out.getvalue(), frame)
        return LedgerPart(name=name, rows=frame.height, sha256=digest(stored))

    def _settle(self, key: str, data: bytes, frame: pl.DataFrame) -> bytes:
        """Create the part; where one is already there, the same records count whoever wrote their bytes."""
        self._store.create(key, data)
        stored = read(self._store, key)
        if stored != data and not _same(stored, frame):
            raise ConflictError(key=key)
        return stored


def _same(stored: bytes, frame: pl.DataFrame) -> bool:
    try:
        return pl.read_parquet(BytesIO(stored)).equals(frame)
    except pl.exceptions.PolarsError:  # no Parquet at all
        return False
