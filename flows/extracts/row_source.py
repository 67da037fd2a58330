"""What every extract is to the route, whatever it is written in: blocks of rows, and counts."""

from collections.abc import Iterator
from typing import Protocol

from flows.extracts.reader import Block
from schemas.manifest import JoinedRows


class Rows(Protocol):
    """An extract, open at its first row; see `reader.Extract`."""

    @property
    def header(self) -> tuple[str, ...]:
        """The columns."""
        ...

    @property
    def before(self) -> list[str]:
        """The lines before the data."""
        ...

    @property
    def set_aside(self) -> dict[str, int]:
        """How many lines or records are no rows, by kind (`manifest.ASIDE`), once all were read."""
        ...

    @property
    def trailer_count(self) -> int | None:
        """The count in the trailer, once it was read."""
        ...

    @property
    def lines(self) -> int:
        """All lines or records so far."""
        ...

    @property
    def height(self) -> int:
        """Those that are rows, refused ones included."""
        ...

    @property
    def record_size(self) -> int:
        """The fields of a record; of a fixed size its characters."""
        ...

    @property
    def tally(self) -> JoinedRows | None:
        """What became of what was joined to the rows, once all are read; None without any."""
        ...

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks, once."""
        ...
