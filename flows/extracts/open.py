"""Open an extract for reading, decrypted if it is PGP-encrypted; at its end it must have the digest of the plan."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

from flows.errors import OperatorError
from flows.extracts.decode import Readable
from flows.extracts.errors import TruncatedError
from flows.runs.context import IssuerContext
from flows.runs.openpgp import is_cut_off, looks_like_message
from flows.runs.store import Entry, ObjectChangedError
from schemas.manifest import SourceIdentity

LARGEST_SEALED = 2 << 30  # bytes of a decrypted extract: it is decrypted in memory


class NoKeyForExtractError(OperatorError):
    """The extract is PGP-encrypted, and no private key is configured."""

    message = "{extract} is PGP-encrypted and no private key is configured."
    next_step = "Set CARDLINK_PRIVATE_KEY_FILE to the file of the private key it was encrypted for."


@contextmanager
def open_extract(context: IssuerContext, entry: Entry, source: SourceIdentity) -> Iterator[Digesting | BytesIO]:
    """Open the extract again, pinned; ObjectChangedError at its end if it has not the digest of the first reading."""
    with context.adapters.store.open(entry.key, entry) as stored:
        digesting = Digesting(stored)
        if looks_like_message(digesting.peek(64)):
            message = digesting.read()
            if is_cut_off(message):
                raise TruncatedError(name=entry.key, problem=f"its PGP message has no end after {len(message)} bytes")
            with context.opener() as opener:
                if opener is None:
                    raise NoKeyForExtractError(extract=entry.key)
                plain = opener.open(message, LARGEST_SEALED)
            yield BytesIO(plain)
        else:
            yield digesting
        if digesting.hexdigest() != source.sha256:
            raise ObjectChangedError(key=entry.key)


class Digesting:
    """A stream that hashes what is read of it, and whose first bytes can be looked at before they are read."""

    def __init__(self, source: Readable) -> None:
        self._source, self._running = source, hashlib.sha256()
        self._head, self._done = b"", 0

    def peek(self, size: int) -> bytes:
        """Return the first bytes, which stay to be read."""
        self._head = self.read(size)
        return self._head

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._done

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, as many as asked for unless it ends."""
        if head := self._head:
            self._head = b"" if size < 0 else head[size:]
            return head + self.read() if size < 0 else head[:size]
        data = self._source.read(size)
        while 0 < len(data) < size and (more := self._source.read(size - len(data))):
            data += more  # always full reads, so that the same extract gives the same blocks each time
        self._running.update(data)
        self._done += len(data)
        return data

    def hexdigest(self) -> str:
        """Read what the reader did not need, such as bytes after a gzip member, and return the SHA-256 of all."""
        while self.read(1 << 20):
            pass
        return self._running.hexdigest()
