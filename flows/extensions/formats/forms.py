"""The rows of an extract of a rare form: which lines it becomes, and what is joined to its rows."""

from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from itertools import chain
from typing import Any, NamedTuple

from flows.errors import ExtractError
from flows.extensions.formats import segments
from flows.extensions.formats.code_pages import EBCDIC
from flows.extensions.formats.joined import JoinedRows, JoinFileError, Joining, joining_of
from flows.extensions.formats.record_lines import CopybookLines, TypedLines, field_names, text_lines
from flows.extensions.formats.settings import FormatSettings
from flows.extensions.formats.spill import Aside
from flows.extensions.formats.workbook import sheet_lines
from flows.extracts.decode import BLOCK, Readable, line_blocks
from flows.extracts.errors import EmptyExtractError, TrailerError
from flows.extracts.opening import Pair
from flows.extracts.reader import Block, Extract
from flows.extracts.row_source import Rows
from flows.extracts.trailer import ControlRecords
from schemas.source import SourceSettings

MISSING = "segment.key.missing"
AMBIGUOUS = "segment.key.ambiguous"
_CSV = {"format": "csv", "delimiter": ",", "encoding": "utf-8", "quoting": "doubled"}


class TypeMissingError(ExtractError):
    """A file has no record of a type that all its rows need."""

    message = "{name} has no record of type {kind}, which each row needs."
    next_step = (
        "Compare segments and segment_field in [source] with the file, or ask the issuer what "
        "changed; a type that rows may lack belongs in segment_optional."
    )


class _File(NamedTuple):
    """One file that is to be read, and how."""

    stream: Readable
    source: FormatSettings
    name: str
    proven: bool
    block: int


def open_rows(
    stream: Readable, settings: SourceSettings, name: str, *, proven: bool, block: int
) -> Rows | None:
    """Open the rows of an extract of a rare form; None for lines of text. Raises ExtractError."""
    if not isinstance(settings, FormatSettings):
        return None
    if settings.join is None:
        return _open_file(_File(stream, settings, name, proven, block))
    if not isinstance(stream, Pair):
        raise JoinFileError(name=name, problem="its run had none")
    first = _open_file(_File(stream.first, settings, name, proven, block))
    try:
        second = _open_file(_File(stream.second, settings.second_file, stream.name, proven, block))
    except EmptyExtractError:
        pass  # that of the extract itself means that there is nobody to send
    else:
        return JoinedRows(first, _SecondFile(second, name), joining_of(settings.join), name)
    raise JoinFileError(name=name, problem=f"{stream.name} is empty")


class _SecondFile:
    """The rows of a second file, which has some."""

    def __init__(self, rows: Rows, name: str) -> None:
        self._rows = rows
        self._name = name  # of the extract
        self.header = rows.header

    @property
    def height(self) -> int:
        """Its rows so far."""
        return self._rows.height

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks; JoinFileError where it has no row."""
        try:
            yield from self._rows
            return
        except EmptyExtractError:
            pass  # the extract itself has rows
        raise JoinFileError(name=self._name, problem="the second file has no row")


def _open_file(file: _File) -> Rows:
    source = file.source
    written = as_lines(source)
    if source.segments:
        return _typed_rows(file, written)
    if source.copybook is not None:
        return RecordRows(file, written, _whole(_typed_lines(file)), Counter())
    lines: Iterator[bytes] | None = None
    if source.format == "xlsx":
        lines = sheet_lines(file.stream, source.sheet, file.name, file.block)
    elif source.encoding in EBCDIC or source.record_format is not None:
        lines = text_lines(file.stream, source, file.name, file.block)
    return Extract(
        file.stream, written, file.name, proven=file.proven, block=file.block, lines=lines
    )


def as_lines(source: FormatSettings) -> FormatSettings:
    """Return how the lines of an extract are written, before its types are put together."""
    written: dict[str, Any] = {}
    if source.format == "xlsx":
        written = _CSV | {"final_newline": True}
    elif source.copybook is not None:
        types = {kind: field_names(kind, source) for kind in source.segments}
        names = () if types else field_names("", source)
        written = _CSV | {"header_rows": 0, "names": names, "segments": types}
    elif source.encoding in EBCDIC or (source.segments and source.encoding == "utf-16"):
        written = {"encoding": "utf-8"}
    return source.model_copy(update=written)


def _typed_lines(file: _File) -> Iterator[TypedLines]:
    source = file.source
    if source.copybook is not None:
        return CopybookLines(source, file.name).blocks(file.stream, file.block)
    if source.encoding in EBCDIC or source.record_format is not None:
        lines = text_lines(file.stream, source, file.name, file.block)
    else:
        lines = line_blocks(file.stream, source.encoding, file.name, file.block)
    return segments.TextTypes(as_lines(source)).typed(lines)


def _whole(blocks: Iterator[TypedLines]) -> Iterator[bytes]:
    for block in blocks:
        yield b"".join(line + b"\n" for line in block.lines)


class _AllRecords(ControlRecords):
    """Header and trailer records, of which the trailer counts records of every type."""

    records: int | None = None

    def take_trailer(self, line: str, number: int) -> None:
        """Take what the trailer states; TrailerError."""
        self.records = self.count_in_trailer(line, number)


class RecordRows(Extract):
    """The rows of lines that were made of records, of which some are `parts` of rows, by type."""

    def __init__(
        self, file: _File, written: FormatSettings, lines: Iterator[bytes], parts: Counter[str]
    ) -> None:
        self._parts = parts
        self._size = 0 if file.source.copybook is None else file.source.layout.size
        self._counted: _AllRecords | None = None
        controls = ControlRecords(written, file.name)
        if written.trailer_counts == "records":
            self._counted = controls = _AllRecords(written, file.name)
        self._file = file.name
        super().__init__(
            BytesIO(), written, file.name, proven=file.proven, lines=lines, controls=controls
        )
        self.before = [line.rstrip() for line in self.before]

    def fit_header(self) -> None:
        """There is none: a record that cannot be read is refused by itself."""

    @property
    def record_size(self) -> int:
        """The bytes of a record by a copybook, else the fields of a row."""
        return self._size or super().record_size

    @property
    def set_aside(self) -> dict[str, int]:
        """The lines that are no rows, by kind; parts, which left blank lines, are told apart."""
        parts = self._parts.total()
        aside = super().set_aside
        if parts:
            aside = {**aside, "blank": aside.get("blank", 0) - parts, "parts": parts}
        return {kind: number for kind, number in aside.items() if number}

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks; TrailerError where the trailer counts other records, too."""
        yield from super().__iter__()
        stated = self._counted.records if self._counted else None
        records = self.height + self._parts.total()
        if stated not in (None, records):
            problem = f"it counts {stated:,} records, and {records:,} were read"
            raise TrailerError(name=self._file, problem=problem)


# Types


def _typed_rows(file: _File, written: FormatSettings) -> Rows:
    """Return the rows of a file with records of several types."""
    parts = Counter[str]()
    blocks = _typed_lines(file)
    row_settings = segments.together(written)
    if not written.segment_key:
        lines = segments.Ordered(written, parts).lines(blocks)
        return RecordRows(file, row_settings, lines, parts)
    aside = Aside()
    lines = segments.Keyed(written, aside, parts).lines(blocks)
    rows: Rows = RecordRows(file, row_settings, lines, parts)
    keys = written.segment_keys
    row, *kinds = sorted(written.segments, key=lambda kind: kind != written.row_segment)
    for kind in kinds:
        joining = Joining(
            keys[row],
            keys[kind],
            prefix=kind,
            missing=MISSING,
            ambiguous=AMBIGUOUS,
            other=f"{kind} record",
            needed=kind not in written.segment_optional,
        )
        others = _LinesOfType(kind, aside, written, file.name, needed=joining.needed)
        during = aside.opened() if kind == kinds[-1] else None
        rows = JoinedRows(rows, others, joining, file.name, during)
    return rows


class _LinesOfType:
    """The records of one type, which were put aside."""

    def __init__(
        self, kind: str, aside: Aside, source: FormatSettings, name: str, *, needed: bool
    ) -> None:
        self._kind = kind
        self._aside = aside
        self._source = source
        self._name = name
        self._is_needed = needed
        self.header = source.record_types.names(kind)
        self.height = 0

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks; TypeMissingError."""
        lines = self._aside.taken(self._kind)
        first = next(lines, None)
        if first is None:
            if self._is_needed:
                raise TypeMissingError(name=self._name, kind=self._kind)
            return
        source = segments.alone(self._kind, self._source)
        file = _File(BytesIO(), source, self._name, proven=False, block=BLOCK)
        extract = RecordRows(file, source, chain([first], lines), Counter())
        for block in extract:
            self.height = extract.height
            yield block
