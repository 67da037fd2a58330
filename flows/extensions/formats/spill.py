"""Rows that wait on disk, where nobody can read them.

They are in a file without a name, which is gone when its process ends, however it ends; each piece
is sealed with AES-GCM by a key that only the memory of this process has.
"""

import secrets
import tempfile
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import IO, Final, NamedTuple, TypeVar

import polars as pl
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from flows.errors import TryAgainError

NONCE: Final = 12  # bytes
T = TypeVar("T")


class SpillError(TryAgainError):
    """The temporary folder cannot hold what is to be joined by key."""

    message = "The temporary folder cannot hold the rows to be joined: {reason}."
    next_step = (
        "Make room there, or name another folder with TMPDIR; it needs the size of all that is "
        "joined."
    )


class _Piece(NamedTuple):
    """Where a sealed frame is in the file."""

    start: int
    size: int


class Spill:
    """Frames on shelves; a shelf gives back its frames in the order they were put there."""

    def __init__(self) -> None:
        self._cipher = AESGCM(secrets.token_bytes(32))
        self._sealed = 0
        self._end = 0
        self._shelves = defaultdict[Hashable, list[_Piece]](list)
        self._file = _reported(_unnamed_file)

    def put(self, shelf: Hashable, frame: pl.DataFrame) -> None:
        """Put a frame on a shelf; SpillError."""
        plain = BytesIO()
        frame.write_ipc(plain, compression="lz4")
        self.put_bytes(shelf, plain.getvalue())

    def put_bytes(self, shelf: Hashable, plain: bytes) -> None:
        """Put bytes on a shelf; SpillError."""
        self._sealed += 1
        nonce = self._sealed.to_bytes(NONCE, "big")
        data = nonce + self._cipher.encrypt(nonce, plain, None)
        _reported(lambda: self._write(data))
        self._shelves[shelf].append(_Piece(self._end, len(data)))
        self._end += len(data)

    def take(self, shelf: Hashable) -> list[pl.DataFrame]:
        """Return the frames of a shelf, which is empty then; SpillError."""
        return [pl.read_ipc(plain) for plain in self.each(shelf)]

    def each(self, shelf: Hashable) -> Iterator[bytes]:
        """Yield the bytes of a shelf, which is empty then; SpillError."""
        yield from map(self._taken, self._shelves.pop(shelf, ()))

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def _taken(self, piece: _Piece) -> bytes:
        data = _reported(lambda: self._read(piece))
        return self._cipher.decrypt(data[:NONCE], data[NONCE:], None)

    def _write(self, data: bytes) -> None:
        self._file.seek(self._end)
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def _read(self, piece: _Piece) -> bytes:
        self._file.seek(piece.start)
        data = b""
        while len(data) < piece.size and (more := self._file.read(piece.size - len(data))):
            data += more
        return data


class Aside:
    """Lines by the type of their records, put aside while the rows are read.

    What comes before it is opened waits in memory: the first block, of which the header is read.
    """

    def __init__(self) -> None:
        self._first: list[tuple[str, bytes]] = []
        self._spill: Spill | None = None

    def put(self, kind: str, lines: bytes) -> None:
        """Put lines aside; SpillError."""
        if self._spill is None:
            self._first.append((kind, lines))
        else:
            self._spill.put_bytes(kind, lines)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep on disk what is put aside, until the end; SpillError."""
        self._spill = Spill()
        try:
            for kind, lines in self._first:
                self._spill.put_bytes(kind, lines)
            self._first = []
            yield
        finally:
            self._spill.close()
            self._spill = None

    def taken(self, kind: str) -> Iterator[bytes]:
        """Yield the lines of a type, which are gone then; SpillError."""
        if self._spill is not None:
            yield from self._spill.each(kind)


def _unnamed_file() -> IO[bytes]:
    return tempfile.TemporaryFile(buffering=0)


def _reported(work: Callable[[], T]) -> T:
    """Return what work on the file gives; SpillError says why it cannot be."""
    try:
        return work()
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise SpillError(reason=reason)
