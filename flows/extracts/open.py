"""Open an extract for reading, unsealed where it is PGP-encrypted; at the end it must be the bytes of the plan."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Protocol

from flows.errors import OperatorError
from flows.runs.context import IssuerContext
from flows.runs.openpgp import looks_like_message
from flows.runs.store import Entry, ObjectChangedError
from schemas.manifest import SourceIdentity

LARGEST_SEALED = 2 << 30  # bytes a PGP-encrypted extract may have once opened: it is opened in memory


class Readable(Protocol):
    """Anything with read."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        ...


class NoKeyForExtractError(OperatorError):
    """A sealed extract and no private key to open it."""

    message = "{extract} is PGP-encrypted and no private key is configured."
    next_step = "Name the issuer's key file in CARDLINK_PRIVATE_KEY_FILE."


class Counting:
    """A stream that knows how many bytes were read of it."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self.done = 0

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        data = self._stream.read(size)
        self.done += len(data)
        return data


@contextmanager
def open_extract(context: IssuerContext, entry: Entry, source: SourceIdentity) -> Iterator[Readable]:
    """Open the extract for the second time, pinned; at the end its digest must be the first reading's."""
    with context.adapters.store.open(entry.key, entry) as stored:
        digesting = _Digesting(stored)
        head = digesting.read(64)
        if looks_like_message(head):
            yield BytesIO(_unseal(context, entry, head + digesting.read()))
        else:
            yield _Prefixed(head, digesting)
        if digesting.hexdigest() != source.sha256:
            raise ObjectChangedError(key=entry.key)


def _unseal(context: IssuerContext, entry: Entry, message: bytes) -> bytes:
    with context.opener() as opener:
        if opener is None:
            raise NoKeyForExtractError(extract=entry.key)
        return opener.open(message, LARGEST_SEALED)


class _Digesting:
    def __init__(self, source: Readable) -> None:
        self._source = source
        self._running = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        data = self._source.read(size)
        while 0 < len(data) < size and (more := self._source.read(size - len(data))):
            data += more  # whole blocks only: the same extract is cut at the same lines each time
        self._running.update(data)
        return data

    def hexdigest(self) -> str:
        while self.read(1 << 20):  # what the reader had no need of, such as bytes after a gzip member
            pass
        return self._running.hexdigest()


class _Prefixed:
    def __init__(self, head: bytes, rest: Readable) -> None:
        self._head = head
        self._rest = rest

    def read(self, size: int = -1, /) -> bytes:
        if not self._head:
            return self._rest.read(size)
        if size < 0:
            size = len(self._head)
            head, self._head = self._head, b""
            return head + self._rest.read()
        head, self._head = self._head[:size], self._head[size:]
        return head
