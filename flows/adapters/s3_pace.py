"""Bodies of S3 that trickle: each has to come at a least rate.

A timeout of the socket is for one packet, so that a byte now and then would never end. A time for a
piece alone would let a listing of some kilobytes take as long as a megabyte, for each request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSResponse

from flows.runs.store import StoreBusyError

PIECE = 2**20  # bytes
RATE = 10_000  # bytes a second, at least
GRACE = 30.0  # seconds that a body may be behind that, as long as a timeout of the socket


class Paced:
    """The raw stream of a response: an object's, a listing's or an error's."""

    def __init__(self, stream: Any, place: str, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._read_some = getattr(stream, "read1", stream.read)  # what has come, at least a byte
        self._place = place
        self._clock = clock
        self.close = stream.close

    def read(self, size: int | None = None) -> bytes:
        """Return `size` bytes, fewer only at the end; StoreBusyError where they come too slowly."""
        if size is None:
            return b"".join(self.stream())
        until = self._clock() + GRACE
        pieces = list[bytes]()
        while size and (piece := self._read_some(size)):
            pieces.append(piece)
            size -= len(piece)
            until += len(piece) / RATE
            if size and self._clock() > until:
                self.close()  # with its connection, which nobody reads to the end
                raise StoreBusyError(place=self._place, code="body too slow")
        return b"".join(pieces)

    def stream(self) -> Iterator[bytes]:
        """Yield the rest, which botocore reads so where it is no object's."""
        while piece := self.read(PIECE):
            yield piece


def keep_pace(client: Any, clock: Callable[[], float]) -> Any:
    """Let a client of boto3 read every body so; return it."""

    def send(request: Any, **_: object) -> AWSResponse:
        request.stream_output = True  # its session would read the whole at once
        # botocore has no other way to bound a read
        answer = client._endpoint.http_session.send(request)
        place = urlsplit(request.url).path.lstrip("/")
        paced = Paced(answer.raw, place, clock)
        return AWSResponse(answer.url, answer.status_code, answer.headers, paced)

    client.meta.events.register("before-send.s3", send, unique_id="cardlink keeps pace")
    return client
