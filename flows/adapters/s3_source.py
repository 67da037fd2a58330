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
from flows.runs.store import TEMPORARY, Entry, StoreBusyError, StoreExpiredError

_TEMPORARY = (*TEMPORARY, StoreExpiredError)
PIECE = 2**20  # bytes; a piece that did not arrive whole is requested again


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
        self._body = body
        self._position = 0

    def read(self, size: int = -1, /) -> bytes:
        """Return the next `size` bytes, fewer only at the end, the rest for -1, b'' at the end."""
        missing = self.entry.size - self._position
        if size >= 0:
            missing = min(size, missing)
        pieces = []
        while missing:
            piece = self._retry(partial(self._read, min(missing, PIECE)), _TEMPORARY)
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def _read(self, size: int) -> bytes:
        try:
            if self._body is None:
                response = self._request(Range=f"bytes={self._position}-")
                self._body = response["Body"]
                received = str(response.get("ContentRange", ""))
                if not received.startswith(f"bytes {self._position}-"):
                    raise store.StoreEndpointError(
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

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
        self._body = None

    def __exit__(self, *_: object) -> None:
        self._drop()
