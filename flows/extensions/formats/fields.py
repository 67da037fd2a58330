"""The fields of records as text: character fields, zoned, packed and binary numbers.

All fields of all records of a block are read at once. A number keeps its zeros: PIC 9(5) gives
02108. Blanks or zero bytes alone, as in a field that nobody filled, give nothing.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from flows.extensions.formats.code_pages import BLANK, EBCDIC, LINE_END, controls, decoded
from flows.extensions.formats.framing import Bytes, Places
from flows.extensions.formats.record_layout import Field
from flows.extracts import grammar
from schemas.expressions import UNREADABLE

NUMBER: Final = "record.number.invalid"
NO_FIELD: Final = -1
_NEGATIVE: Final = (0xB, 0xD)  # the signs of packed and zoned numbers; all others are positive
_NO_DIGIT: Final = 255
_LINE: Final = "line"

Mask = npt.NDArray[np.bool_]


class Numbers(NamedTuple):
    """What was read of a number field: its digits, and which are negative, blank or wrong."""

    digits: Bytes
    negative: Mask
    blank: Mask
    wrong: Mask


class Cells(NamedTuple):
    """The fields of some records as text, null where one is empty.

    Of each record the first field that cannot be read, as its place among the fields, or NO_FIELD.
    """

    rows: pl.DataFrame
    wrong: npt.NDArray[np.int64]


class Alphabet(NamedTuple):
    """The bytes with which an encoding writes what numbers are made of."""

    zero: int
    blank: int
    point: int
    minus: int
    line_end: int


_OF_EBCDIC: Final = Alphabet(0xF0, BLANK, 0x4B, 0x60, LINE_END)
_OF_ASCII: Final = Alphabet(*b"0 .-\n")


def alphabet(encoding: str) -> Alphabet:
    """Return the bytes of an encoding for digits, blank, point, minus and line end."""
    return _OF_EBCDIC if encoding in EBCDIC else _OF_ASCII


def column_name(name: str) -> str:
    """Return the name of a field as a column; our frames have `row` and `line` themselves."""
    return f"{name}_" if name.lower() in ("row", "line") else name


class FieldReader:
    """Reads the same fields of many records."""

    def __init__(self, fields: Sequence[Field], encoding: str, *, short: bool) -> None:
        self.fields = tuple(field for field in fields if field.kind != "opaque")
        self._encoding = encoding
        self._short = short  # characters at the end may be missing
        self._alphabet = alphabet(encoding)
        self._is_control = np.zeros(256, np.bool_)
        self._is_control[list(controls("ascii" if encoding == "utf-8" else encoding))] = True
        self._is_control[0] = False  # judged apart: it fills fields
        widths = map(_width, self.fields)
        self._ends = list(accumulate(widths))

    def read(self, records: Bytes, lengths: Places) -> Cells:
        """Return the fields of records, of which each is so long, by rows."""
        count = len(records)
        letters = self._alphabet
        width = self._ends[-1] if self._ends else 0
        line = np.full((count, width + 1), letters.blank, np.uint8)
        line[:, width] = letters.line_end
        wrong = np.full(count, NO_FIELD, np.int64)
        unreadable: dict[str, Mask] = {}
        start = 0
        for place, (field, end) in enumerate(zip(self.fields, self._ends, strict=True)):
            bad = self._write(field, records, lengths, line[:, start:end])
            start = end
            if not bad.any():
                continue
            if field.shared:
                unreadable[field.name] = bad
            else:
                wrong[bad & (wrong == NO_FIELD)] = place
        return Cells(self._as_rows(line, unreadable), wrong)

    def _write(self, field: Field, records: Bytes, lengths: Places, line: Bytes) -> Mask:
        """Write a field of all records as text; return in which of them it cannot be read."""
        present = lengths >= field.end
        whole = bool(present.all())
        raw = records[:, field.start : field.end]
        if field.kind == "text":
            bad = self._write_text(raw, line)
            may_be_cut = self._short
        else:
            numbers = _READERS[field.kind](raw, field, self._alphabet)
            self._write_number(field, numbers, line)
            bad = numbers.wrong
            may_be_cut = False
        if whole:
            return bad
        is_absent = lengths <= field.start
        is_cut = ~present & ~is_absent
        if may_be_cut:
            return bad & ~is_absent
        line[is_absent | is_cut] = self._alphabet.blank
        return (bad & present) | is_cut

    def _write_text(self, raw: Bytes, line: Bytes) -> Mask:
        line[:] = raw
        bad: Mask = np.asarray(self._is_control[raw].any(axis=1))
        is_zero = raw == 0
        if is_zero.any():
            # zero bytes at the end fill a field; others are no text
            filling = np.logical_and.accumulate(is_zero[:, ::-1], axis=1)[:, ::-1]
            line[filling] = self._alphabet.blank
            bad |= (is_zero & ~filling).any(axis=1)
        if bad.any():
            line[bad] = self._alphabet.blank
        return bad

    def _write_number(self, field: Field, numbers: Numbers, line: Bytes) -> None:
        letters = self._alphabet
        written = numbers.digits + np.uint8(letters.zero)
        whole = field.digits - field.decimals
        begin = 1 if field.signed else 0
        if field.signed:
            line[numbers.negative, 0] = letters.minus
        if field.decimals:
            if not whole:
                line[:, begin] = letters.zero
            point = begin + max(whole, 1)
            line[:, point] = letters.point
            line[:, begin : begin + whole] = written[:, :whole]
            line[:, point + 1 :] = written[:, whole:]
        else:
            line[:, begin:] = written
        nothing = numbers.blank | numbers.wrong
        if nothing.any():
            line[nothing] = letters.blank

    def _as_rows(self, line: Bytes, unreadable: dict[str, Mask]) -> pl.DataFrame:
        names = [field.name for field in self.fields]
        if not len(line):
            return pl.DataFrame(schema=dict.fromkeys(names, pl.String))
        if self._encoding == "utf-8":
            text = line.tobytes()
        else:
            text = decoded(line.tobytes(), self._encoding).encode()
        lines = pl.read_lines(text, name=_LINE)
        starts = [0, *self._ends]
        cells = []
        for name, start, end in zip(names, starts, self._ends, strict=False):
            cell = pl.col(_LINE).str.slice(start, end - start).str.strip_chars(" ")
            cell = pl.when(cell != "").then(cell)
            if name in unreadable:
                cell = pl.when(pl.Series(unreadable[name])).then(pl.lit(UNREADABLE)).otherwise(cell)
            cells.append(cell.alias(name))
        return lines.select(cells)

    def fault(self, place: int) -> str:
        """Return the reason code of a field that cannot be read."""
        return grammar.CONTROL if self.fields[place].kind == "text" else NUMBER


def _width(field: Field) -> int:
    """Return how many characters a field has at most as text."""
    if field.kind == "text":
        return field.size
    whole = max(field.digits - field.decimals, 1) if field.decimals else field.digits
    return field.signed + whole + (field.decimals + 1 if field.decimals else 0)


def _is_blank(raw: Bytes, letters: Alphabet) -> Mask:
    """Return in which records nobody filled a field."""
    blank: Mask = (raw == letters.blank).all(axis=1) | (raw == 0).all(axis=1)
    return blank


def _zoned(raw: Bytes, field: Field, letters: Alphabet) -> Numbers:
    blank = _is_blank(raw, letters)
    negative: Mask = np.zeros(len(raw), np.bool_)
    wrong: Mask = np.zeros(len(raw), np.bool_)
    places = raw
    if field.signed:
        is_leading = "leading" in field.sign
        sign = raw[:, 0 if is_leading else -1]
        if "separate" in field.sign:
            negative = sign == letters.minus
            wrong = ~negative & (sign != _plus(letters))
            places = raw[:, 1:] if is_leading else raw[:, :-1]
        else:
            places = raw.copy()
            digit, negative = _overpunched(sign, letters)
            wrong = digit == _NO_DIGIT
            places[:, 0 if is_leading else -1] = digit + np.uint8(letters.zero)
    digits = places - np.uint8(letters.zero)  # what is below zero becomes large
    wrong = (wrong | (digits > 9).any(axis=1)) & ~blank
    return Numbers(digits, negative & ~blank, blank, wrong)


def _plus(letters: Alphabet) -> int:
    return 0x4E if letters.zero == 0xF0 else ord("+")


def _overpunched(sign: Bytes, letters: Alphabet) -> tuple[Bytes, Mask]:
    """Return digit and sign of places that hold both; _NO_DIGIT for what is neither."""
    digits = np.full(256, _NO_DIGIT, np.uint8)
    negative = np.zeros(256, np.bool_)
    if letters.zero == 0xF0:
        for zone in range(0xA, 0x10):
            digits[zone * 16 : zone * 16 + 10] = range(10)
            negative[zone * 16 : zone * 16 + 10] = zone in _NEGATIVE
    else:  # as after a translation from EBCDIC, and as COBOL on ASCII machines writes them
        for texts, is_negative in (
            (b"0123456789", False),
            (b"{ABCDEFGHI", False),
            (b"}JKLMNOPQR", True),
            (b"pqrstuvwxy", True),
        ):
            digits[list(texts)] = range(10)
            negative[list(texts)] = is_negative
    return digits[sign], negative[sign]


def _packed(raw: Bytes, field: Field, letters: Alphabet) -> Numbers:
    blank = _is_blank(raw, letters)
    halves = np.empty((len(raw), 2 * raw.shape[1]), np.uint8)
    halves[:, 0::2] = raw >> 4
    halves[:, 1::2] = raw & 0xF
    sign = halves[:, -1]
    digits = halves[:, -1 - field.digits : -1]
    negative: Mask = np.isin(sign, _NEGATIVE)
    wrong = (halves[:, :-1] > 9).any(axis=1) | (sign < 10)
    wrong |= (halves[:, : -1 - field.digits] != 0).any(axis=1)  # half a byte too many
    if not field.signed:
        wrong |= negative
    return Numbers(digits, negative & ~blank, blank, wrong & ~blank)


def _binary(raw: Bytes, field: Field, letters: Alphabet) -> Numbers:
    is_little = field.kind == "native" and letters.zero != 0xF0
    order = "<" if is_little else ">"
    kind = "i" if field.signed else "u"
    values = np.ascontiguousarray(raw).view(f"{order}{kind}{field.size}")[:, 0]
    limit = 10**field.digits
    wrong = values >= limit
    negative: Mask = np.zeros(len(raw), np.bool_)
    if field.signed:
        negative = values < 0
        wrong |= values <= -limit
    amounts = np.where(wrong, 0, np.abs(values.astype(np.int64)) if field.signed else values)
    digits = np.empty((len(raw), field.digits), np.uint8)
    for place in range(field.digits - 1, -1, -1):
        digits[:, place] = amounts % 10
        amounts = amounts // 10
    nobody: Mask = np.zeros(len(raw), np.bool_)
    return Numbers(digits, negative, nobody, wrong)


_READERS: Final[dict[str, Callable[[Bytes, Field, Alphabet], Numbers]]] = {
    "zoned": _zoned,
    "packed": _packed,
    "binary": _binary,
    "native": _binary,
}
