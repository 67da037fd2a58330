"""Split the stream of good rows into chunks: the portal's row limit, and a cuid at most once per chunk.

Two rows of one cuid in one file cannot be told apart when the partner answers with an error, so repeats
wait for a later chunk. The outcome depends on the rows and their order alone, not on how they were blocked.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from schemas.portal import CUID, MAX_ROWS

PATIENCE = 100_000  # rows looked through for a full chunk; bounds memory where one cuid fills an extract


class Splitter:
    """Hold rows back until they make whole chunks; rows keep their order except for repeated cuids."""

    def __init__(self, limit: int = MAX_ROWS, patience: int = PATIENCE) -> None:
        self._limit = limit
        self._patience = patience
        self._waiting: pl.DataFrame | None = None

    def add(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Take more rows (any columns, `cardholder.cuid` among them) and yield the chunks that are full."""
        waiting = rows if self._waiting is None else pl.concat([self._waiting, rows])
        alone = waiting.get_column(CUID).n_unique() == waiting.height  # as nearly always: one look, not one a chunk
        whole = waiting.height - waiting.height % self._limit if alone else 0
        self._waiting = waiting.slice(whole)
        yield from waiting.head(whole).iter_slices(self._limit)
        while (chunk := self._next(last=False)) is not None:
            yield chunk

    def finish(self) -> Iterator[pl.DataFrame]:
        """Yield what is left, the last chunks being as short as they have to be."""
        while (chunk := self._next(last=True)) is not None:
            yield chunk

    def _next(self, *, last: bool) -> pl.DataFrame | None:
        waiting = self._waiting
        if waiting is None or waiting.is_empty():
            return None
        head = waiting.head(self._limit)
        if head.get_column(CUID).n_unique() == head.height:
            if head.height < self._limit and not last:
                return None
            self._waiting = waiting.slice(head.height)
            return head
        return self._past_repeats(waiting, last=last)

    def _past_repeats(self, waiting: pl.DataFrame, *, last: bool) -> pl.DataFrame | None:
        window = waiting.head(self._patience)
        first = window.get_column(CUID).is_first_distinct()
        enough = int(first.sum()) >= self._limit or window.height == self._patience
        if not (enough or last):
            return None
        take = first & (first.cum_sum() <= self._limit)
        self._waiting = pl.concat([window.filter(~take), waiting.slice(window.height)])
        return window.filter(take)
