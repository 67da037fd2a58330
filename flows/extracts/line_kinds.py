"""What each physical line of an extract is, by the grammar and the settings: of a record or not."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from flows.extracts import grammar
from flows.extracts.grammar import Fault
from schemas.source import SourceSettings

Kinds = npt.NDArray[np.uint8]


class Kind(IntEnum):
    """What a physical line is; RECORD and REFUSED begin a row and have a row number."""

    RECORD = 0
    REFUSED = 1
    CONTINUES = 2  # the record of an earlier line
    BLANK = 3
    COMMENT = 4
    REPEATED_HEADER = 5
    TRAILER = 6
    HEADER = 7


def set_aside(kinds: Mapping[Kind, int]) -> dict[str, int]:
    """Return how many lines are no rows, by kind (`manifest.ASIDE`), without kinds of none."""
    lines = {
        "header": kinds[Kind.HEADER] + kinds[Kind.REPEATED_HEADER],
        "comment": kinds[Kind.COMMENT],
        "blank": kinds[Kind.BLANK],
        "trailer": kinds[Kind.TRAILER],
        "continued": kinds[Kind.CONTINUES],
    }
    return {kind: number for kind, number in lines.items() if number}


def height(counts: Mapping[Kind, int]) -> int:
    """Return how many of the counted lines begin a row, refused ones included."""
    return counts[Kind.RECORD] + counts[Kind.REFUSED]


def numbered(kinds: Kinds, counts: Counter[Kind]) -> pl.DataFrame:
    """Return row and line of each line that begins a row, behind those counted; count all lines."""
    first = np.uint32(counts.total() + 1)
    lines = np.flatnonzero(kinds <= Kind.REFUSED).astype(np.uint32) + first
    first_row = height(counts) + 1
    rows = np.arange(first_row, first_row + lines.size, dtype=np.uint32)
    times = np.bincount(kinds, minlength=len(Kind)).tolist()
    counts.update(dict(zip(Kind, times, strict=True)))
    return pl.DataFrame({"row": rows, "line": lines})


def with_faults(numbers: pl.DataFrame, faults: Iterable[Fault]) -> pl.DataFrame:
    """Return row and line of refused records with the `code` and `found` of the fault of each."""
    columns = {"code": pl.String, "found": pl.String}
    return numbers.hstack(pl.DataFrame(list(faults), schema=columns, orient="row"))


class LineKinds:
    """Says what the lines of an extract are that has `fields` fields under a header line."""

    def __init__(self, settings: SourceSettings, header: str, fields: int) -> None:
        self._settings = settings
        self._header = header
        self._grammar = grammar.Records(settings, fields)

    def of(self, lines: pl.Series, quoted: bool, last: bool) -> Kinds:
        """Return the kind of each line by itself."""
        settings = self._settings
        holds = self._grammar.holds(lines, quoted).to_numpy()
        kinds: Kinds = np.where(holds, Kind.RECORD, Kind.REFUSED).astype(np.uint8)
        if self._header:
            kinds[(lines == self._header).to_numpy()] = Kind.REPEATED_HEADER
        if settings.comment_form is not None:
            kinds[lines.str.contains(settings.comment_form).to_numpy()] = Kind.COMMENT
        if settings.trailer is not None:
            kinds[lines.str.contains(settings.trailer).to_numpy()] = Kind.TRAILER
        for place, line in self._refused(lines, kinds):
            # Ctrl-Z, the end of file in DOS
            ends_dos = last and place == len(kinds) - 1 and line == "\x1a"
            if ends_dos or not line.strip():
                kinds[place] = Kind.BLANK
        return kinds

    def join(self, lines: pl.Series, kinds: Kinds, last: bool) -> int:
        """Mark the records that span lines; return how many lines need nothing of the next block.

        A record ends at the first line that closes its quotes, so each opening line has one
        candidate, and a stray quote never consumes the file.
        """
        odd = _with_odd_quotes(lines, kinds)
        end = -1  # of the last record that was joined
        for first, closing in pairwise(odd):
            if first <= end or closing - first >= grammar.LONGEST_RECORD:
                continue
            if self._grammar.joins(lines[first : closing + 1].to_list()):
                kinds[first] = Kind.RECORD
                kinds[first + 1 : closing + 1] = Kind.CONTINUES
                end = closing
        is_open = not last and bool(odd) and odd[-1] > end
        if is_open and len(kinds) - odd[-1] < grammar.LONGEST_RECORD:
            return odd[-1]
        return len(kinds)

    def close(self, lines: pl.Series, kinds: Kinds) -> pl.Series:
        """Return the lines of a file whose lines end in a delimiter, with those that lack it."""
        delimiter = self._settings.delimiter
        closed = {
            place: line + delimiter
            for place, line in self._refused(lines, kinds)
            if not line.endswith(delimiter) and self._grammar.is_record(line + delimiter)
        }
        if not closed:
            return lines
        kinds[list(closed)] = Kind.RECORD
        return pl.Series([closed.get(place, line) for place, line in enumerate(lines)])

    def end_of_rows(self, lines: pl.Series, kinds: Kinds, last: bool) -> int:
        """Return where the rows end: behind them are at most lines of nothing but delimiters.

        At the end of an extract, where a spreadsheet leaves them, these are blank lines.
        """
        end = len(kinds)
        for place in reversed(range(len(kinds))):
            if kinds[place] > Kind.REFUSED:
                continue
            if kinds[place] == Kind.RECORD or self.fault(lines[place]) != grammar.EMPTY:
                break
            if last:
                kinds[place] = Kind.BLANK
            else:
                end = place
        return end

    def _refused(self, lines: pl.Series, kinds: Kinds) -> Iterator[tuple[int, str]]:
        for place in np.flatnonzero(kinds == Kind.REFUSED).tolist():
            yield place, lines[place]

    def faults(self, lines: pl.Series, kinds: Kinds) -> dict[int, Fault]:
        """Return the faults of the refused lines, by their places in the block, from 0."""
        return {place: self._fault_of(line) for place, line in self._refused(lines, kinds)}

    def _fault_of(self, line: str) -> Fault:
        own_fault = grammar.refusal(line)
        if own_fault is not None:
            return own_fault
        code = self.fault(line)
        if code not in grammar.SIZES:
            return Fault(code)
        size = self._grammar.size(line)
        return Fault(code, f"{size} {self._grammar.unit}")

    @property
    def expected_size(self) -> int:
        """The size of a record: its fields, or in fixed format its characters."""
        return self._grammar.expected

    def fault(self, line: str) -> str:
        """Return the reason code of a refused line."""
        return self._grammar.fault(line)

    def cut_off(
        self, lines: pl.Series, kinds: Kinds, faults: Mapping[int, Fault], first: int
    ) -> str:
        """Return why the last record of these lines seems to be cut off, "" where it does not.

        `first`: the number of the first line.
        """
        is_whole = (kinds == Kind.RECORD) | (kinds == Kind.CONTINUES)
        last_whole = np.flatnonzero(is_whole).max(initial=-1)
        tail = [place for place in faults if place > last_whole]
        for place in tail[-grammar.LONGEST_RECORD :]:
            if faults[place].code == grammar.UNTERMINATED and self._stays_open(lines[place:]):
                return f"its last record, line {first + place}, ends inside quotes"
        if not tail or faults[tail[-1]].code not in (grammar.TOO_FEW, grammar.TOO_SHORT):
            return ""
        size = self._grammar.size(lines[tail[-1]])
        expected = f"{self._grammar.expected} {self._grammar.unit}"
        return f"its last record, line {first + tail[-1]}, has {size} instead of {expected}"

    def _stays_open(self, lines: pl.Series) -> bool:
        """Return whether the quotes that the first of these lines opens are not closed by any."""
        return self.fault("\n".join(lines)) == grammar.UNTERMINATED


def _with_odd_quotes(lines: pl.Series, kinds: Kinds) -> list[int]:
    """Return the places of refused lines that open or close a field across lines."""
    refused = np.flatnonzero(kinds == Kind.REFUSED).tolist()
    return [place for place in refused if lines[place].count('"') % 2]
