"""Write the ledger as Parquet parts while the rows stream by; a rerun adopts the parts that are already there."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from io import BytesIO

import polars as pl

from flows.core.names import RunKeys
from flows.core.ports import Store
from flows.core.rows.records import check_records
from flows.core.run.planning import digest
from flows.steps.edges import ConflictError, read
from schemas.manifest import LedgerPart

PART_ROWS = 250_000


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
