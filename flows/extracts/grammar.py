"""The grammar of one physical line: which lines are records, which may begin one, and what is wrong with the others.

It decides before a parser sees a line, because CSV parsers guess, pad, shift or merge without a warning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import polars as pl

from flows.extracts.decode import UNREADABLE

ENCODING = "line.encoding.invalid"
CONTROL = "line.character.control"
UNTERMINATED = "line.quote.unterminated"
BARE_QUOTE = "line.quote.bare"
TOO_FEW = "line.fields.too_few"
TOO_MANY = "line.fields.too_many"
NO_CONTENT = "line.fields.empty"
TOO_SHORT = "line.length.short"
TOO_LONG = "line.length.long"

SHORTER = (TOO_FEW, TOO_SHORT)

WIDE = 500  # fields; polars compiles no regex of many more
LONGEST_RECORD = 100  # physical lines one record may span


class Delimited:
    """Records of `fields` fields between `delimiter`s, quoted as in RFC 4180; `excel`: or as `="text"`."""

    def __init__(self, delimiter: str, fields: int, *, excel: bool = False) -> None:
        self._delimiter = delimiter
        self._fields = fields
        marker = re.escape(delimiter)
        plain = rf'[^"{marker}\x00\x1a\r\n]*'
        formula = f'="{plain}"|' if excel else ""
        field = rf'(?:"[^"\x00\x1a]*(?:""[^"\x00\x1a]*)*"|{formula}{plain})'
        record = rf"{field}(?:{marker}{field}){{{fields - 1}}}"
        following = marker + field
        self._whole = re.compile(record)
        self._one = re.compile(following)
        self._readable = re.compile(f"(?:{following})*")
        self._open = re.compile(rf'(?:{following})*{marker}"[^"]*(?:""[^"]*)*')

    def holds(self, lines: pl.Series, quoted: bool) -> pl.Series:
        """Return which lines are records with content; not `quoted`, it is enough to count delimiters."""
        content = lines.str.contains(rf'[^{re.escape(self._delimiter)}\s"]')
        if quoted and self._fields <= WIDE:
            return content & lines.str.contains(f"^{self._whole.pattern}$")
        if quoted:
            return content & pl.Series([self._whole.fullmatch(line) is not None for line in lines], dtype=pl.Boolean)
        legal = ~lines.str.contains(r"[\x00\x1a\r]")
        return content & legal & (lines.str.count_matches(self._delimiter, literal=True) == self._fields - 1)

    def opens(self, line: str) -> bool:
        """Return whether a quoted field begins and is not closed, so that the record may continue in the next line."""
        return line.count('"') % 2 == 1

    def joins(self, lines: Sequence[str]) -> bool:
        """Return whether these lines are one record with line breaks inside its quotes.

        False if the quoted text has as many delimiters as a record: two stray quotes must not swallow rows.
        """
        text = "\n".join(lines)
        inside = text.count(self._delimiter) - (self._fields - 1)
        return inside < self._fields - 1 and self._whole.fullmatch(text) is not None

    def fault(self, line: str) -> str:
        """Return the reason code of the first field that cannot be read, else of the number of fields."""
        if line == UNREADABLE.decode():
            return ENCODING
        fields = self._readable.match(self._delimiter + line)
        assert fields is not None  # noqa: S101  for mypy: every text matches, since a field may be empty
        rest = line[fields.end() - 1 :]
        if re.search(r"[\x00\x1a]", line) or rest.startswith("\r"):
            return CONTROL
        if rest:
            return UNTERMINATED if self._open.fullmatch(self._delimiter + line) else BARE_QUOTE
        found = len(self._one.findall(self._delimiter + line))
        if found == self._fields:
            return NO_CONTENT
        return TOO_FEW if found < self._fields else TOO_MANY


class Fixed:
    """Records of exactly `width` characters, each one line."""

    def __init__(self, width: int) -> None:
        self._width = width

    def holds(self, lines: pl.Series, quoted: bool) -> pl.Series:
        """Return which lines have the width and are not blank; quotes have no meaning here."""
        legal = ~lines.str.contains(r"[\x00\x1a\r]") & lines.str.contains(r"\S")
        return legal & (lines.str.len_chars() == self._width)

    def opens(self, line: str) -> bool:
        """Return False."""
        return False

    def joins(self, lines: Sequence[str]) -> bool:
        """Return False."""
        return False

    def fault(self, line: str) -> str:
        """Return what is wrong: an illegal character, else the width."""
        if line == UNREADABLE.decode():
            return ENCODING
        if re.search(r"[\x00\x1a\r]", line):
            return CONTROL
        return TOO_SHORT if len(line) < self._width else TOO_LONG


Grammar = Delimited | Fixed


def joined_records(grammar: Grammar, lines: pl.Series, suspects: Sequence[int]) -> list[tuple[int, int]]:
    """Return the spans (first, last) of lines that are one record together.

    `suspects` are the positions of lines that are not a record by themselves. A record ends at the first line that
    closes its quotes, so each opening line has one candidate, and a stray quote never consumes the file.
    """
    odd = [at for at in suspects if grammar.opens(lines[at])]
    spans: list[tuple[int, int]] = []
    end = -1
    for first, last in pairwise(odd):
        if first > end and last - first < LONGEST_RECORD and grammar.joins(lines[first : last + 1].to_list()):
            spans.append((first, last))
            end = last
    return spans


def open_record(grammar: Grammar, lines: pl.Series, suspects: Sequence[int], end: int) -> int | None:
    """Return the position after `end` of a line whose record may continue beyond these lines, else None."""
    for at in reversed(suspects):
        if at <= end or lines.len() - at >= LONGEST_RECORD:
            return None
        if grammar.opens(lines[at]):
            return at
    return None
