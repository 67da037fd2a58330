"""Rows that an extract holds more than once, found across blocks.

The table is in memory only, 16 bytes a row, and grows with the rows: room for ten million from the
start took 120 MB for a run of one million.
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
TIMES = np.uint64(6364136223846793005)
PLUS = np.uint64(1442695040888963407)


def verdicts_on_duplicates(table: Table, rows: pl.DataFrame, rules: RuleSettings) -> pl.DataFrame:
    """Return verdicts (row, column, code, severity) on rows that no rule rejects, `with_keys`.

    The first of equal rows has none.
    """
    seen = table.add(rows["key"].to_numpy(), rows["tag"].to_numpy())
    places = np.flatnonzero(seen.repeated | seen.other)  # few: all below is done for these only
    same = pl.Series(seen.same[places], dtype=pl.Boolean)
    repeated = pl.Series(seen.repeated[places], dtype=pl.Boolean)
    code = (
        pl.when(same)
        .then(pl.lit("row.content.repeated"))
        .when(repeated)
        .then(pl.lit("card.pan.repeated"))
        .otherwise(pl.lit("card.pan.other_cuid"))
    )
    marked = pl.DataFrame({"row": rows["row"][places]}).with_columns(
        column=pl.when(same).then(pl.lit("")).otherwise(pl.lit(PAN)),
        code=code,
        severity=pl.when(repeated).then(pl.lit("reject")).otherwise(pl.lit(rules.other_cuid)),
    )
    return marked.filter(pl.col("severity") != "off")


class Seen(NamedTuple):
    """What the table knew of each row before."""

    same: Mask  # its whole content
    repeated: Mask  # its card and cuid
    other: Mask  # its card under another cuid


class Table:
    """Open addressing, by a key and a tag.

    The key has 48 bits of the card's hash and 16 of the content's, the tag 32 of the cuid's.
    Among ten million cards that gives 0.4 false warnings of another cuid; a false repeat would need
    80 equal bits.
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
        """Follow each card's path to its entry, or to the first empty slot, which it takes.

        A row that finds its card under another cuid continues on a path of its own: a test extract
        has thousands of cuids on one card, and on a single path each would probe all the others.
        """
        paths = keys >> 16
        while active.size:
            paths[active] = paths[active] * TIMES + PLUS
            slots = (paths[active] >> 32) * np.uint64(len(self._keys)) >> 32
            empty = self._keys[slots] == 0
            # of several claims on a slot numpy keeps the last, which is to be the first row
            free = slots[empty][::-1]
            rows = active[empty][::-1]
            self._keys[free] = keys[rows]
            self._tags[free] = tags[rows]
            stored_keys = self._keys[slots]
            is_card = (stored_keys ^ keys[active]) >> 16 == 0
            is_entry = is_card & (self._tags[slots] == tags[active])
            strange = active[is_card & ~is_entry & ~seen.other[active]]
            seen.other[strange] = True
            paths[strange] = keys[strange] >> 16 ^ tags[strange]
            was_there = is_entry & ~empty
            seen.repeated[active[was_there]] = True
            seen.same[active[was_there & (stored_keys == keys[active])]] = True
            active = active[~is_entry]

    def _grow(self, rows: int) -> None:
        """Make a table half as large again and add every entry to it."""
        keys = self._keys
        tags = self._tags
        self._make(max(rows, int(len(keys) * FULL * 1.5)))
        for start in range(0, len(keys), BLOCK):
            taken = start + np.flatnonzero(keys[start : start + BLOCK])
            self.add(keys[taken], tags[taken])


def with_keys(rows: pl.DataFrame) -> pl.DataFrame:
    """Add key (48 bits of the card's hash, 16 of the content's) and tag (32 of the given cuid's).

    The content is the row's line, its `text`; the portal's columns where we made its cuid.
    """
    content = rows.select("text").hash_rows()
    cuids = rows.select(CUID)
    nameless = rows["cuid_made"].arg_true()
    if nameless.len():
        without_cuid = rows[nameless].with_columns(pl.lit(None, pl.String).alias(CUID))
        content = content.scatter(nameless, without_cuid.select(columns()).hash_rows())
        cuids = cuids.with_columns(cuids[CUID].scatter(nameless, None))
    cards = rows.select(PAN).hash_rows().to_numpy()
    card = (cards | np.uint64(1 << 16)) & ~np.uint64(0xFFFF)  # never 0, which means empty
    key = card | content.to_numpy() & np.uint64(0xFFFF)
    tag = cuids.hash_rows().to_numpy().astype(np.uint32)
    return rows.with_columns(pl.Series("key", key), pl.Series("tag", tag))
