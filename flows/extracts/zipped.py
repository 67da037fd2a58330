"""The one file in a ZIP archive, read as a stream.

The headers before and behind the file are read as they come, so that an archive needs neither a
seekable stream nor memory. What is behind the file proves it: its length and CRC, and that the
archive is complete and has no other file. Names of files in an archive are never shown.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from flows.extracts.errors import ArchiveError, NotCsvError, TruncatedError

ZIP = b"PK\x03\x04"  # before each file
LARGEST = 16 << 30  # bytes of the file in an archive, unpacked
LOOK_AHEAD = 1 << 20  # bytes in which a short archive says at once how many files it has
STEP = 1 << 14  # bytes given to a decompressor at once; they make at most 16 MiB
LONGEST_END = 1 << 20  # bytes behind the file; the longest names and comments need half of it

_FILE = struct.Struct("<4s2xHH4xLLLHH")
_ENTRY = b"PK\x01\x02"  # of the directory
_END = b"PK\x05\x06"
_END_SIZE = 22
_DESCRIPTOR = b"PK\x07\x08"
_ZIP64 = 1  # the extra field of sizes beyond 4 GiB
_BEYOND = 0xFFFFFFFF  # stands for a size that is in that field
_ENCRYPTED = 1 | 1 << 6 | 1 << 13
_SIZES_FOLLOW = 1 << 3
_STORED = 0
_DEFLATED = 8
_OFFICE = (b"[Content_Types].xml", b"_rels/", b"docProps/", b"xl/")

OFFICE_KIND = (
    'an Excel workbook or another office document (a workbook is read with `format = "xlsx"` in '
    "[source])"
)
_SEVERAL = "it has more than one file or folder"
_CUT_OFF = "its ZIP data is cut off"
_DAMAGED = "its ZIP data is damaged"

# By signature: how long a record behind the file is.
_LENGTHS: dict[bytes, Callable[[bytes], int]] = {
    _ENTRY: lambda record: 46 + sum(struct.unpack_from("<HHH", record, 28)),
    b"PK\x06\x06": lambda record: 12 + int(struct.unpack_from("<Q", record, 4)[0]),
    b"PK\x06\x07": lambda _: 20,
    _END: lambda record: _END_SIZE + int(struct.unpack_from("<H", record, 20)[0]),
}


class _Sizes(NamedTuple):
    """What proves a file: the CRC of its bytes, how many are stored, and how many they are."""

    crc: int
    stored: int
    unpacked: int


class _Header(NamedTuple):
    """What is said before a file; `sizes` is None where they follow it."""

    method: int
    sizes: _Sizes | None


def unzipped(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield the content of the one file in an archive.

    Raises ArchiveError where it cannot be read, NotCsvError for a workbook, and TruncatedError at
    the end where the file is not proven whole.
    """
    archive = _Archive(pieces, name)
    if archive.shows_several_files():
        raise ArchiveError(name=name, problem=_SEVERAL)
    header = _header(archive)
    start = archive.taken
    crc = 0
    unpacked = 0
    for data in _contents(archive, header):
        crc = zlib.crc32(data, crc)
        unpacked += len(data)
        if unpacked > LARGEST:
            raise _too_large(name)
        yield data
    _check(archive, header, _Sizes(crc, archive.taken - start, unpacked))


def _header(archive: "_Archive") -> _Header:
    fields = _FILE.unpack(archive.exactly(_FILE.size))
    _, flags, method, crc, stored, unpacked, name_length, extra_length = fields
    member = archive.exactly(name_length)
    extra = archive.exactly(extra_length)
    if member.startswith(_OFFICE):
        raise NotCsvError(name=archive.name, kind=OFFICE_KIND)
    if flags & _ENCRYPTED:
        raise ArchiveError(name=archive.name, problem="it is encrypted with a password")
    if member.endswith(b"/"):
        raise ArchiveError(name=archive.name, problem="it has a folder")
    if flags & _SIZES_FOLLOW:
        return _Header(method, None)
    return _Header(method, _with_zip64(_Sizes(crc, stored, unpacked), extra))


def _with_zip64(sizes: _Sizes, extra: bytes) -> _Sizes:
    """Return sizes with those that are in the extra field, because they are beyond 4 GiB."""
    if _BEYOND not in (sizes.stored, sizes.unpacked):
        return sizes
    while len(extra) >= 20:
        kind, length = struct.unpack_from("<HH", extra)
        if kind == _ZIP64 and length >= 16:
            unpacked, stored = struct.unpack_from("<QQ", extra, 4)
            return _Sizes(sizes.crc, stored, unpacked)
        extra = extra[4 + length :]
    return sizes


def _contents(archive: "_Archive", header: _Header) -> Iterator[bytes]:
    if header.sizes and header.sizes.unpacked > LARGEST:
        raise _too_large(archive.name)
    if header.method == _DEFLATED:
        return _inflated(archive)
    if header.method != _STORED:
        problem = f"its file is compressed by method {header.method}, not by Deflate"
        raise ArchiveError(name=archive.name, problem=problem)
    if header.sizes is None:
        problem = "its file is not compressed, and its length is not before it"
        raise ArchiveError(name=archive.name, problem=problem)
    return _as_stored(archive, header.sizes.stored)


def _inflated(archive: "_Archive") -> Iterator[bytes]:
    inflater = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    try:
        while not inflater.eof:
            yield inflater.decompress(archive.up_to(STEP))
        archive.put_back(inflater.unused_data)
        return
    except zlib.error:
        pass  # our error is raised outside: the original message may quote the data
    raise TruncatedError(name=archive.name, problem=_DAMAGED)


def _as_stored(archive: "_Archive", size: int) -> Iterator[bytes]:
    while size:
        data = archive.up_to(min(size, LOOK_AHEAD))
        size -= len(data)
        yield data


def _check(archive: "_Archive", header: _Header, sizes: _Sizes) -> None:
    """Raise TruncatedError or ArchiveError unless the file is whole, and the only one."""
    if header.sizes is not None and header.sizes != sizes:
        raise TruncatedError(name=archive.name, problem=_DAMAGED)
    behind = archive.rest(LONGEST_END)
    if header.sizes is None:
        length = _descriptor_length(behind, sizes)
        if not length:
            problem = _DAMAGED if len(behind) > _END_SIZE else _CUT_OFF
            raise TruncatedError(name=archive.name, problem=problem)
        behind = behind[length:]
    if behind.startswith(ZIP) or len(behind) >= LONGEST_END:
        raise ArchiveError(name=archive.name, problem=_SEVERAL)
    _check_directory(behind, archive.name)


def _descriptor_length(behind: bytes, sizes: _Sizes) -> int:
    """Return how long the sizes behind a file are, in any of their four forms; 0: other sizes."""
    short = struct.pack("<LLL", sizes.crc, sizes.stored & _BEYOND, sizes.unpacked & _BEYOND)
    long = struct.pack("<LQQ", *sizes)
    forms = (_DESCRIPTOR + long, _DESCRIPTOR + short, long, short)
    return next((len(form) for form in forms if behind.startswith(form)), 0)


def _check_directory(behind: bytes, name: str) -> None:
    """Raise an error unless the directory is complete, has one entry, and nothing follows it."""
    records: list[bytes] = []
    while _END not in records:
        signature = behind[:4]
        length = _record_length(behind)
        if length > len(behind):
            raise TruncatedError(name=name, problem=_CUT_OFF)
        if not length:
            raise TruncatedError(name=name, problem=_DAMAGED)
        records.append(signature)
        behind = behind[length:]
    if behind.strip(b"\0") or records.count(_ENTRY) > 1:
        raise ArchiveError(name=name, problem=_SEVERAL)


def _record_length(behind: bytes) -> int:
    """Return how long the next record is, longer than what is there if that is cut; 0: unknown."""
    if len(behind) < 20:
        return 20
    length = _LENGTHS.get(behind[:4])
    if length is None:
        return 0
    try:
        return length(behind)
    except struct.error:
        return len(behind) + 1


def _too_large(name: str) -> ArchiveError:
    problem = f"its file has more than {LARGEST >> 30} GiB unpacked, the most that is read"
    return ArchiveError(name=name, problem=problem)


class _Archive:
    """The bytes of an archive, in their order; `taken`: how many were taken."""

    def __init__(self, pieces: Iterator[bytes], name: str) -> None:
        self.name = name
        self.taken = 0
        self._pieces = pieces
        self._unread = b""
        self._place = 0

    def shows_several_files(self) -> bool:
        """Return whether the beginning of the archive is all of it, and has several files."""
        head = [b""]
        length = 0
        while length <= LOOK_AHEAD and (piece := next(self._pieces, b"")):
            head.append(piece)
            length += len(piece)
        start = b"".join(head)
        self._pieces = chain([start], self._pieces)
        end = start.rfind(_END)
        if length > LOOK_AHEAD or not 0 <= end <= length - _END_SIZE:
            return False
        entries, comment = struct.unpack_from("<H8xH", start, end + 10)
        return bool(entries > 1 and end + _END_SIZE + comment == length)

    def up_to(self, size: int) -> bytes:
        """Return the next bytes, at least one and at most `size`; TruncatedError at the end."""
        while self._place == len(self._unread):
            piece = next(self._pieces, None)
            if piece is None:
                raise TruncatedError(name=self.name, problem=_CUT_OFF)
            self._unread = piece
            self._place = 0
        data = self._unread[self._place : self._place + size]
        self._place += len(data)
        self.taken += len(data)
        return data

    def exactly(self, size: int) -> bytes:
        """Return the next `size` bytes; TruncatedError where there are fewer."""
        data = b""
        while len(data) < size:
            data += self.up_to(size - len(data))
        return data

    def put_back(self, data: bytes) -> None:
        """Undo that the last bytes were taken."""
        self._place -= len(data)
        self.taken -= len(data)

    def rest(self, size: int) -> bytes:
        """Return the bytes that are left, at least `size` of them or all."""
        parts = [self._unread[self._place :]]
        self._place = len(self._unread)
        while sum(map(len, parts)) < size and (piece := next(self._pieces, b"")):
            parts.append(piece)
        return b"".join(parts)
