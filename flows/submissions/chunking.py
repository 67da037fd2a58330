"""From good rows to chunks as the portal reads them: its row limit, a cuid once per chunk, UTF-8, minimal quoting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO

import polars as pl

from flows.errors import BugError
from flows.runs.identity import Header
from schemas.portal import CUID, MAX_ROWS

PATIENCE = 100_000  # rows searched for a full chunk; limits memory where one cuid fills an extract


class Splitter:
    """Collect rows until they make whole chunks; rows keep their order except for repeated cuids."""

    def __init__(self, limit: int = MAX_ROWS, patience: int = PATIENCE) -> None:
        self._limit = limit
        self._patience = max(limit, patience)
        self._waiting: pl.DataFrame | None = None

    def add(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Take more rows (any columns, `cardholder.cuid` among them) and yield the chunks that are full."""
        waiting = rows if self._waiting is None else pl.concat([self._waiting, rows])
        alone = waiting.get_column(CUID).n_unique() == waiting.height  # the usual case: one check for all chunks
        whole = waiting.height - waiting.height % self._limit if alone else 0
        self._waiting = waiting.slice(whole)
        yield from waiting.head(whole).iter_slices(self._limit)
        while (chunk := self._next(last=False)) is not None:
            yield chunk

    def finish(self) -> Iterator[pl.DataFrame]:
        """Yield the rest in as few chunks as possible."""
        while (chunk := self._next(last=True)) is not None:
            yield chunk

    def _next(self, *, last: bool) -> pl.DataFrame | None:
        """Return the next chunk: the first rows of different cuids; None where it could still get more."""
        waiting = self._waiting
        if waiting is None or waiting.is_empty():
            return None
        for size in (self._limit, self._patience):  # few cuids repeat: the first rows are enough for most chunks
            window = waiting.head(size)
            first = window.get_column(CUID).is_first_distinct()
            if int(first.sum()) >= self._limit:
                break
        else:
            if window.height < self._patience and not last:
                return None
        take = first & (first.cum_sum() <= self._limit)
        self._waiting = pl.concat([window.filter(~take), waiting.slice(window.height)])
        return window.filter(take)


def lines(rows: pl.DataFrame, order: Sequence[str]) -> pl.Series:
    """Return each row as a chunk's line, columns in the portal's `order`; BugError for a line break in a cell."""
    out = BytesIO()
    rows.select(order).write_csv(out, include_header=False, quote_style="necessary")
    text = pl.read_lines(out.getvalue()).to_series()
    if len(text) != rows.height:
        raise BugError(place="writing lines", kind="a cell holds a line break")
    return text


def write_chunk(text: pl.Series, header: Header) -> bytes:
    """Return the CSV of the lines of at most 1000 rows (interface.md 2.6)."""
    body: bytes = text.str.join("\n").cast(pl.Binary).item()
    return b"%b%b\n" % (header.line, body)
