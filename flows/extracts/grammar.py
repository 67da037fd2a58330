"""The grammar of physical lines: which are records, which may begin one, what is wrong with others.

It decides before a parser sees a line, because CSV parsers guess, pad, shift or merge without a
warning.

Backslash escapes become marks before the grammar sees a line (`decode.py`), so that grammar and
parser stay those of RFC 4180. A field `="..."` belongs to the grammar and is undone after the
parser (`parsing.py`).
"""

import re
from collections.abc import Sequence
from secrets import token_hex
from typing import NamedTuple

import polars as pl

from flows.extracts.decode import UNREADABLE
from schemas.source import SourceSettings

ENCODING = "line.encoding.invalid"
CONTROL = "line.character.control"
UNTERMINATED = "line.quote.unterminated"
BARE_QUOTE = "line.quote.bare"
TOO_FEW = "line.fields.too_few"
TOO_MANY = "line.fields.too_many"
EMPTY = "line.fields.empty"
TOO_SHORT = "line.length.short"
TOO_LONG = "line.length.long"
SIZES = (TOO_FEW, TOO_MANY, TOO_SHORT, TOO_LONG)  # a line of the wrong size

ILLEGAL = r"[\x00\x1a\r]"
WIDE = 500  # fields; polars compiles no regex of many more
RECORD = "record"  # the whole line of a fixed-width extract, where its columns have no names
LONGEST_RECORD = 100  # physical lines one record may span


# before the fault of a line that says itself why it is refused: no file can have it
_REFUSED = f"\x00{token_hex(8)}\x00"


class Fault(NamedTuple):
    """Why a line or record is refused: its reason code, and the wrong size or where it is wrong."""

    code: str
    found: str | None = None


def refused(fault: Fault) -> bytes:
    """Return a line that is refused with a fault."""
    return f"{_REFUSED}{fault.code}\x00{fault.found or ''}".encode()


def refusal(line: str) -> Fault | None:
    """Return the fault of a line that says itself why it is refused, None for any other."""
    if not line.startswith(_REFUSED):
        return None
    code, _, shape = line.removeprefix(_REFUSED).partition("\x00")
    return Fault(code, shape or None)


class Records:
    """Records of `fields` fields, quoted as in RFC 4180 or as the settings say.

    In fixed format they have one width, and each is one line.
    """

    def __init__(self, settings: SourceSettings, fields: int) -> None:
        self._delimiter = settings.delimiter
        self._fields = fields
        self._width = settings.width if settings.format == "fixed" else None
        self._short = settings.short_records
        marker = re.escape(self._delimiter)
        plain = rf'[^"{marker}\x00\x1a\r\n]*'
        formula = f'="{plain}"|' if settings.quoting == "excel" else ""
        field = rf'(?:"[^"\x00\x1a]*(?:""[^"\x00\x1a]*)*"|{formula}{plain})'
        following = marker + field
        self._whole = re.compile(rf"{field}(?:{following}){{{fields - 1}}}")
        self._following = re.compile(following)
        self._readable = re.compile(f"(?:{following})*")
        self._open = re.compile(rf'(?:{following})*{marker}"[^"]*(?:""[^"]*)*')

    def holds(self, lines: pl.Series, quoted: bool) -> pl.Series:
        """Return which lines are records with content.

        Where nothing is `quoted`, it is enough to count what they have.
        """
        has_content = lines.str.contains(self._content())
        if not quoted:
            return has_content & ~lines.str.contains(ILLEGAL) & self._has_its_size(lines)
        if self._fields <= WIDE:
            return has_content & lines.str.contains(f"^{self._whole.pattern}$")
        matches = [self._whole.fullmatch(line) is not None for line in lines]
        return has_content & pl.Series(matches, dtype=pl.Boolean)

    def _content(self) -> str:
        """Return the regex of a character that is content."""
        if self._width is not None:
            return r"\S"
        return rf'[^{re.escape(self._delimiter)}\s"]'

    def _has_its_size(self, lines: pl.Series) -> pl.Series:
        """Return which lines without quotes have as many fields, or characters, as a record."""
        if self._width is not None:
            size = lines.str.len_chars()
            return size <= self._width if self._short else size == self._width
        return lines.str.count_matches(self._delimiter, literal=True) == self._fields - 1

    def joins(self, lines: Sequence[str]) -> bool:
        """Return whether these lines are one record with line breaks inside its quotes.

        False if the quoted text has as many delimiters as a record: two stray quotes must not
        swallow rows.
        """
        text = "\n".join(lines)
        inside = text.count(self._delimiter) - (self._fields - 1)
        return inside < self._fields - 1 and self._whole.fullmatch(text) is not None

    def is_record(self, line: str) -> bool:
        """Return whether a line is a record by itself."""
        if self._width is None:
            return self._whole.fullmatch(line) is not None
        fits = len(line) <= self._width if self._short else len(line) == self._width
        return fits and not re.search(ILLEGAL, line)

    def fault(self, line: str) -> str:
        """Return the reason code of the first field that cannot be read.

        Where all can be, that of their number, or of the width.
        """
        own_fault = refusal(line)
        if own_fault is not None:
            return own_fault.code
        if line == UNREADABLE.decode():
            return ENCODING
        if self._width is not None:
            return self._fault_of_width(line, self._width)
        fields = self._readable.match(self._delimiter + line)
        # every text matches, since a field may be empty
        assert fields is not None  # noqa: S101  tells mypy so
        unread = line[fields.end() - 1 :]
        if re.search(r"[\x00\x1a]", line) or unread.startswith("\r"):
            return CONTROL
        if not unread:
            return self._fault_of_number(line)
        return UNTERMINATED if self._open.fullmatch(self._delimiter + line) else BARE_QUOTE

    def _fault_of_width(self, line: str, width: int) -> str:
        if re.search(ILLEGAL, line):
            return CONTROL
        return TOO_SHORT if len(line) < width else TOO_LONG

    @property
    def expected(self) -> int:
        """The size of a record: its fields, or characters."""
        return self._fields if self._width is None else self._width

    @property
    def unit(self) -> str:
        """What a size counts."""
        return "fields" if self._width is None else "characters"

    def size(self, line: str) -> int:
        """Return the size of a line; with quotes, of one whose fields can all be read."""
        if self._width is not None:
            return len(line)
        return len(self._following.findall(self._delimiter + line))

    def _fault_of_number(self, line: str) -> str:
        fields = self.size(line)
        if fields == self._fields:
            return EMPTY
        return TOO_FEW if fields < self._fields else TOO_MANY
