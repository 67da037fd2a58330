"""A stream over one object of S3, resumed after a dropped connection."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from flows.adapters.s3_errors import with_our_errors
from flows.errors import CardlinkError
from flows.runs import store
from flows.runs.retry import Retry
from flows.runs.store import Entry, StoreBusyError

PIECE = 2**20  # bytes; a piece that did not arrive whole is requested again
WITHIN = 120.0  # seconds that a piece may take: the least rate is some 9 kB a second


class _Paced:
    """The raw stream of a body, which may trickle: each read has to end within a time.

    A timeout of the socket is for one packet, so that a byte now and then would never end.
    """

    def __init__(self, stream: Any, key: str, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._read_some = getattr(stream, "read1", stream.read)  # what has come, at least a byte
        self._key = key
        self._clock = clock
        self.close = stream.close

    def read(self, size: int | None = None) -> bytes:
        """Return `size` bytes, fewer only at the end; StoreBusyError where they come too slowly."""
        if size is None:
            return bytes(self._stream.read())
        until = self._clock() + WITHIN
        pieces = list[bytes]()
        while size and (piece := self._read_some(size)):
            pieces.append(piece)
            size -= len(piece)
            if size and self._clock() > until:
                raise StoreBusyError(place=self._key, code="body too slow")
        return b"".join(pieces)


class S3Source(AbstractContextManager["S3Source", None]):
    """A pinned stream: the bytes of one object, or an error.

    It is resumed by Range and If-Match after a dropped connection.
    """

    def __init__(
        self, bucket: str, entry: Entry, body: Any, request: Callable[..., Any], retry: Retry
    ) -> None:
        self._bucket = bucket
        self.entry = entry
        self._request = request
        self._retry = retry
        self._body = self._paced(body)
        self._position = 0

    def read(self, size: int = -1, /) -> bytes:
        """Return the next `size` bytes, fewer only at the end, the rest for -1, b'' at the end."""
        missing = self.entry.size - self._position
        if size >= 0:
            missing = min(size, missing)
        pieces = []
        while missing:
            piece = self._retry(partial(self._read, min(missing, PIECE)), StoreBusyError)
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def _read(self, size: int) -> bytes:
        try:
            if self._body is None:
                response = self._request(Range=f"bytes={self._position}-")
                self._body = self._paced(response["Body"])
                received = str(response.get("ContentRange", ""))
                if not received.startswith(f"bytes {self._position}-"):
                    raise store.StoreUnsafeError(
                        place=self._bucket, problem="it does not honour range requests"
                    )
            data: bytes = with_our_errors(self.entry.key, lambda: self._body.read(size))
            if not data:
                raise StoreBusyError(place=self.entry.key, code="body ended early")
            if self._position + len(data) == self.entry.size:
                # botocore checks its checksum only when the body is read past its end
                with_our_errors(self.entry.key, lambda: self._body.read(1))
        except CardlinkError:
            self._drop()
            raise
        self._position += len(data)
        return data

    def _paced(self, body: Any) -> Any:
        # botocore has no other way to bound a read
        body._raw_stream = _Paced(body._raw_stream, self.entry.key, self._retry.clock)
        return body

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
        self._body = None

    def __exit__(self, *_: object) -> None:
        self._drop()
