"""The ledger of a run: records made from rows, checked by its model, written as Parquet parts.

Every row of an extract is one record, in one part; the rows of a chunk are all in the same part.

A single Parquet file would have to be held in memory or spooled to disk. Matching and reports work
part by part, and any Parquet engine reads the folder.
"""

from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO

import numpy as np
import polars as pl
from pandera.config import ValidationDepth, config_context
from pandera.errors import SchemaErrors

from flows.errors import BugError
from flows.runs.cards import FINGERPRINTS
from flows.runs.identity import digest
from flows.runs.keys import RunKeys
from flows.runs.store import ConflictError, Store, read
from schemas.ledger import HOLDS, SUBMITTED, Ledger, dtypes
from schemas.manifest import LedgerPart
from schemas.portal import CUID
from schemas.reasons import CHANGES
from schemas.tables import parquet


def sent_records(chunks: Sequence[pl.DataFrame], numbers: Sequence[int]) -> pl.DataFrame:
    """Return the ledger records of the rows of some chunks (at least one), in the chunks' order."""
    heights = [rows.height for rows in chunks]
    positions = np.concatenate([np.arange(1, height + 1) for height in heights])
    records = pl.concat(chunks).with_columns(
        cuid=CUID,
        fate=pl.lit(SUBMITTED),
        chunk=pl.Series(np.repeat(numbers, heights), dtype=pl.UInt32),
        position=pl.Series(positions, dtype=pl.UInt16),
        found=pl.lit(None, pl.List(pl.String)),
    )
    return records.select(*dtypes())


def with_reasons(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Add the list column `reasons` ("column|code" each, empty where there is none).

    With `found`, where the verdicts have it.

    Not by `pl.format`: polars 2.1 panics in it where columns have different chunks, as concatenated
    verdicts do.
    """
    if verdicts.is_empty():
        return rows.with_columns(pl.lit([], pl.List(pl.String)).alias("reasons"))
    coded = verdicts.with_columns(reasons=pl.concat_str("column", "code", separator="|"))
    lists = [name for name in ("reasons", "found") if name in coded.columns]
    listed = coded.group_by("row", maintain_order=True).agg(lists)
    joined = rows.select("row").join(listed, on="row", how="left", maintain_order="left")
    return rows.with_columns(joined["reasons"].fill_null([]), *joined.select(lists[1:]))


def unsent_records(rows: pl.DataFrame, fate: pl.Expr) -> pl.DataFrame:
    """Return ledger records of rows with their `reasons`.

    A cuid that holds a card number is left out.
    """
    holds_card = pl.col("reasons").list.contains(f"{CUID}|cardholder.cuid.card_number")
    names = ("cuid_made", "last_4", "expiration", "reasons", "found")
    kept = {name: pl.col(name) for name in names if name in rows.columns}
    return _unsent(rows, fate, cuid=pl.when(~holds_card).then(CUID), **kept)


def with_changes(records: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the records of suppressed rows, those that say of a change with their fingerprints.

    `rows`: the same rows in the same order, with FINGERPRINTS.
    """
    is_change = pl.col("reasons").list.last().is_in([f"|{code}" for code in CHANGES])
    return records.with_columns(
        pl.when(is_change).then(rows[name]).alias(name) for name in FINGERPRINTS
    )


def unread_records(lines: pl.DataFrame, fate: pl.Expr) -> pl.DataFrame:
    """Return ledger records of lines of which only the place, one code and `found` are known."""
    known = {"cuid_made": pl.lit(False), "reasons": pl.concat_list("|" + pl.col("code"))}
    if "found" in lines.columns:
        known["found"] = pl.concat_list("found")
    return _unsent(lines, fate, **known)


def _unsent(rows: pl.DataFrame, fate: pl.Expr, **cells: pl.Expr) -> pl.DataFrame:
    """Return ledger records, without origin, of rows that are not sent.

    Columns that are not among the `cells` are null.
    """
    kinds = {name: kind for name, kind in dtypes().items() if name != "origin"}
    if rows.is_empty():  # as most often
        return pl.DataFrame(schema=kinds)
    known = {"row": pl.col("row"), "line": pl.col("line"), "fate": fate, **cells}
    return rows.select(
        known.get(name, pl.lit(None)).cast(kind).alias(name) for name, kind in kinds.items()
    )


def check_records(records: pl.DataFrame) -> None:
    """Raise BugError where records are not as the ledger's model declares.

    It names columns and shows no cell.
    """
    at_full_depth = config_context(
        validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA
    )
    try:
        with at_full_depth:
            Ledger.validate(records, lazy=True)
        return
    except SchemaErrors as errors:
        problem = ", ".join(_broken(errors, records))
    # polars' errors may show cells, as pandera's do: ours is raised below
    except Exception as error:  # noqa: BLE001
        problem = type(error).__name__
    raise BugError(place="ledger", kind=problem)


def _broken(errors: SchemaErrors, records: pl.DataFrame) -> list[str]:
    """Return the names of the columns that are not as declared, else of the checks that fail."""
    names = [str(error.schema.name) for error in errors.schema_errors]
    if names == [Ledger.__name__]:
        names = [name for name, holds in HOLDS.items() if not records.select(holds.all()).item()]
    return list(dict.fromkeys(names))


class LedgerWriter:
    """Write ledger records in parts, which chunks never span."""

    def __init__(
        self, store: Store, keys: RunKeys, part_rows: int = 125_000, *, anew: bool = False
    ) -> None:
        self._store = store
        self._keys = keys
        self._part_rows = part_rows
        self._anew = anew
        self._waiting: list[pl.DataFrame] = []
        self._parts: list[LedgerPart] = []

    def add(self, records: pl.DataFrame) -> None:
        """Take records, in any order, and write a part of them where they are enough."""
        self._waiting.append(records)
        if sum(map(len, self._waiting)) >= self._part_rows:
            self.finish()

    def finish(self) -> list[LedgerPart]:
        """Write the waiting records and return all parts.

        A part that exists counts if it holds the same records; ConflictError for others.
        """
        if any(map(len, self._waiting)):
            records = pl.concat(self._waiting).sort("row")
            self._waiting = []
            check_records(records)
            self._parts.append(self._write(records))
        return self._parts

    def _write(self, records: pl.DataFrame) -> LedgerPart:
        name = f"part-{len(self._parts) + 1:05d}.parquet"
        key = self._keys.ledger + name
        data = parquet(records, compression="zstd", statistics=True)
        # a dry run, maybe with other settings than those of the run that is stored
        if self._anew:
            self._store.replace(key, [data])
        else:
            self._store.create(key, data)
        stored = read(self._store, key)
        if stored != data and not _holds(stored, records):
            raise ConflictError(key=key)
        return LedgerPart(name=name, rows=records.height, sha256=digest(stored))


def _holds(data: bytes, records: pl.DataFrame) -> bool:
    """Return whether a Parquet object holds exactly these records."""
    with suppress(pl.exceptions.PolarsError):  # not Parquet
        return pl.read_parquet(BytesIO(data)).equals(records)
    return False
