"""An extract of records by a copybook: its rows in blocks, as `reader.Extract` has those of lines.

A record is a line here: it has the number of one. Header and trailer records are found by what
`comment` and `trailer` say of their text. What cannot be read is refused with its record, byte and
field.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import polars as pl

from flows.extracts import grammar
from flows.extracts.decode import BLOCK, Readable
from flows.extracts.errors import EmptyExtractError, TrailerError, TruncatedError
from flows.extracts.joined.aside import Aside
from flows.extracts.line_kinds import Fault, Kind, Kinds, height, numbered, set_aside, with_faults
from flows.extracts.reader import Block
from flows.extracts.records.fields import NO_FIELD, FieldReader, alphabet, column_name
from flows.extracts.records.framing import Bytes, Frame
from flows.extracts.records.segments import KeyedRecords, Records, SegmentedRecords
from flows.extracts.records.text import framing, record_texts, stored_pieces
from flows.extracts.trailer import ControlRecords, HashTotal
from schemas.manifest import JoinedRows
from schemas.record_layout import Layout
from schemas.source import SourceSettings


class RecordExtract:
    """An extract of records, open at its first; the same interface as `reader.Extract`."""

    def __init__(
        self,
        stream: Readable,
        settings: SourceSettings,
        name: str,
        *,
        proven: bool = False,
        block: int = BLOCK,
        aside: Aside | None = None,
    ) -> None:
        self.kinds: Counter[Kind] = Counter()
        self.before: list[str] = []
        self.tally: JoinedRows | None = None  # nothing is joined here
        self._settings = settings
        self._name = name
        self._proven = proven
        self._layout: Layout = settings.layout
        self._reader = FieldReader(
            self._layout.fields, settings.encoding, short=settings.short_records
        )
        self.header = tuple(column_name(field.name) for field in self._reader.fields)
        self._segments: SegmentedRecords | KeyedRecords | None = None
        if settings.segments:
            by_order = SegmentedRecords(settings, self._layout)
            self._segments = KeyedRecords(settings, self._layout, aside) if aside else by_order
            self.header = self._segments.header
        pieces = stored_pieces(stream, settings, name, block)
        self._frames = framing(settings, name).frames(pieces, block)
        self._controls = ControlRecords(settings, name)
        self._total: HashTotal | None = None if proven else self._controls.sum_up(self.header)
        first = next(self._frames)
        self._frames = chain([first], self._frames)
        self.before = list(self._leading_comments(first))
        self._controls.take_header(self.before)
        if self._segments is not None:
            self._frames = self._segments.frames(self._frames)

    @property
    def trailer_count(self) -> int | None:
        """The row count that header or trailer record state, once they were read."""
        return self._controls.count

    @property
    def record_size(self) -> int:
        """The bytes of a record."""
        return self._layout.size

    @property
    def lines(self) -> int:
        """All records so far."""
        return self.kinds.total()

    @property
    def set_aside(self) -> dict[str, int]:
        """The records so far that are no rows, by kind."""
        return set_aside(self.kinds, parts=self.kinds[Kind.CONTINUES])

    @property
    def height(self) -> int:
        """The records so far that are rows, refused ones included."""
        return height(self.kinds)

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks; RecordFormatError, EmptyExtractError, TrailerError, TruncatedError."""
        for frame in self._frames:
            yield self._read(frame)
        self._check_whole()

    def _leading_comments(self, frame: Frame) -> Iterator[str]:
        comment = self._settings.comment_form
        if comment is None:
            return
        for line in self._texts(frame.matrix(self._layout.size, self._filling)):
            if not re.search(comment, line):
                return
            yield line.rstrip()

    @property
    def _filling(self) -> int:
        return alphabet(self._settings.encoding).blank

    def _read(self, frame: Frame) -> Block:
        records = frame.matrix(self._layout.size, self._filling)
        kinds = self._kinds_of(records)
        self._check_trailer(records, kinds)
        is_row = kinds == Kind.RECORD
        if self._segments is not None:
            return self._read_types(self._segments, frame, records, kinds)
        if not is_row.all():
            records = records[is_row]
        lengths = frame.lengths[is_row]
        cells = self._reader.read(records, lengths)
        wrong = cells.wrong
        is_long = lengths > self._layout.size
        refused_places = np.flatnonzero((wrong != NO_FIELD) | is_long)
        kinds[np.flatnonzero(is_row)[refused_places]] = Kind.REFUSED
        numbers = numbered(kinds, self.kinds)
        named = cells.rows.rename(dict(zip(cells.rows.columns, self.header, strict=True)))
        rows = pl.concat([numbers, named], how="horizontal")
        refused = self._refused(frame, is_row, cells.wrong, refused_places, numbers)
        rows = _without(rows, refused_places)
        if self._total is not None:
            self._total.add(rows)
        return Block(rows, refused)

    def _read_types(
        self, segments: SegmentedRecords | KeyedRecords, frame: Frame, records: Bytes, kinds: Kinds
    ) -> Block:
        """Read records of several types."""
        is_record = kinds == Kind.RECORD
        places = frame.first + frame.starts[is_record]
        typed = segments.read(Records(records[is_record], frame.lengths[is_record], places))
        kinds[is_record] = typed.kinds
        numbers = numbered(kinds, self.kinds)
        refused_places = sorted(typed.faults)
        rows = pl.concat([numbers, typed.rows], how="horizontal")
        rows = _without(rows, refused_places)
        if self._total is not None:
            self._total.add(rows)
        faults = (typed.faults[place] for place in refused_places)
        return Block(rows, with_faults(numbers[refused_places], faults))

    def _refused(
        self,
        frame: Frame,
        is_row: npt.NDArray[np.bool_],
        wrong: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
        numbers: pl.DataFrame,
    ) -> pl.DataFrame:
        """Return the records that are refused, each with its code, and the field and byte."""
        starts = frame.starts[is_row]
        faults = (
            self._fault(int(wrong[place]), frame.first + int(starts[place]))
            for place in places.tolist()
        )
        return with_faults(numbers[places], faults)

    def _fault(self, place: int, start: int) -> Fault:
        if place == NO_FIELD:
            return Fault(grammar.TOO_LONG, f"at byte {start + 1:,}")
        field = self._reader.fields[place]
        where = f"{field.name}, at byte {start + field.start + 1:,}"
        return Fault(self._reader.fault(place), where)

    # Header and trailer

    def _texts(self, records: Bytes) -> list[str]:
        return record_texts(records, self._settings.encoding)

    def _kinds_of(self, records: Bytes) -> Kinds:
        settings = self._settings
        kinds: Kinds = np.full(len(records), Kind.RECORD, np.uint8)
        if settings.comment_form is None and settings.trailer is None:
            return kinds
        texts = pl.Series(self._texts(records), dtype=pl.String)
        if settings.comment_form is not None:
            kinds[texts.str.contains(settings.comment_form).to_numpy()] = Kind.COMMENT
        if settings.trailer is not None:
            kinds[texts.str.contains(settings.trailer).to_numpy()] = Kind.TRAILER
        return kinds

    def _check_trailer(self, records: Bytes, kinds: Kinds) -> None:
        """Take the trailer's count; TrailerError where another record follows it."""
        trailers = np.flatnonzero(kinds == Kind.TRAILER).tolist()
        if self.kinds[Kind.TRAILER]:
            problem = f"record {self.lines + 1:,} follows it"
            raise TrailerError(name=self._name, problem=problem)
        if not trailers:
            return
        if trailers[0] != len(kinds) - 1:
            problem = f"record {self.lines + trailers[0] + 2:,} follows it"
            raise TrailerError(name=self._name, problem=problem)
        [line] = self._texts(records[trailers])
        self._controls.take_trailer(line, self.lines + len(kinds))

    def _check_whole(self) -> None:
        if self._settings.trailer is not None and not self.kinds[Kind.TRAILER]:
            problem = f"it has no trailer, which its settings require; {self.height} rows were read"
            raise TruncatedError(name=self._name, problem=problem)
        if not self.height:
            raise EmptyExtractError(name=self._name, problem="it has no data row")
        self._controls.check_parts(self.height, self.kinds[Kind.CONTINUES])
        if self._total is not None:
            self._total.check(self.height, self.kinds[Kind.REFUSED])


def _without(rows: pl.DataFrame, refused: Sequence[int] | npt.NDArray[np.int64]) -> pl.DataFrame:
    """Return the rows but for those at some places."""
    if not len(refused):
        return rows
    is_sound = np.ones(rows.height, np.bool_)
    is_sound[refused] = False
    return rows.filter(pl.Series(is_sound))
