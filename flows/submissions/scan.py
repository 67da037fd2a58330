"""The pass over an extract: blocks along the route, good rows cut into chunks, all counted.

It knows no store to write to: a submit publishes its pieces, a dry run only counts them.
"""

from collections import Counter
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing
from datetime import date
from functools import partial
from io import BytesIO
from typing import NamedTuple

import polars as pl

from flows.extracts.decode import Readable
from flows.extracts.errors import EmptyExtractError
from flows.extracts.mapping import plan_mapping
from flows.extracts.opening import open_extract, stored_entry
from flows.extracts.reader import Block
from flows.extracts.rows import open_rows
from flows.extracts.sidecar import read_sidecar
from flows.runs.context import IssuerContext
from flows.runs.erased import erased_people
from flows.runs.threads import prefetch
from flows.submissions.row_scope import EVERY_ROW, RowScope
from flows.submissions.rows import Route, Validated, together
from flows.submissions.sequence import out_of_sequence, sequence_number
from flows.submissions.splitter import Splitter
from schemas import ledger
from schemas.corrections import BESIDE
from schemas.manifest import Counts, JoinedRows, Layout, SourceFile, SourceIdentity
from schemas.source import SourceSettings


class Piece(NamedTuple):
    """The result of one block: full chunks, and ledger records of the rows that are not sent."""

    chunks: list[pl.DataFrame]
    others: pl.DataFrame


class Scan:
    """The pass itself: iterate once, then read `counts` and the tallies of the `route`.

    `sequence_error` is why the run must not begin, where its sequence number is the wrong one.
    """

    def __init__(
        self,
        context: IssuerContext,
        stream: Readable,
        source: SourceIdentity,
        as_of: date,
        scope: RowScope = EVERY_ROW,
        *,
        opened: Collection[str] = (),
    ) -> None:
        issuer = context.issuer
        self._selected = scope.selected is not None
        # selected rows: the run that they were in has proved that the extract is whole
        proofs = SourceSettings() if self._selected else issuer.source
        self._has_named_columns = issuer.source.has_named_columns
        files: Sequence[SourceFile | SourceIdentity] = source.files or (source,)
        sidecars = [read_sidecar(context.adapters.store, proofs, file.key) for file in files]
        for file, sidecar in zip(files, sidecars, strict=True):
            sidecar.prove(bytes=file.size, sha256=file.sha256)
        self._sidecar, *self._other_sidecars = sidecars
        self._extract = open_rows(stream, issuer.source, source.key, proven=self._selected)
        self.number = sequence_number(proofs, source.key, self._extract.before)
        self.sequence_error = out_of_sequence(context, source, as_of, self.number, opened)
        beside = BESIDE if self._selected else ()
        mapping = plan_mapping(
            self._extract.header,
            issuer,
            source.key,
            context.header.names,
            beside,
            scope.note,
            as_of,
        )
        reread = partial(_reread, context, stream, source)
        erased = erased_people(context.adapters, issuer.issuer)
        order = context.header.order
        self.route = Route(issuer, mapping, as_of, source, scope, order, reread, erased)
        self._splitter = Splitter(issuer.portal.rows_per_chunk)
        self._fates = Counter(dict.fromkeys(ledger.FATES, 0))

    def __iter__(self) -> Generator[Piece, None, None]:
        """Yield a piece per block, and a last one with the chunks that stayed short.

        While a piece is used, the next block is validated and the one after it normalised; so close
        the generator if you stop early.
        """
        blocks = self._blocks()  # has files open where rows are joined
        rows = map(self.route.normalise, blocks)
        normalised = prefetch(together(rows) if self._selected else rows)
        validated = prefetch(map(self.route.validate, normalised))
        with closing(blocks), closing(normalised), closing(validated):
            yield from map(self._piece, validated)
        yield Piece(list(self._splitter.finish()), pl.DataFrame(schema=ledger.dtypes()))

    def _piece(self, block: Validated) -> Piece:
        good, others = self.route.process(block)
        self._fates[ledger.SUBMITTED] += good.height
        self._fates.update(dict(others["fate"].value_counts().iter_rows()))
        return Piece(list(self._splitter.add(good)), others)

    def _blocks(self) -> Generator[Block, None, None]:
        """Yield the extract's blocks; SidecarError where the sidecar counts other rows."""
        try:
            yield from self._extract
        except EmptyExtractError:
            self._sidecar.prove(count=0)
            raise
        self._sidecar.prove(count=self._extract.height)
        for sidecar in self._other_sidecars:
            sidecar.prove(count=self.joined.read if self.joined else 0)

    @property
    def joined(self) -> JoinedRows | None:
        """What became of what is joined by key, once all is read; None without any."""
        return self._extract.tally

    @property
    def _named_columns(self) -> tuple[str, ...]:
        return tuple(self._extract.header) if self._has_named_columns else ()

    @property
    def layout(self) -> Layout:
        """How the extract was read, once it was."""
        layout = self.route.layout(self._extract.record_size)
        return layout.model_copy(update={"header": self._named_columns})

    @property
    def counts(self) -> Counts:
        """The counts of the rows so far."""
        extract = self._extract
        if self._selected:  # the extract as a whole was counted by the run that is repeated
            return Counts(lines=extract.lines, read=self._fates.total(), **self._fates)
        return Counts(
            lines=extract.lines,
            read=extract.height,
            trailer=extract.trailer_count,
            set_aside=extract.set_aside,
            **self._fates,
        )


def _reread(context: IssuerContext, stream: Readable, source: SourceIdentity) -> Iterator[Block]:
    """Yield the blocks of an extract that is read a second time beside the first.

    One that was decrypted is in memory, and is read from there.
    """
    if isinstance(stream, BytesIO):
        content = BytesIO(stream.getvalue())
        yield from open_rows(content, context.issuer.source, source.key, proven=True)
        return
    entry = stored_entry(context.adapters.store, source)
    with open_extract(context, entry, source) as second:
        yield from open_rows(second, context.issuer.source, source.key, proven=True)
