"""Records of several types by one copybook, put together to rows by their order (`segments.py`)."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from flows.extracts import grammar
from flows.extracts.joined.aside import Aside
from flows.extracts.line_kinds import Fault, Kind
from flows.extracts.records.fields import NO_FIELD, FieldReader, alphabet, column_name
from flows.extracts.records.framing import Bytes, Frame, Places
from flows.extracts.segments import UNKNOWN, Place, Row, Rows
from schemas.record_layout import Field, Layout
from schemas.source import SourceSettings

_KINDS = {Place.ROW: Kind.RECORD, Place.PART: Kind.CONTINUES, Place.REFUSED: Kind.REFUSED}

Verdicts = npt.NDArray[np.uint8]


class Records(NamedTuple):
    """Some records as bytes, how long each is, and where it is in the file."""

    data: Bytes
    lengths: Places
    places: Places

    def at(self, positions: Sequence[int]) -> "Records":
        """Return the records at some positions."""
        chosen = np.array(positions, np.int64)
        return Records(self.data[chosen], self.lengths[chosen], self.places[chosen])

    def before(self, others: "Records") -> "Records":
        """Return these records and others after them."""
        return Records(
            np.concatenate([self.data, others.data]),
            np.concatenate([self.lengths, others.lengths]),
            np.concatenate([self.places, others.places]),
        )


class TypedRows(NamedTuple):
    """What records are: the kind of each, and of each that begins a row its cells and its fault."""

    kinds: Verdicts
    rows: pl.DataFrame
    faults: dict[int, Fault]  # by the index of the row


class SegmentedRecords:
    """Reads records of several types as rows of one."""

    def __init__(self, source: SourceSettings, layout: Layout) -> None:
        self._row = source.row_segment
        self._size = layout.size
        self._filling = alphabet(source.encoding).blank
        self._readers = {
            kind: _reader(layout.of(str(group).upper()), source)
            for kind, group in source.segments.items()
        }
        self._type = _reader(_type_field(source, layout), source)
        self._rows = Rows[int](tuple(source.segments), self._row)
        self._above: dict[str, Records] = {}  # what is above the rows that follow
        self._names = _names(self._readers, self._row)
        self.header = tuple(chain.from_iterable(self._names.values()))

    def frames(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        """Yield the same records in frames that no row goes beyond."""
        held: Frame | None = None
        for frame in frames:
            whole = frame if held is None else held.before(frame)
            kinds = self._kinds(whole.matrix(self._size, self._filling), whole.lengths)
            rows = [place for place, kind in enumerate(kinds) if kind == self._row]
            held = whole
            if rows and rows[-1]:
                head, held = whole.cut(rows[-1])
                yield head
        if held is not None:
            yield held

    def read(self, records: Records) -> TypedRows:
        """Return the rows of records."""
        above = list(self._above)
        self._rows.context = {kind: place for place, kind in enumerate(above)}
        whole = records
        for kind in reversed(above):
            whole = self._above[kind].before(whole)
        verdicts = []
        rows: list[Row[int]] = []
        for place, kind in enumerate(self._kinds(records.data, records.lengths), len(above)):
            verdict = self._rows.take(kind, place)
            verdicts.append(_KINDS[verdict.place])
            if verdict.place is Place.ROW and self._rows.open is not None:
                rows.append(self._rows.open)
            elif verdict.place is Place.REFUSED:
                rows.append(_refused(place, verdict.code))
        self._above = {kind: whole.at([place]) for kind, place in self._rows.context.items()}
        faults = {place: Fault(row.code, None) for place, row in enumerate(rows) if row.code}
        frame = self._cells(rows, whole, faults)
        return TypedRows(np.array(verdicts, np.uint8), frame, faults)

    def _kinds(self, data: Bytes, lengths: Places) -> list[str]:
        """Return the type of each record, "" where it cannot be read."""
        cells = self._type.read(data, lengths)
        return cells.rows.to_series().fill_null("").to_list()

    def _cells(
        self, rows: Sequence[Row[int]], whole: Records, faults: dict[int, Fault]
    ) -> pl.DataFrame:
        """Return the cells of rows and of their parts; add what cannot be read to the faults."""
        frames = []
        for kind, names in self._names.items():
            owners = [place for place, row in enumerate(rows) if self._has(row, kind)]
            positions = [self._part(rows[place], kind) for place in owners]
            cells = self._read_type(kind, whole.at(positions), owners, faults)
            index = np.full(len(rows), -1)
            index[owners] = np.arange(len(owners))
            place = pl.Series(index).replace(-1, None).cast(pl.UInt32)
            frames.append(
                cells.select(pl.all().gather(place)).rename(
                    dict(zip(cells.columns, names, strict=True))
                )
            )
        return pl.concat(frames, how="horizontal")

    def _has(self, row: Row[int], kind: str) -> bool:
        return not row.code and (kind == self._row or kind in row.parts)

    def _part(self, row: Row[int], kind: str) -> int:
        return row.record if kind == self._row else row.parts[kind]

    def _read_type(
        self, kind: str, records: Records, owners: Sequence[int], faults: dict[int, Fault]
    ) -> pl.DataFrame:
        reader = self._readers[kind]
        cells = reader.read(records.data, records.lengths)
        for place, fault in _faults(reader, records, cells.wrong, self._size).items():
            faults.setdefault(owners[place], fault)
        return cells.rows


class KeyedRecords:
    """Reads records of one type as rows, and puts aside those of the others, as cells."""

    def __init__(self, source: SourceSettings, layout: Layout, aside: Aside) -> None:
        self._row = source.row_segment
        self._size = layout.size
        self._aside = aside
        self._readers = {
            kind: _reader(layout.of(str(group).upper()), source)
            for kind, group in source.segments.items()
        }
        self._type = _reader(_type_field(source, layout), source)
        self.header = part_names(self._row, source)

    def frames(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        """Yield the same records in the same frames: a row needs none of the records around it."""
        return frames

    def read(self, records: Records) -> TypedRows:
        """Return the rows of records; put aside the others, those that can be read."""
        types = self._type.read(records.data, records.lengths).rows.to_series().fill_null("")
        names = types.to_numpy()
        verdicts = np.full(len(names), Kind.REFUSED, np.uint8)
        verdicts[names == self._row] = Kind.RECORD
        for kind in self._readers:
            if kind == self._row:
                continue
            places = np.flatnonzero(names == kind)
            verdicts[places] = Kind.CONTINUES
            read = self._of_type(kind, records.at(places.tolist()))
            self._aside.refused[kind] += len(read.faults)
            is_sound = pl.Series(range(read.rows.height)).is_in(list(read.faults)).not_()
            self._aside.put(kind, read.rows.filter(is_sound))
        begins = np.flatnonzero(verdicts <= Kind.REFUSED)
        return self._rows(begins, names[begins] == self._row, verdicts, records)

    def _rows(
        self, begins: Places, is_row: npt.NDArray[np.bool_], verdicts: Verdicts, records: Records
    ) -> TypedRows:
        """Return the records that begin a row, of which those of no known type are refused."""
        read = self._of_type(self._row, records.at(begins[is_row].tolist()))
        owners = np.flatnonzero(is_row)
        index = np.full(len(begins), -1)
        index[owners] = np.arange(len(owners))
        faults = {int(owners[place]): fault for place, fault in read.faults.items()}
        faults |= {place: Fault(UNKNOWN, None) for place in np.flatnonzero(~is_row).tolist()}
        place = pl.Series(index).replace(-1, None).cast(pl.UInt32)
        return TypedRows(verdicts, read.rows.select(pl.all().gather(place)), faults)

    def _of_type(self, kind: str, records: Records) -> "_Read":
        reader = self._readers[kind]
        cells = reader.read(records.data, records.lengths)
        faults = _faults(reader, records, cells.wrong, self._size)
        names = [column_name(field.name) for field in reader.fields]
        return _Read(cells.rows.rename(dict(zip(cells.rows.columns, names, strict=True))), faults)


class _Read(NamedTuple):
    """The cells of records of one type, and of those that cannot be read the fault."""

    rows: pl.DataFrame
    faults: dict[int, Fault]


def _faults(
    reader: FieldReader, records: Records, wrong: npt.NDArray[np.int64], size: int
) -> dict[int, Fault]:
    """Return why records cannot be read, by their place: they are too long, or by a field."""
    faults: dict[int, Fault] = {}
    for place in np.flatnonzero(records.lengths > size).tolist():
        faults[place] = Fault(grammar.TOO_LONG, f"at byte {records.places[place] + 1:,}")
    for place in np.flatnonzero(wrong != NO_FIELD).tolist():
        number = int(wrong[place])
        field = reader.fields[number]
        where = f"{field.name}, at byte {records.places[place] + field.start + 1:,}"
        faults.setdefault(place, Fault(reader.fault(number), where))
    return faults


def part_names(kind: str, source: SourceSettings) -> tuple[str, ...]:
    """Return the names of the fields of a type."""
    fields = source.layout.of(str(source.segments[kind]).upper())
    return tuple(column_name(field.name) for field in _reader(fields, source).fields)


def _refused(place: int, code: str) -> Row[int]:
    row = Row(place, {})
    row.code = code
    return row


def _reader(fields: Sequence[Field], source: SourceSettings) -> FieldReader:
    return FieldReader(fields, source.encoding, short=source.short_records)


def _type_field(source: SourceSettings, layout: Layout) -> tuple[Field, ...]:
    field = layout.named(source.segment_field or "")
    return () if field is None else (field._replace(shared=True),)


def _names(readers: dict[str, FieldReader], row: str) -> dict[str, list[str]]:
    """Return the column names of each type, those of the rows first, as `column_names` does."""
    names: dict[str, list[str]] = {}
    taken: set[str] = set()
    for kind in (row, *(kind for kind in readers if kind != row)):
        own = [column_name(field.name) for field in readers[kind].fields]
        names[kind] = [f"{kind}.{name}" if name in taken else name for name in own]
        taken.update(names[kind])
    return names
