"""Cut rows into chunks: as many rows as a chunk may have, and a cuid at most once in each.

Two rows of one cuid could not be told apart in a result. The chunks depend on the rows and their
order, not on the blocks in which they come.
"""

from collections.abc import Iterator

import polars as pl

from schemas.portal import CUID, MAX_ROWS

PATIENCE = 100_000  # rows searched for a full chunk; limits memory where one cuid fills an extract


class Splitter:
    """Collect rows until they make whole chunks.

    Rows keep their order, except that a repeated cuid waits for the next chunk and leads it.
    """

    def __init__(self, limit: int = MAX_ROWS, patience: int = PATIENCE) -> None:
        self._limit = limit
        self._patience = max(limit, patience)
        self._waiting: pl.DataFrame | None = None

    def add(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Take more rows and yield the chunks that are full.

        `rows` may have any columns, `cardholder.cuid` among them.
        """
        waiting = rows if self._waiting is None else pl.concat([self._waiting, rows])
        whole = 0
        # the usual case: one check for all chunks
        if waiting.get_column(CUID).n_unique() == waiting.height:
            whole = waiting.height - waiting.height % self._limit
        self._waiting = waiting.slice(whole)
        yield from waiting.head(whole).iter_slices(self._limit)
        yield from self._distinct_chunks(last=False)

    def finish(self) -> Iterator[pl.DataFrame]:
        """Yield the remaining rows in as few chunks as possible."""
        yield from self._distinct_chunks(last=True)

    def _distinct_chunks(self, *, last: bool) -> Iterator[pl.DataFrame]:
        while (chunk := self._next(last=last)) is not None:
            yield chunk

    def _next(self, *, last: bool) -> pl.DataFrame | None:
        """Return the next chunk, the first rows of different cuids.

        None where no rows wait, or where more rows could still fill it.
        """
        waiting = self._waiting
        if waiting is None or waiting.is_empty():
            return None
        # few cuids repeat: the first rows are enough for most chunks
        for size in (self._limit, self._patience):
            window = waiting.head(size)
            is_first = window.get_column(CUID).is_first_distinct()
            is_full = int(is_first.sum()) >= self._limit
            if is_full:
                break
        more_rows_may_fill_it = window.height < self._patience and not last
        if not is_full and more_rows_may_fill_it:
            return None
        taken = is_first & (is_first.cum_sum() <= self._limit)
        self._waiting = pl.concat([window.filter(~taken), waiting.slice(window.height)])
        return window.filter(taken)
