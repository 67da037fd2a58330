"""Where each record begins and ends in a stream of bytes, by its record format.

The formats have the names of the mainframe: F and FB, records of one length; V, each behind a
record descriptor word (two bytes of length, itself included, and two of zeros); VB, these in blocks
behind a block descriptor word. A length that cannot be refuses the file: nothing after it would be
sure.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from flows.errors import ExtractError
from flows.extracts.errors import EmptyExtractError, TruncatedError

WORD = 4  # bytes of a descriptor word
LONGEST_BLOCK = 1 << 24

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]


class RecordFormatError(ExtractError):
    """The bytes are not records of the format and length in the settings."""

    message = "{name} has no records of format {format}: {problem}."
    next_step = (
        "Compare `record_format` and `record_length` in [source] with the file, "
        "or ask the issuer to send it again, in binary mode."
    )


class Frame(NamedTuple):
    """Some whole records: the bytes, and where in them each begins, and how long it is.

    `first` is the place of the first of these bytes in the file.
    """

    data: bytes
    starts: Places
    lengths: Places
    first: int

    @property
    def height(self) -> int:
        """The number of records."""
        return len(self.starts)

    def matrix(self, width: int, filling: int) -> Bytes:
        """Return records by bytes, `width` bytes of each; what a shorter one lacks is filled."""
        whole = np.frombuffer(self.data, np.uint8)
        if not self.height:
            return np.empty((0, width), np.uint8)
        is_tight = len(whole) == self.height * width and (self.lengths == width).all()
        if is_tight:
            return whole.reshape(self.height, width)
        places = np.arange(width)
        index = np.minimum(self.starts[:, None] + places, len(whole) - 1)
        records: Bytes = whole[index]
        records[places >= self.lengths[:, None]] = filling
        return records


class _Fault(Exception):
    """Bytes are no record: which, from 0, where, and why."""

    def __init__(self, record: int, place: int, problem: str) -> None:
        self.record = record
        self.place = place
        self.problem = problem
        super().__init__(problem)


class Framing(NamedTuple):
    """How the records of a file are framed; the length of one is that of formats F and FB."""

    record_format: str
    length: int
    name: str

    def frames(self, pieces: Iterator[bytes], size: int) -> Iterator[Frame]:
        """Yield the records, about `size` bytes at a time.

        Raises RecordFormatError, TruncatedError and EmptyExtractError.
        """
        cut: _Cut = _Variable(self)
        if self.record_format in ("F", "FB"):
            cut = _Fixed(self.length)
        records = 0
        first = 0
        unread = b""
        for data in _gathered(pieces, size):
            frame, unread = self._cut(cut, unread + data, records, first)
            yield frame
            records += frame.height
            first += len(frame.data)
        if unread or cut.left:
            problem = self._place(records, first, f"only {len(unread)} bytes of it are there")
            raise TruncatedError(name=self.name, problem=problem)
        if not first:
            raise EmptyExtractError(name=self.name, problem="it has no bytes")

    def _cut(self, cut: "_Cut", data: bytes, records: int, first: int) -> tuple[Frame, bytes]:
        """Return the whole records at the beginning of some bytes, and the bytes after them."""
        try:
            starts, lengths, end = cut(data)
        except _Fault as fault:
            problem = self._place(records + fault.record, first + fault.place, fault.problem)
        else:
            return Frame(data[:end], starts, lengths, first), data[end:]
        raise RecordFormatError(name=self.name, format=self.record_format, problem=problem)

    def _place(self, record: int, place: int, problem: str) -> str:
        return f"record {record + 1:,}, at byte {place + 1:,}: {problem}"


class _Cut(Protocol):
    """Cuts whole records from the beginning of bytes; `left`: bytes that must still follow."""

    left: int

    def __call__(self, data: bytes) -> tuple[Places, Places, int]:
        """Return where records start, how long they are, and the place after the last one."""
        ...


def _gathered(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the same bytes in pieces of about one size."""
    held: list[bytes] = []
    length = 0
    for piece in pieces:
        held.append(piece)
        length += len(piece)
        if length >= size:
            yield b"".join(held)
            held = []
            length = 0
    if length:
        yield b"".join(held)


class _Fixed:
    """Cuts records of one length."""

    def __init__(self, length: int) -> None:
        self._length = length
        self.left = 0

    def __call__(self, data: bytes) -> tuple[Places, Places, int]:
        count = len(data) // self._length
        starts = np.arange(count, dtype=np.int64) * self._length
        return starts, np.full(count, self._length, np.int64), count * self._length


class _Variable:
    """Cuts records behind record descriptor words, in blocks or not."""

    def __init__(self, framing: Framing) -> None:
        self._is_blocked = framing.record_format == "VB"
        self.left = 0  # bytes of the block that is being read

    def __call__(self, data: bytes) -> tuple[Places, Places, int]:
        starts: list[int] = []
        lengths: list[int] = []
        place = 0
        while place + WORD <= len(data):
            if self._is_blocked and not self.left:
                self.left = _block_length(data, place, len(starts)) - WORD
                place += WORD
                continue
            length = _record_length(data, place, len(starts))
            if self._is_blocked and length > self.left:
                raise _Fault(len(starts), place, "its length goes beyond the end of its block")
            if place + length > len(data):
                break
            starts.append(place + WORD)
            lengths.append(length - WORD)
            place += length
            self.left -= length if self._is_blocked else 0
        return np.array(starts, np.int64), np.array(lengths, np.int64), place


def _record_length(data: bytes, place: int, record: int) -> int:
    length = data[place] << 8 | data[place + 1]
    if length < WORD or data[place + 2] or data[place + 3]:
        problem = "the four bytes before it are no record descriptor word"
        if length >= WORD and data[place + 2] in (1, 2, 3):
            problem = "it is a segment of a spanned record (VS, VBS), which is not supported"
        raise _Fault(record, place, problem)
    return length


def _block_length(data: bytes, place: int, record: int) -> int:
    """Return the length of a block; with its first bit set, the word has 31 bits of it."""
    word = int.from_bytes(data[place : place + WORD], "big")
    is_long = bool(word >> 31)
    length = word & 0x7FFFFFFF if is_long else word >> 16
    if not 2 * WORD < length <= LONGEST_BLOCK or (not is_long and word & 0xFFFF):
        raise _Fault(record, place, "the four bytes before it are no block descriptor word")
    return length
