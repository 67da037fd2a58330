"""The grammar of one physical line: which lines are records, which could begin one, and what is wrong with the rest.

It decides before any parser sees a line: CSV parsers guess, pad, shift or merge, and do not say so.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

import polars as pl

ENCODING = "line.encoding.invalid"
CONTROL = "line.character.control"
UNTERMINATED = "line.quote.unterminated"
BARE_QUOTE = "line.quote.bare"
TOO_FEW = "line.fields.too_few"
TOO_MANY = "line.fields.too_many"
NO_CONTENT = "line.fields.empty"
TOO_SHORT = "line.length.short"
TOO_LONG = "line.length.long"
CUT_OFF = "line.end.missing"

UNREADABLE = "\x00"  # a whole line that was not in the encoding: no record can look like it
LONGEST_RECORD = 100  # physical lines one record may span


class Delimited(NamedTuple):
    """Records of `fields` fields between `delimiter`s, quoted as in RFC 4180."""

    delimiter: str
    fields: int

    @property
    def _field(self) -> str:
        return rf'(?:"(?:[^"\x00\x1a]|"")*"|[^"{re.escape(self.delimiter)}\x00\x1a\r\n]*)'

    @property
    def _record(self) -> str:
        return rf"{self._field}(?:{re.escape(self.delimiter)}{self._field}){{{self.fields - 1}}}"

    def holds(self, lines: pl.Series, quoted: bool) -> pl.Series:
        """Return which lines are a whole record with content; without any quote counting delimiters is enough."""
        content = lines.str.contains(rf'[^{re.escape(self.delimiter)}\s"]')
        if quoted:
            return content & lines.str.contains(f"^{self._record}$")
        legal = ~lines.str.contains(r"[\x00\x1a\r]")
        return content & legal & (lines.str.count_matches(self.delimiter, literal=True) == self.fields - 1)

    def opens(self, line: str) -> bool:
        """Return whether a record could go on in the next line: a quoted field begins and does not end."""
        return line.count('"') % 2 == 1

    def joins(self, lines: list[str]) -> bool:
        """Return whether these lines are one record with newlines inside its quotes.

        Not where the quoted text is as wide as a record: then two stray quotes would swallow rows between them.
        """
        text = "\n".join(lines)
        inside = text.count(self.delimiter) - (self.fields - 1)
        return inside < self.fields - 1 and re.fullmatch(self._record, text) is not None

    def fault(self, line: str) -> str:
        """Return the code of what is wrong with a line that is no record."""
        if re.search(r"[\x00\x1a]", line):
            return ENCODING if line == UNREADABLE else CONTROL
        found = re.match(rf"{self._field}(?:{re.escape(self.delimiter)}{self._field})*", line)
        rest = line[found.end() :] if found else line
        if rest.startswith("\r"):
            return CONTROL
        if rest:
            return UNTERMINATED if self._ends_open(line) else BARE_QUOTE
        fields = len(re.findall(rf"{re.escape(self.delimiter)}{self._field}", f"{self.delimiter}{line}"))
        if fields == self.fields:
            return NO_CONTENT
        return TOO_FEW if fields < self.fields else TOO_MANY

    def _ends_open(self, line: str) -> bool:
        delimiter = re.escape(self.delimiter)
        return re.fullmatch(rf'(?:{self._field}{delimiter})*"(?:[^"]|"")*', line) is not None


class Fixed(NamedTuple):
    """Records of exactly `width` characters."""

    width: int

    def holds(self, lines: pl.Series, quoted: bool) -> pl.Series:
        """Return which lines are a whole record with content."""
        legal = ~lines.str.contains(r"[\x00\x1a\r]") & lines.str.contains(r"\S")
        return legal & (lines.str.len_chars() == self.width)

    def opens(self, line: str) -> bool:
        """Return False: a record is one line."""
        return False

    def joins(self, lines: list[str]) -> bool:
        """Return False: a record is one line."""
        return False

    def fault(self, line: str) -> str:
        """Return the code of what is wrong with a line that is no record."""
        if re.search(r"[\x00\x1a\r]", line):
            return ENCODING if line == UNREADABLE else CONTROL
        if len(line) == self.width:
            return NO_CONTENT
        return TOO_SHORT if len(line) < self.width else TOO_LONG


Grammar = Delimited | Fixed


def joined_records(grammar: Grammar, lines: pl.Series, suspects: list[int]) -> list[tuple[int, int]]:
    """Return the spans (first, last) of lines that are one record together.

    `suspects` are the positions of lines that are no record alone. A record ends at the first line that
    closes its quotes, so each opening line has one candidate, and one stray quote never eats the file.
    """
    odd = [at for at in suspects if grammar.opens(lines[at])]
    spans: list[tuple[int, int]] = []
    end = -1
    for first, last in pairwise(odd):
        if first > end and last - first < LONGEST_RECORD and grammar.joins(lines[first : last + 1].to_list()):
            spans.append((first, last))
            end = last
    return spans
