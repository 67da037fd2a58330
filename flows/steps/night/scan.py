"""One streaming pass over an extract: blocks to rows to chunks, every row accounted for.

A submit publishes the pieces; a check only counts them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from datetime import date
from io import BytesIO
from typing import NamedTuple, Protocol

import polars as pl

from flows.core.errors import OperatorError
from flows.core.extract.mapping import plan_mapping
from flows.core.extract.reader import read_extract
from flows.core.ports import Entry
from flows.core.rows.split import Splitter
from flows.core.sealing.openpgp import looks_like_message
from flows.core.storage.store_errors import ObjectChangedError
from flows.steps.ahead import ahead
from flows.steps.edges import IssuerEdges
from flows.submissions.rows import EVERY_ROW, Choice, Route, batches
from schemas import ledger
from schemas.corrections import BESIDE
from schemas.manifest import Counts, SourceIdentity

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


class Piece(NamedTuple):
    """What one block gave: chunks that are full, and ledger records of rows that are not sent."""

    chunks: list[pl.DataFrame]
    others: pl.DataFrame


class Scan:
    """The pass itself; iterate once, then read `counts` and the route's tallies."""

    def __init__(
        self,
        edges: IssuerEdges,
        stream: Readable,
        source: SourceIdentity,
        as_of: date,
        choice: Choice = EVERY_ROW,
    ) -> None:
        issuer = edges.issuer
        self._picked = choice.picked is not None
        self._extract = read_extract(stream, issuer.source, source.key)
        mapping = plan_mapping(
            self._extract.header,
            issuer.columns,
            source.key,
            where=issuer.filter,
            strict=issuer.source.strict,
            beside=BESIDE if self._picked else (),
        )
        self.route = Route(issuer, mapping, as_of, source, choice, edges.header.order)
        self._splitter = Splitter(issuer.portal.rows_per_chunk)
        self._fates = dict.fromkeys(ledger.FATES, 0)

    def __iter__(self) -> Generator[Piece, None, None]:
        """Yield a piece per batch, and a last one with the chunks that stayed short; close it if left early."""
        with closing(ahead(iter(self._extract))) as blocks:
            prepared = map(self.route.prepare, blocks)
            with closing(ahead(batches(prepared))) as coming:
                for batch in coming:
                    processed = self.route.process(batch)
                    self._count(processed.others, processed.good.height)
                    yield Piece(list(self._splitter.add(processed.good)), processed.others)
        yield Piece(list(self._splitter.finish()), pl.DataFrame(schema=ledger.dtypes()))

    @property
    def counts(self) -> Counts:
        """Where the rows went so far."""
        seen = self._extract.counts
        if self._picked:  # the extract as a whole was counted by the run that is repeated
            return Counts(lines=seen.lines, read=sum(self._fates.values()), **self._fates)
        return Counts(lines=seen.lines, read=seen.rows, trailer=seen.trailer_count, **self._fates)

    def _count(self, others: pl.DataFrame, good: int) -> None:
        self._fates[ledger.SUBMITTED] += good
        for fate, number in others.get_column("fate").value_counts().iter_rows():
            self._fates[fate] += number


@contextmanager
def open_extract(edges: IssuerEdges, entry: Entry, source: SourceIdentity) -> Iterator[Readable]:
    """Open the extract for the second time, pinned; at the end its digest must be the first reading's."""
    with edges.edges.store.open(entry.key, entry) as stored:
        digesting = _Digesting(stored)
        head = digesting.read(64)
        if looks_like_message(head):
            yield BytesIO(_unseal(edges, entry, head + digesting.read()))
        else:
            yield _Prefixed(head, digesting)
        if digesting.hexdigest() != source.sha256:
            raise ObjectChangedError(key=entry.key)


def _unseal(edges: IssuerEdges, entry: Entry, message: bytes) -> bytes:
    with edges.opener() as opener:
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
