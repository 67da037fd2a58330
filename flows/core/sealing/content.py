"""What a message holds before it is sealed: a literal data packet, by itself or deflated (RFC 4880 5.6, 5.9).

gpg would make both, but deflates with zlib, which takes more than all its cryptography; ISA-L does it in a seventh of
the time, and smaller. gpg seals what is made here as it is (`--no-literal`).
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from isal import isal_zlib

from flows.core.ports import Plain

Compression = Literal["zip", "none"]

_COMPRESSED, _LITERAL = 8, 11
_ZIP: Final = b"\x01"  # the algorithm: raw deflate
_BINARY: Final = b"b"
_NO_DATE: Final = bytes(4)  # the same rows make the same content, whenever they are sealed


class Content(NamedTuple):
    """The packet to seal of one chunk, in pieces, and the name it is sealed under."""

    name: str
    pieces: tuple[bytes, ...]


def content(chunk: Plain, compression: Compression) -> Content:
    """Return the packet to seal of one chunk, whose name (at most 255 bytes) whoever opens it is shown."""
    name = chunk.name.encode()
    head = _BINARY + bytes([len(name)]) + name + _NO_DATE
    literal = _header(_LITERAL, len(head) + len(chunk.data)) + head
    if compression == "none":
        return Content(chunk.name, (literal, chunk.data))
    deflate = isal_zlib.compressobj(1, isal_zlib.DEFLATED, -isal_zlib.MAX_WBITS)
    body = (_ZIP, deflate.compress(literal), deflate.compress(chunk.data), deflate.flush())
    return Content(chunk.name, (_header(_COMPRESSED, sum(map(len, body))), *body))


def _header(tag: int, length: int) -> bytes:
    """Return a header of the new format with a length of four bytes (RFC 4880 4.2.2.3)."""
    return bytes([0xC0 | tag, 0xFF]) + length.to_bytes(4, "big")
