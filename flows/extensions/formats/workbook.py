"""A sheet of an Excel workbook (xlsx) as lines of text: each row of the sheet is the line of its
number.

Cells come with their kind, so that a number is told from a text of digits. Excel keeps fifteen
digits of a number: one with more is refused, since its last digits may be lost. Dates are written
as YYYY-MM-DD. Reading needs the extra `[excel]`.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from flows.errors import ExtractError, OperatorError
from flows.extracts.decode import Readable
from flows.extracts.errors import EmptyExtractError
from flows.redaction import redact

if TYPE_CHECKING:
    from python_calamine import CalamineSheet, CalamineWorkbook

LARGEST: Final = 256 << 20  # bytes of a workbook
LARGEST_UNPACKED: Final = 1 << 30
MOST_PARTS: Final = 10_000
EXACT: Final = 10**15  # numbers below it have all their digits
ZIP: Final = b"PK\x03\x04"
_BREAKS: Final = re.compile(r"[\r\n\x00\x1a]+")
_QUOTED: Final = re.compile('[",]')
_PIECE: Final = 1 << 20
_NOT_XLSX: Final = "it is no workbook in the format xlsx"


class WorkbookError(ExtractError):
    """A workbook cannot be read, or does not say which of its sheets is meant."""

    message = "{name} cannot be read as an Excel workbook: {problem}."
    next_step = "Compare `format` and `sheet` in [source] with the file, or ask for it again."


class NumberCellError(ExtractError):
    """A cell holds a number with more digits than Excel keeps, such as a card number."""

    message = (
        "Cell {cell} of {name} is a number of more than 15 digits, not text: its last digits may "
        "be lost."
    )
    next_step = (
        "None of it was used; ask the issuer to write that column as text, or for a CSV file from "
        "the system itself."
    )


class ExcelMissingError(OperatorError):
    """Workbooks need a package that is not installed."""

    message = "{name} is an Excel workbook, and what reads one is not installed."
    next_step = "Install it: pip install 'cardlink[excel]'; or ask the issuer for a CSV file."


def is_workbook(head: bytes) -> bool:
    """Return whether a file begins as a workbook does, whose parts are named in it."""
    return head.startswith(ZIP) and any(part in head for part in (b"[Content_Types]", b"xl/"))


def sheet_lines(stream: Readable, sheet_name: str | None, name: str, size: int) -> Iterator[bytes]:
    """Yield the rows of a sheet as lines of UTF-8, about `size` bytes at a time.

    Raises WorkbookError, NumberCellError, ExcelMissingError and EmptyExtractError.
    """
    content = _content(stream)
    if not content:
        raise EmptyExtractError(name=name, problem="it has no bytes")
    _check_size(content, name)
    sheet = _sheet(_opened(content, name), sheet_name, name)
    first_column = (sheet.start or (0, 0))[1]
    held: list[str] = []
    length = 0
    for number, cells in enumerate(sheet.iter_rows(), 1):
        held.append(_line(cells, number, first_column, name))
        length += len(held[-1])
        if length >= size:
            yield "".join(held).encode()
            held = []
            length = 0
    yield "".join(held).encode()


def _content(stream: Readable) -> bytes:
    """Return all bytes of a workbook; of one that is too large some more than are read."""
    pieces: list[bytes] = []
    while len(pieces) <= LARGEST // _PIECE and (piece := stream.read(_PIECE)):
        pieces.append(piece)
    return b"".join(pieces)


def _check_size(content: bytes, name: str) -> None:
    """Refuse what is no workbook, is damaged, or would be too large unpacked; WorkbookError."""
    problem = _NOT_XLSX
    if len(content) > LARGEST:
        problem = f"it is larger than {LARGEST >> 20} MiB, the most that is read"
    else:
        with suppress(zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, OSError):
            problem = _problem_of_parts(zipfile.ZipFile(BytesIO(content)))
    if problem:
        raise WorkbookError(name=name, problem=problem)


def _problem_of_parts(archive: zipfile.ZipFile) -> str:
    """Return why the parts of a workbook are not read; their sizes are not believed but counted."""
    parts = archive.infolist()
    if "xl/workbook.xml" not in archive.namelist():
        return _NOT_XLSX
    unpacked = sum(part.file_size for part in parts)
    if len(parts) > MOST_PARTS or unpacked > LARGEST_UNPACKED:
        return f"unpacked it has more than {LARGEST_UNPACKED >> 30} GiB, the most that is read"
    for part in parts:
        with archive.open(part) as data:  # its length and CRC are compared at its end
            while data.read(_PIECE):
                pass
    return ""


def _opened(content: bytes, name: str) -> CalamineWorkbook:
    if find_spec("python_calamine") is None:
        raise ExcelMissingError(name=name)
    import python_calamine

    with suppress(python_calamine.CalamineError):  # its text may quote the content
        return python_calamine.load_workbook(BytesIO(content))
    raise WorkbookError(name=name, problem=_NOT_XLSX)


def _sheet(workbook: CalamineWorkbook, sheet_name: str | None, name: str) -> CalamineSheet:
    names = workbook.sheet_names
    if sheet_name is None and len(names) == 1:
        sheet_name = names[0]
    if sheet_name in names:
        return workbook.get_sheet_by_name(sheet_name)
    shown = ", ".join(repr(redact(sheet)[:40]) for sheet in names[:10])
    problem = f"it has no sheet {sheet_name!r}, but {shown}"
    if sheet_name is None:
        problem = f"it has {len(names)} sheets, and `sheet` does not say which is meant: {shown}"
    raise WorkbookError(name=name, problem=problem)


def _line(cells: Sequence[Any], row: int, first_column: int, name: str) -> str:
    texts = [_text(cell) for cell in cells]
    if None in texts:
        place = f"{_letters(first_column + texts.index(None))}{row}"
        raise NumberCellError(name=name, cell=place)
    if not any(texts):
        return "\n"
    return ",".join(map(_quoted, texts)) + "\n"


def _text(cell: Any) -> str | None:
    """Return the text of a cell, None for a number that has lost digits."""
    match cell:
        case bool():
            return str(cell).upper()
        case int() | float():
            return _number(cell)
        case datetime() if cell.time() == time.min:
            return cell.date().isoformat()
        case datetime():
            return cell.isoformat(" ")
        case date() | time():
            return cell.isoformat()
    return _BREAKS.sub(" ", str(cell))


def _number(number: float) -> str | None:
    if abs(number) >= EXACT:
        return None
    return str(int(number)) if float(number).is_integer() else repr(number)


def _quoted(text: str | None) -> str:
    text = text or ""
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def _letters(column: int) -> str:
    """Return the letters of a column, from 0."""
    letters = ""
    while column >= 0:
        column, place = divmod(column, 26)
        letters = chr(ord("A") + place) + letters
        column -= 1
    return letters
