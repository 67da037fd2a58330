"""The rows of an extract with those of its second file beside them, in the order of the extract.

The extract is read first, and waits on disk, a block a shelf. Of its rows only a hash of the key
and the number of the block are kept in memory, twelve bytes. The second file is then read once:
each of its rows goes to the shelf of the row that needs it, or is counted as one that nobody needs.
A block is joined when it is yielded, by the keys themselves.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from flows.errors import ExtractError
from flows.extensions.formats.settings import JoinSettings
from flows.extensions.formats.spill import Spill
from flows.extracts.errors import MappingError
from flows.extracts.reader import Block
from flows.extracts.row_source import Rows
from flows.runs.threads import prefetch
from schemas.manifest import JoinedRows as Tally

SHELVES: Final = 64
_KEY: Final = "\x1fkey"
_TIMES: Final = "\x1ftimes"
_BETWEEN: Final = "\x1f"  # of the columns of a key: no text has it

Hashes = npt.NDArray[np.uint64]


class JoinFileError(ExtractError):
    """An extract comes without the second file of its settings, or cannot be joined to it."""

    message = "{name} cannot be joined to its second file: {problem}."
    next_step = "Compare [source.join] with both files, or ask the issuer what changed."


class Joining(NamedTuple):
    """How others are joined to rows: the columns of the key in both, and the words about them.

    `prefix` is before a name that is taken. Where the other is not `needed`, a row may lack it.
    """

    key: tuple[str, ...]
    other_key: tuple[str, ...]
    prefix: str
    missing: str  # reason codes
    ambiguous: str
    other: str  # what a row lacks
    needed: bool = True


def joining_of(join: JoinSettings) -> Joining:
    """Return how a second file is joined."""
    other_key = join.other_key or join.key
    return Joining(join.key, other_key, "join", "join.row.missing", "join.row.ambiguous", "row")


class JoinedRows:
    """An extract and what is joined to it, open at their first rows; see `rows.Rows`.

    What is counted, and what proves a file whole, is that of the extract; the second file is proven
    by its own settings. `during` is open while all is read; then `tally` has what became of the
    others.
    """

    def __init__(
        self,
        first: Rows,
        second: "Others",
        joining: Joining,
        name: str,
        during: AbstractContextManager[None] | None = None,
    ) -> None:
        self._during = during or nullcontext()
        self._first = first
        self._second = second
        self._joining = joining
        self._key = _columns(joining.key, first.header, name, "")
        self._other_key = _columns(joining.other_key, second.header, name, "the second file: ")
        beside = [column for column in second.header if column not in self._other_key]
        taken = {column: f"{joining.prefix}.{column}" for column in first.header}
        self._names = {column: taken.get(column, column) for column in beside}
        self.header = (*first.header, *self._names.values())
        self.tally: Tally | None = None

    @property
    def before(self) -> list[str]:
        """The lines before the data."""
        return self._first.before

    @property
    def set_aside(self) -> dict[str, int]:
        """The lines of the extract that are no rows, by kind."""
        return self._first.set_aside

    @property
    def trailer_count(self) -> int | None:
        """The count in the extract's trailer."""
        return self._first.trailer_count

    @property
    def lines(self) -> int:
        """All lines of the extract so far."""
        return self._first.lines

    @property
    def height(self) -> int:
        """Its rows so far."""
        return self._first.height

    @property
    def record_size(self) -> int:
        """The size of its records."""
        return self._first.record_size

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks; what reading either file raises, and SpillError."""
        with self._during, closing(Spill()) as waiting, closing(Spill()) as needed:
            index = self._read_first(waiting)
            self._read_second(index, needed)
            for number in range(index.blocks):
                shelf = index.shelf(number)
                if number == 0 or shelf != index.shelf(number - 1):
                    others = self._prepared(needed.take(shelf))
                yield self._joined(Block(*waiting.take(number)), others)

    def _read_first(self, waiting: Spill) -> "_Index":
        hashes = []
        with closing(prefetch(iter(self._first))) as blocks:
            for number, block in enumerate(blocks):
                waiting.put(number, block.rows)
                waiting.put(number, block.refused)
                if block.alone is not None:
                    waiting.put(number, block.alone)
                hashes.append(_hashes(block.rows, self._key))
        return _Index.of(hashes)

    def _read_second(self, index: "_Index", needed: Spill) -> None:
        used = 0
        read = 0
        with closing(prefetch(iter(self._second))) as blocks:
            for block in blocks:
                read += block.rows.height
                keyed = block.rows.filter(_key(self._other_key).is_not_null())
                places = index.places(_hashes(keyed, self._other_key))
                used += places.rows_with_place
                for shelf in np.unique(places.shelves).tolist():
                    needed.put(shelf, keyed[places.rows[places.shelves == shelf]])
        refused = self._second.height - read
        tally = Tally(read=read + refused, used=used, unused=read - used, refused=refused)
        self.tally = _sum(self._first.tally, tally)

    def _prepared(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the second file's rows of a shelf, one of each key, with how many it has."""
        columns = [pl.col(name).alias(alias) for name, alias in self._names.items()]
        key = _key(self._other_key).alias(_KEY)
        if not frames:
            names = [_KEY, *self._names.values()]
            schema = dict.fromkeys(names, pl.String) | {_TIMES: pl.UInt32}
            return pl.DataFrame(schema=schema)
        rows = pl.concat(frames).select(key, *columns)
        if rows[_KEY].n_unique() == rows.height:
            return rows.with_columns(pl.lit(1, pl.UInt32).alias(_TIMES))
        different = rows.unique(maintain_order=True)  # the same row twice is one
        times = different.group_by(_KEY).agg(pl.len().cast(pl.UInt32).alias(_TIMES))
        return different.unique(_KEY, keep="first").join(times, on=_KEY)

    def _joined(self, block: Block, others: pl.DataFrame) -> Block:
        rows = block.rows.with_columns(_key(self._key).alias(_KEY)).join(
            others, on=_KEY, how="left", maintain_order="left"
        )
        is_missing = pl.col(_TIMES).is_null() & pl.lit(self._joining.needed)
        is_ambiguous = (pl.col(_TIMES) > 1).fill_null(value=False)
        columns = [*block.rows.columns, *self._names.values()]
        sound = rows.filter(~(is_missing | is_ambiguous)).select(columns)
        if sound.height == rows.height and block.alone is None:
            return Block(sound, block.refused)
        missing = pl.lit(self._joining.missing)
        ambiguous = pl.lit(self._joining.ambiguous)
        nothing = [pl.lit(None, pl.String).alias(name) for name in self._names.values()]
        alone = rows.filter(is_missing | is_ambiguous).select(
            *block.rows.columns,
            *nothing,
            pl.when(is_missing).then(missing).otherwise(ambiguous).alias("code"),
            self._found().alias("found"),
        )
        if block.alone is not None:  # another record is lacking, which is said
            alone = pl.concat([block.alone, alone], how="diagonal")
        return Block(sound, block.refused, alone)

    def _found(self) -> pl.Expr:
        """Return what a row has instead of one of the others; names, and no cells."""
        names = " and ".join(self._key)
        other = self._joining.other
        is_empty = pl.col(_KEY).is_null()
        several = pl.format("{} {}s with its {}", pl.col(_TIMES), pl.lit(other), pl.lit(names))
        none = (
            pl.when(is_empty)
            .then(pl.lit(f"no {names}"))
            .otherwise(pl.lit(f"no {other} with its {names}"))
        )
        return pl.when(pl.col(_TIMES).is_null()).then(none).otherwise(several)


class Others(Protocol):
    """What is joined to rows: the rows of a second file, or the records of another type."""

    @property
    def header(self) -> tuple[str, ...]:
        """The columns."""
        ...

    @property
    def height(self) -> int:
        """All of them so far, those included that cannot be read."""
        ...

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks, once."""
        ...


def _sum(before: Tally | None, tally: Tally) -> Tally:
    """Return two tallies together."""
    if before is None:
        return tally
    both = {name: number + getattr(before, name) for name, number in tally.model_dump().items()}
    return Tally.model_validate(both)


class _Places(NamedTuple):
    """The shelves that rows of the second file go to, and how many of its rows go to any."""

    rows: npt.NDArray[np.int64]
    shelves: npt.NDArray[np.int64]
    rows_with_place: int


class _Index(NamedTuple):
    """The hashes of the extract's keys in their order, and the block of each."""

    hashes: Hashes
    block_of: npt.NDArray[np.uint32]
    blocks: int

    @classmethod
    def of(cls, hashes: Sequence[Hashes]) -> "_Index":
        """Return the index of the blocks of an extract."""
        whole = np.concatenate([*hashes, np.empty(0, np.uint64)])
        numbers = np.arange(len(hashes), dtype=np.uint32)
        blocks = np.repeat(numbers, [len(each) for each in hashes])
        order = np.argsort(whole, kind="stable")
        return cls(whole[order], blocks[order], len(hashes))

    def shelf(self, block: int) -> int:
        """Return the shelf of a block: neighbours share one where there are many."""
        return block * min(SHELVES, self.blocks) // self.blocks

    def places(self, hashes: Hashes) -> _Places:
        """Return where rows of the second file are needed: one may be in several blocks."""
        left = np.searchsorted(self.hashes, hashes, "left")
        right = np.searchsorted(self.hashes, hashes, "right")
        times = right - left
        rows = np.repeat(np.arange(len(hashes)), times)
        before = np.repeat(np.cumsum(times) - times, times)
        nth = np.arange(len(rows)) - before
        blocks = self.block_of[np.repeat(left, times) + nth].astype(np.int64)
        shelves = blocks * min(SHELVES, self.blocks) // max(1, self.blocks)
        pairs = np.unique(rows * SHELVES + shelves)
        return _Places(pairs // SHELVES, pairs % SHELVES, int(np.count_nonzero(times)))


def _key(columns: Sequence[str]) -> pl.Expr:
    """Return the text of a key, null where a part of it is empty."""
    parts = [pl.col(column).str.strip_chars() for column in columns]
    filled = [pl.when(part != "").then(part) for part in parts]
    return pl.concat_str(filled, separator=_BETWEEN)


def _hashes(rows: pl.DataFrame, columns: Sequence[str]) -> Hashes:
    """Return a hash of each key that is not empty."""
    keys = rows.select(_key(columns).alias(_KEY)).drop_nulls()
    return keys.select(pl.col(_KEY).hash(seed=0)).to_series().to_numpy()


def _columns(names: Sequence[str], header: Sequence[str], name: str, of: str) -> tuple[str, ...]:
    """Return the columns of a key; MappingError where one is missing."""
    missing = [column for column in names if column not in header]
    if missing:
        problem = f"{of}it has no column {', '.join(missing)}, which [source.join] names"
        raise MappingError(name=name, problem=problem)
    return tuple(names)
