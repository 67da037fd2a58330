"""Rows that an extract holds more than once, found across blocks; in memory only, 16 bytes a
row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.issuer import RuleSettings
from schemas.portal import CUID, PAN, columns

Keys = NDArray[np.uint64]
Tags = NDArray[np.uint32]
Mask = NDArray[np.bool_]

FULL = 0.9  # above it a search takes more than ten probes
ROOMY = 0.88  # 12 bytes a slot are 13.6 a row
BLOCK = 100_000
# Knuth's MMIX generator: each card walks the table in its own order, so no clusters grow.
TIMES, PLUS = np.uint64(6364136223846793005), np.uint64(1442695040888963407)


def mark(table: Table, rows: pl.DataFrame, rules: RuleSettings) -> pl.DataFrame:
    """Return verdicts (row, column, code, severity) on keyed, accepted rows; the first of equal
    rows has none.
    """
    seen = table.add(rows["key"].to_numpy(), rows["tag"].to_numpy())
    at = np.flatnonzero(seen.repeated | seen.other)  # few: all below is done for these only
    same, repeated = (pl.Series(mask[at], dtype=pl.Boolean) for mask in (seen.same, seen.repeated))
    marked = pl.DataFrame({"row": rows["row"][at]}).with_columns(
        column=pl.when(same).then(pl.lit("")).otherwise(pl.lit(PAN)),
        code=pl.when(same).then(pl.lit("row.content.repeated"))
        .when(repeated).then(pl.lit("card.pan.repeated"))
        .otherwise(pl.lit("card.pan.other_cuid")),
        severity=pl.when(repeated).then(pl.lit("reject")).otherwise(pl.lit(rules.other_cuid)),
    )  # fmt: skip
    return marked.filter(pl.col("severity") != "off")


class Seen(NamedTuple):
    """What the table knew of each row: its whole content, its card and cuid, its card under another
    cuid.
    """

    same: Mask
    repeated: Mask
    other: Mask


class Table:
    """Open addressing: 48 bits of the card's hash and 16 of the content's in one key, 32 of the
    cuid's as its tag.

    Among ten million cards that makes 0.4 mistaken warnings of another cuid; a mistaken repeat
    takes 80 equal bits.
    """

    def __init__(self, rows: int) -> None:
        self._make(max(rows, BLOCK))

    def _make(self, rows: int) -> None:
        size = int(rows / ROOMY) + 1
        self._used = 0
        # `full`, not `zeros`: writes whole pages at once; touching them here and there takes 30,000
        # page faults.
        self._keys: Keys = np.full(size, 0, np.uint64)
        self._tags: Tags = np.full(size, 0, np.uint32)

    def add(self, keys: Keys, tags: Tags) -> Seen:
        """Add the rows of a block, in order, and return what was known of each before."""
        if self._used + len(keys) > FULL * len(self._keys):
            self._grow(self._used + len(keys))
        fresh = pl.Series((keys >> 16) * TIMES ^ tags).is_first_distinct().to_numpy()
        seen = Seen(*(np.zeros(len(keys), np.bool_) for _ in Seen._fields))
        # Two equal rows of one block would both claim one slot: the first goes in, then the others
        # find it there.
        for part in (np.flatnonzero(fresh), np.flatnonzero(~fresh)):
            self._walk(keys, tags, part, seen)
        self._used += int(np.count_nonzero(~seen.repeated))
        return seen

    def _walk(self, keys: Keys, tags: Tags, active: NDArray[np.intp], seen: Seen) -> None:
        """Follow each card's path through the table to its entry, or to the first empty slot, which
        it takes.

        A row that finds its card under another cuid continues on a path of its own: a test extract
        has thousands of cuids on one card, and on a single path each would probe all the others.
        """
        paths = keys >> 16
        while active.size:
            paths[active] = paths[active] * TIMES + PLUS
            slots = (paths[active] >> 32) * np.uint64(len(self._keys)) >> 32
            empty = self._keys[slots] == 0
            free, rows = slots[empty][::-1], active[empty][::-1]
            # of several claims numpy keeps the last
            self._keys[free], self._tags[free] = keys[rows], tags[rows]
            there, tag = self._keys[slots], self._tags[slots]
            card = (there ^ keys[active]) >> 16 == 0
            here = card & (tag == tags[active])
            strange = active[card & ~here & ~seen.other[active]]
            seen.other[strange] = True
            paths[strange] = keys[strange] >> 16 ^ tags[strange]
            seen.repeated[active[here & ~empty]] = True
            seen.same[active[here & ~empty & (there == keys[active])]] = True
            active = active[~here]

    def _grow(self, rows: int) -> None:
        """Make a table half as large again and add every entry to it."""
        keys, tags = self._keys, self._tags
        self._make(max(rows, int(len(keys) * FULL * 1.5)))
        for at in range(0, len(keys), BLOCK):
            held = at + np.flatnonzero(keys[at : at + BLOCK])
            self.add(keys[held], tags[held])


def keyed(rows: pl.DataFrame) -> pl.DataFrame:
    """Add key (48 bits of the card's hash, 16 of the whole content's) and tag (32 of the given
    cuid's).

    The content is the row's line, its `text`; the portal's columns where we made its cuid.
    """
    content, cards = rows.select("text").hash_rows(), rows.select(PAN).hash_rows().to_numpy()
    cuids = rows.select(CUID)
    if (ours := rows["cuid_made"].arg_true()).len():
        nameless = rows[ours].with_columns(pl.lit(None, pl.String).alias(CUID))
        content = content.scatter(ours, nameless.select(columns()).hash_rows())
        cuids = cuids.with_columns(cuids[CUID].scatter(ours, None))
    card = (cards | np.uint64(1 << 16)) & ~np.uint64(0xFFFF)  # never 0, which means empty
    key = card | content.to_numpy() & np.uint64(0xFFFF)
    tag = cuids.hash_rows().to_numpy().astype(np.uint32)
    return rows.with_columns(pl.Series("key", key), pl.Series("tag", tag))
