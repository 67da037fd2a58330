"""Cut an extract into parts at records, while it is read for its digest; and read one part, its blocks checked.

Compressed, PGP-encrypted and UTF-16 extracts have no lines at known bytes: they stay in one part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from io import BytesIO
from typing import NamedTuple
from zlib import crc32

import numpy as np

from flows.core.extract.reader import Extract, read_extract
from flows.core.ports import Entry, Source, Store
from flows.core.sealing.openpgp import looks_like_message
from flows.core.storage.store_errors import ObjectDamagedError
from flows.steps.ahead import ahead
from schemas.manifest import CUT_BLOCK, Cut, Part, SourceIdentity
from schemas.scale import Scale
from schemas.source import SourceSettings

MIB = 1 << 20
WINDOW = 1 << 20  # bytes looked through for a record to cut at
COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


class Digested(NamedTuple):
    """What one reading of an extract gives: its identity, and of each CUT_BLOCK bytes their CRC-32 and line ends."""

    source: SourceIdentity
    blocks: tuple[int, ...]
    newlines: tuple[int, ...]


def read_once(store: Store, entry: Entry) -> Digested:
    """Read the extract once, pinned, for its SHA-256, its size in bytes and lines, and the facts of its blocks."""
    running = hashlib.sha256()
    blocks, newlines, size = [], [], 0
    with store.open(entry.key, entry) as source, closing(ahead(_facts(source))) as facts:
        for block, check, ends in facts:
            running.update(block)
            size += len(block)
            blocks.append(check)
            newlines.append(ends)
    identity = SourceIdentity(
        key=entry.key, version=entry.version, size=size, sha256=running.hexdigest(), newlines=sum(newlines)
    )
    return Digested(identity, tuple(blocks), tuple(newlines))


def _facts(source: Source) -> Iterator[tuple[bytes, int, int]]:
    """Yield each block with its CRC-32 and its line ends, found beside the hashing of the block before."""
    while block := _whole(source.read, CUT_BLOCK):
        yield block, crc32(block), int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n")))


def cut(store: Store, entry: Entry, digested: Digested, settings: SourceSettings, scale: Scale) -> Cut | None:
    """Return where the extract is cut, None where it is not: too small, or its lines lie at no known bytes."""
    size = digested.source.size
    wanted = min(scale.parts, size // (scale.least_part_mib * MIB))
    if wanted < 2 or settings.encoding == "utf-16":
        return None
    with store.open(entry.key, entry) as source:
        front = _whole(source.read, min(size, CUT_BLOCK))
    if front.startswith(COMPRESSED) or looks_like_message(front[:64]):
        return None
    extract = read_extract(BytesIO(front), settings, entry.key)
    head = _after_lines(front, extract.counts.lines)
    found = [Part(start=head, end=size, line=extract.counts.lines)]
    for number in range(1, wanted):
        at = max(1, round(number * size / wanted / CUT_BLOCK))
        begins = _begins(store, entry, extract, at, sum(digested.newlines[:at]))
        if begins is not None and begins.start > found[-1].start:
            found.append(begins)
    ends = [part.start for part in found[1:]] + [size]
    parts = tuple(part.model_copy(update={"end": end}) for part, end in zip(found, ends, strict=True))
    return Cut(head=head, parts=parts, blocks=digested.blocks) if len(parts) > 1 else None


def _begins(store: Store, entry: Entry, extract: Extract, block: int, lines: int) -> Part | None:
    """Return the part that begins with the first record of a block, before which there are so many line ends."""
    start = block * CUT_BLOCK
    if start >= entry.size:
        return None
    with store.open(entry.key, entry, start) as source:
        found = extract.record_after(_whole(source.read, min(WINDOW, entry.size - start)))
    return Part(start=start + found[0], end=entry.size, line=lines + found[1]) if found else None


class PartStream:
    """The lines before the data, then one part; every block it is read from must have its CRC-32."""

    def __init__(self, store: Store, entry: Entry, cut: Cut, number: int) -> None:
        part = cut.parts[number]
        ranges = [(0, part.end)] if number == 0 else [(0, cut.head), (part.start, part.end)]
        self._pieces = (piece for start, end in ranges for piece in _checked(store, entry, cut.blocks, start, end))
        self._held = b""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, fewer than `size` only at the end."""
        while size < 0 or len(self._held) < size:
            piece = next(self._pieces, b"")
            if not piece:
                break
            self._held += piece
        size = len(self._held) if size < 0 else size
        data, self._held = self._held[:size], self._held[size:]
        return data


def _checked(store: Store, entry: Entry, blocks: Sequence[int], start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of a range, read by whole blocks."""
    first = start // CUT_BLOCK
    with store.open(entry.key, entry, first * CUT_BLOCK) as source:
        for number in range(first, -(-end // CUT_BLOCK)):
            block = _whole(source.read, min(CUT_BLOCK, entry.size - number * CUT_BLOCK))
            if crc32(block) != blocks[number]:
                raise ObjectDamagedError(entry.key)
            yield block[max(0, start - number * CUT_BLOCK) : end - number * CUT_BLOCK]


def _whole(read: Callable[[int], bytes], size: int) -> bytes:
    """Return the next `size` bytes, fewer only at the end."""
    data = read(size)
    while data and len(data) < size and (more := read(size - len(data))):
        data += more
    return data


def _after_lines(front: bytes, lines: int) -> int:
    """Return the place behind so many line ends."""
    at = 0
    for _ in range(lines):
        at = front.index(b"\n", at) + 1
    return at
