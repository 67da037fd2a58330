"""The body of a response, within limits: bytes received, bytes unpacked, seconds.

Put here: how much of the service's answer is read. Keep out: what it means (`responses`).
"""

import zlib
from collections.abc import Callable
from typing import NamedTuple

import httpx

_MB = 1 << 20
_UNPACKED_AS_IT_IS = ("", "identity")
_DEFLATED = ("gzip", "x-gzip", "deflate")
ENCODINGS = "gzip, deflate"  # that we can unpack
_ANY_HEADER = 47  # wbits of zlib: of gzip, or its own


class Limits(NamedTuple):
    """How much of a response is read: a record has some kilobytes."""

    received: int = 8 * _MB
    unpacked: int = 32 * _MB
    seconds: float = 120


USUAL = Limits()


class UnreadableBodyError(Exception):
    """A body that was not read whole; its only argument says why."""


class SlowBodyError(UnreadableBodyError):
    """A body that took too long."""


def body_of(response: httpx.Response, limits: Limits, clock: Callable[[], float]) -> bytes:
    """Return the body of a response that is being received; `clock` gives monotonic seconds.

    Raises UnreadableBodyError beyond a limit, and what httpx raises.
    """
    until = clock() + limits.seconds
    received = bytearray()
    for piece in response.iter_raw():
        received += piece
        if len(received) > limits.received:
            raise UnreadableBodyError(f"more than {limits.received // _MB} MB")
        if clock() > until:
            raise SlowBodyError(f"not whole after {limits.seconds:.0f} seconds")
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding in _UNPACKED_AS_IT_IS:
        return bytes(received)
    if encoding not in _DEFLATED:
        raise UnreadableBodyError("compressed in a way that was not asked for")
    return _unpacked(bytes(received), limits.unpacked)


def _unpacked(received: bytes, most: int) -> bytes:
    stream = zlib.decompressobj(_ANY_HEADER)
    try:
        body = stream.decompress(received, most + 1)
    except zlib.error:
        raise UnreadableBodyError("compressed, and damaged") from None
    if len(body) > most:
        raise UnreadableBodyError(f"more than {most // _MB} MB when unpacked")
    if received and not stream.eof:
        raise UnreadableBodyError("compressed, and cut off")
    return body
