"""The grammar of physical lines: which are records, which may begin one, what is wrong with others;
header and trailer.

It decides before a parser sees a line, because CSV parsers guess, pad, shift or merge without a
warning.
"""

import csv
import re
from collections.abc import Sequence

import polars as pl

from flows.extracts.decode import UNREADABLE
from flows.extracts.errors import HeaderError, MappingError, TrailerError
from schemas.issuer import SourceSettings

ENCODING = "line.encoding.invalid"
CONTROL = "line.character.control"
UNTERMINATED = "line.quote.unterminated"
TOO_FEW = "line.fields.too_few"
TOO_MANY = "line.fields.too_many"
TOO_SHORT = "line.length.short"

ILLEGAL = r"[\x00\x1a\r]"
WIDE = 500  # fields; polars compiles no regex of many more
MOST = 20_000  # columns
RECORD = "record"  # the only column of a fixed-width extract: the whole line
SEP = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_NUMBER = re.compile(r"[\s\d.,/+-]*\d[\s\d.,/+-]*")
_CARD_OR_MAIL = re.compile(r"\d[\d -]{4,}\d|@")
_AROUND = "\ufeff\u200b\u00a0 \t"
LONGEST_RECORD = 100  # physical lines one record may span


class Records:
    """Records of `fields` fields, quoted as in RFC 4180 or as the settings say; or of one width,
    each one line.
    """

    def __init__(self, settings: SourceSettings, fields: int) -> None:
        self._delimiter, self._fields = settings.delimiter, fields
        self._width = settings.width if settings.format == "fixed" else None
        marker = re.escape(self._delimiter)
        plain = rf'[^"{marker}\x00\x1a\r\n]*'
        formula = f'="{plain}"|' if settings.quoting == "excel" else ""
        field = rf'(?:"[^"\x00\x1a]*(?:""[^"\x00\x1a]*)*"|{formula}{plain})'
        record = rf"{field}(?:{marker}{field}){{{fields - 1}}}"
        following = marker + field
        self._whole = re.compile(record)
        self._one = re.compile(following)
        self._readable = re.compile(f"(?:{following})*")
        self._open = re.compile(rf'(?:{following})*{marker}"[^"]*(?:""[^"]*)*')

    def holds(self, lines: pl.Series, quoted: bool) -> pl.Series:
        """Return which lines are records with content; not `quoted`, it is enough to count what
        they have.
        """
        content = lines.str.contains(
            rf'[^{re.escape(self._delimiter)}\s"]' if self._width is None else r"\S"
        )
        if not quoted:
            if self._width is None:
                found, wanted = (
                    lines.str.count_matches(self._delimiter, literal=True),
                    self._fields - 1,
                )
            else:
                found, wanted = lines.str.len_chars(), self._width
            return content & ~lines.str.contains(ILLEGAL) & (found == wanted)
        if self._fields <= WIDE:
            return content & lines.str.contains(f"^{self._whole.pattern}$")
        return content & pl.Series(
            [self._whole.fullmatch(line) is not None for line in lines], dtype=pl.Boolean
        )

    def joins(self, lines: Sequence[str]) -> bool:
        """Return whether these lines are one record with line breaks inside its quotes.

        False if the quoted text has as many delimiters as a record: two stray quotes must not
        swallow rows.
        """
        text = "\n".join(lines)
        inside = text.count(self._delimiter) - (self._fields - 1)
        return inside < self._fields - 1 and self._whole.fullmatch(text) is not None

    def fault(self, line: str) -> str:
        """Return the reason code of the first field that cannot be read, else of their number, or
        of the width.
        """
        if line == UNREADABLE.decode():
            return ENCODING
        if self._width is not None:
            length = TOO_SHORT if len(line) < self._width else "line.length.long"
            return CONTROL if re.search(ILLEGAL, line) else length
        fields = self._readable.match(self._delimiter + line)
        assert fields is not None  # noqa: S101  for mypy: every text matches, since a field may be empty
        rest = line[fields.end() - 1 :]
        if re.search(r"[\x00\x1a]", line) or rest.startswith("\r"):
            return CONTROL
        if rest:
            return (
                UNTERMINATED if self._open.fullmatch(self._delimiter + line) else "line.quote.bare"
            )
        found = len(self._one.findall(self._delimiter + line))
        if found == self._fields:
            return "line.fields.empty"
        return TOO_FEW if found < self._fields else TOO_MANY


def is_sep_line(line: str, settings: SourceSettings, name: str) -> bool:
    """Return whether this is Excel's `sep=` line; raises HeaderError if it contradicts the
    settings.
    """
    found = SEP.fullmatch(line)
    if found and found[1] != settings.delimiter:
        problem = (
            f"its sep= line names the delimiter {found[1]!r}, the settings {settings.delimiter!r}"
        )
        raise HeaderError(name=name, problem=problem)
    return found is not None


def header_names(line: str, settings: SourceSettings, name: str) -> tuple[str, ...]:
    """Return the names in a header line; HeaderError, which shows nothing of it, where it looks
    like data.
    """
    fields = _fields(line, settings.delimiter, name)
    if any(_NUMBER.fullmatch(field) or _CARD_OR_MAIL.search(field) for field in fields):
        problem = (
            "it looks like a data row; an extract without a header needs header_rows = 0 and names"
        )
        raise HeaderError(name=name, problem=problem)
    if len(fields) < 2:
        best = max(",;\t|", key=line.count)
        hint = f"; with {best!r} it has {line.count(best) + 1}" if line.count(best) else ""
        problem = f"with the delimiter {settings.delimiter!r} it has only one column{hint}"
        raise HeaderError(name=name, problem=problem)
    names = [field.strip(_AROUND) or f"column_{at}" for at, field in enumerate(fields, 1)]
    # our frames have these two themselves
    names = [f"{name}_" if name in ("row", "line") else name for name in names]
    if len(names) > MOST:
        raise HeaderError(
            name=name, problem=f"it has {len(names):,} columns; the limit is {MOST:,}"
        )
    places: dict[str, int] = {}
    for at, found in enumerate(names, 1):
        if places.setdefault(found, at) < at:
            raise HeaderError(
                name=name, problem=f"columns {places[found]} and {at} have the same name"
            )
    return tuple(names)


def _fields(line: str, delimiter: str, name: str) -> list[str]:
    if "\r" in line:
        raise HeaderError(name=name, problem="its lines end in CR only; expected LF or CRLF")
    if "\x00" in line or "\x1a" in line:
        raise HeaderError(
            name=name, problem="it contains bytes that are not text in the encoding of the settings"
        )
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        pass  # our error is raised outside: the original may quote the content
    raise HeaderError(name=name, problem="its quotes are not paired")


def trailer_number(
    line: str, settings: SourceSettings, name: str, number: int, group: int = 1
) -> int:
    """Return the count in a trailer, its first group, or the hash total; TrailerError with the line
    number only.
    """
    digits, what = (12, "count") if group == 1 else (40, "hash total")
    found = re.search(settings.trailer or "", line)
    if not found or not re.fullmatch(rf"\s*[0-9]{{1,{digits}}}\s*", found[group] or ""):
        raise TrailerError(
            name=name, problem=f"line {number} has no {what} where the settings expect it"
        )
    return int(found[group])


class HashTotal:
    """The sum of a column's numbers beside the total in the trailer; neither leaves it: of one row,
    it is a card.
    """

    def __init__(self, settings: SourceSettings, header: Sequence[str], name: str) -> None:
        self._settings, self._name, self._digits = settings, name, settings.hash_total_digits
        self._sum, self._stated, place = 0, -1, settings.hash_total
        if isinstance(place, str) and place not in header:
            raise MappingError(name=name, problem=f"it has no column {place} for hash_total")
        first, last = place if isinstance(place, tuple) else (1, 0)
        self._cells = (
            pl.col(place)
            if isinstance(place, str)
            else pl.col(RECORD).str.slice(first - 1, last - first + 1)
        )

    def add(self, rows: pl.DataFrame) -> None:
        """Add the rows of a block, in halves of nine digits that no number of rows can overflow."""
        digits = self._cells.str.replace_all("[^0-9]", "").str.tail(self._digits)
        halves = {"high": digits.str.head(-9), "low": digits.str.tail(9)}
        sums = rows.select(
            half.cast(pl.UInt64, strict=False).sum().alias(name) for name, half in halves.items()
        )
        self._sum += sums["high"].item() * 10**9 + sums["low"].item()

    def take(self, line: str, number: int) -> None:
        """Take the total of the trailer; TrailerError where it has none."""
        self._stated = trailer_number(line, self._settings, self._name, number, group=2)

    def check(self, rows: int, unreadable: int) -> None:
        """Raise TrailerError unless sum and total are equal in their low-order digits, and every
        row was read.
        """
        if unreadable or (self._sum - self._stated) % 10**self._digits:
            problem = f"its hash total is not that of the {rows} rows, of which {unreadable} cannot be read"
            raise TrailerError(name=self._name, problem=problem)
