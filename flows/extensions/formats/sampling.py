"""How a file of a rare form is written, for `init`: format and code page of records, or a sheet.

A format is right where the whole file can be cut by it, so it is no guess. Which EBCDIC code page
it is shows only in accents and brackets: where a field has one, other pages are named.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import BinaryIO, Final, NamedTuple

import polars as pl

from flows.configuration import ConfigurationError
from flows.errors import ExtractError
from flows.extensions.formats.code_pages import characters
from flows.extensions.formats.copybook import CopybookError
from flows.extensions.formats.fields import NO_FIELD, FieldReader, alphabet
from flows.extensions.formats.framing import Frame, Framing, RecordFormatError
from flows.extensions.formats.record_layout import Layout, read_layout
from flows.extensions.formats.record_lines import record_texts
from flows.extensions.formats.workbook import is_workbook, sheet_lines
from flows.extracts.decode import BLOCK, inflated, looks_ebcdic
from flows.extracts.errors import TruncatedError
from flows.redaction import redact

PIECE: Final = 1 << 20  # bytes
HEAD: Final = 1 << 16  # bytes that show whether it is EBCDIC, or a workbook
FIRST: Final = 2000  # records
USUAL_PAGES: Final = ("cp037", "cp1047", "cp500", "cp1140", "cp273", "cp284", "cp297")
_FORMATS: Final = ("VB", "V", "FB")  # those whose words prove themselves first


class CopybookUnfitError(ExtractError):
    """The bytes are no records that a copybook describes, in any format."""

    message = "{name} has no records of {size} bytes, as the copybook describes them: {problem}."
    next_step = (
        "Compare the copybook with the file: ask the issuer for the copybook of this file, or to "
        "send the file again, in binary mode."
    )


class Sampled(NamedTuple):
    """What a file showed: its settings with the reason of each, and lines to go on with, as CSV.

    Of records: the cells of the first ones that can be read, and the text of the first and the last
    one, of so many. `pages`: other encodings that it may be in.
    """

    settings: dict[str, tuple[object, str]]
    lines: bytes = b""
    rows: pl.DataFrame | None = None
    is_readable: tuple[bool, ...] = ()
    texts: tuple[str, ...] = ()
    total: int = 0
    pages: tuple[str, ...] = ()


def sampled(stream: BinaryIO, name: str, copybook: tuple[str, str] | None) -> Sampled | None:
    """Return what a file showed; None for lines of text. `copybook`: its file's name, and text.

    Raises ConfigurationError, and CopybookUnfitError where no format of records fits.
    """
    if copybook is not None:
        return _records(stream, name, *copybook)
    head = stream.read(HEAD)
    stream.seek(0)
    if not is_workbook(head):
        return None
    lines = b"".join(sheet_lines(stream, None, name, BLOCK))
    return Sampled({"format": ("xlsx", "an Excel workbook")}, lines)


def _records(stream: BinaryIO, name: str, file: str, text: str) -> Sampled:
    try:
        layout = read_layout(text)
    except CopybookError as error:
        raise ConfigurationError(file=file, problems=redact(str(error))) from None
    data = _content(stream, name)
    cut = _framed(data, layout, name)
    page, reason, others = _encoding(data, cut.first, layout)
    settings: dict[str, tuple[object, str]] = {
        "copybook": (file, "describes the records; its fields are the columns"),
        "record_format": (
            cut.record_format,
            f"it cuts the whole file into {cut.total:,} records of {layout.size} bytes",
        ),
    }
    is_short = any(length < layout.size for length in cut.lengths)
    if is_short:
        settings["short_records"] = (True, "some records lack the blanks at their end")
    settings["encoding"] = (page, reason)
    records = cut.first.matrix(layout.size, alphabet(page).blank)[:FIRST]
    texts = record_texts(records, page)
    if cut.total > FIRST:
        texts += record_texts(cut.last.matrix(layout.size, alphabet(page).blank)[-1:], page)
    reader = FieldReader(layout.fields, page, short=is_short)
    cells = reader.read(records, cut.first.lengths[:FIRST])
    is_readable = tuple((cells.wrong == NO_FIELD).tolist())
    return Sampled(
        settings,
        rows=cells.rows,
        is_readable=is_readable,
        texts=tuple(texts),
        total=cut.total,
        pages=others,
    )


def _content(stream: BinaryIO, name: str) -> bytes:
    """Return the decompressed bytes of a file; of one that is cut off, those that can be read."""
    pieces: list[bytes] = []
    with suppress(TruncatedError):
        pieces += inflated(iter(partial(stream.read, PIECE), b""), name)
    return b"".join(pieces)


class _Cut(NamedTuple):
    """The first and last records of a file, how many it has, and the lengths that they have."""

    record_format: str
    first: Frame
    last: Frame
    total: int
    lengths: frozenset[int]


def _framed(data: bytes, layout: Layout, name: str) -> _Cut:
    """Return the records in the first format that fits a whole file."""
    for record_format in _FORMATS:
        framing = Framing(record_format, layout.size, name)
        with suppress(RecordFormatError, TruncatedError):
            frames = list(framing.frames(iter([data]), len(data)))
            lengths = Counter[int]()
            for frame in frames:
                lengths.update(frame.lengths.tolist())
            if max(lengths) <= layout.size:
                total = sum(frame.height for frame in frames)
                return _Cut(record_format, frames[0], frames[-1], total, frozenset(lengths))
    raise CopybookUnfitError(name=name, size=layout.size, problem=_misfit(data, layout.size))


def _misfit(data: bytes, size: int) -> str:
    """Return why bytes are no records of a size, in any format."""
    for end, more in ((b"\r\n", 2), (b"\n", 1), (b"\x15", 1), (b"\x25", 1)):
        if data[size : size + more] == end and data[2 * size + more :][:more] == end:
            return (
                "each record has a line end behind it: describe it by a last item of the "
                f"copybook, `05 FILLER PIC X({more}).`"
            )
    left = len(data) % size
    return f"it has {len(data):,} bytes, which leaves {left} behind records of {size}"


def _encoding(data: bytes, first: Frame, layout: Layout) -> tuple[str, str, tuple[str, ...]]:
    """Return the encoding of records, why, and which others it may be."""
    if not looks_ebcdic(data[:HEAD]):
        texts = b"".join(_texts(first, layout, "utf-8"))
        return "utf-8" if texts.isascii() else "cp1252", "what its bytes are", ()
    letters = set(b"".join(_texts(first, layout, USUAL_PAGES[0])))
    if letters.isdisjoint(_different_letters()):
        return USUAL_PAGES[0], "EBCDIC; no letter tells which code page", ()
    return USUAL_PAGES[0], "EBCDIC", USUAL_PAGES[1:]


def _texts(frame: Frame, layout: Layout, encoding: str) -> Iterator[bytes]:
    """Yield the bytes of each field of text."""
    records = frame.matrix(layout.size, alphabet(encoding).blank)[:FIRST]
    for field in layout.fields:
        if field.kind == "text":
            yield records[:, field.start : field.end].tobytes()


def _different_letters() -> frozenset[int]:
    """Return the bytes that are other characters in some of the usual code pages."""
    meanings = zip(*map(characters, USUAL_PAGES), strict=True)
    return frozenset(byte for byte, texts in enumerate(meanings) if len(set(texts)) > 1)
