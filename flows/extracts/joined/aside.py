"""Records of other types than that of the rows, put aside while the rows are read."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import polars as pl

from flows.extracts.joined.spill import Spill

LINES: Final = "lines"  # a column of whole lines, those of a block together


class Aside:
    """Records by their type, in the order in which they come.

    What comes before it is opened waits in memory: the first block, of which the header is read.
    `refused`: how many records of a type cannot be read.
    """

    def __init__(self) -> None:
        self.refused = Counter[str]()
        self._first: list[tuple[str, pl.DataFrame]] = []
        self._spill: Spill | None = None

    def put(self, kind: str, records: pl.DataFrame) -> None:
        """Put records aside; SpillError."""
        if self._spill is None:
            self._first.append((kind, records))
        else:
            self._spill.put(kind, records)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep on disk what is put aside, until the end; SpillError."""
        self._spill = Spill()
        try:
            for kind, records in self._first:
                self._spill.put(kind, records)
            self._first = []
            yield
        finally:
            self._spill.close()
            self._spill = None

    def taken(self, kind: str) -> Iterator[pl.DataFrame]:
        """Yield the records of a type, which are gone then; SpillError."""
        if self._spill is not None:
            yield from self._spill.each(kind)
