"""Lines of a result file to its header and its records, whatever the dialect and the damage."""

import csv
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flows.results import opening
from schemas import result as spec

DELIMITERS = (",", ";", "\t", "|")
HEAD = 20  # lines searched for the header: comments and `sep=` may precede it


class ResultHeader(NamedTuple):
    """The header of a result file: its delimiter, where each known column is, its width."""

    delimiter: str
    places: dict[str, int]
    width: int


def find_header(line: str) -> ResultHeader | None:
    """Find the delimiter that makes `line` the header of a result.

    A header has an error column, and a cuid or a url.
    """
    for delimiter in DELIMITERS:
        cells = next(csv.reader([line], delimiter=delimiter), [])
        if len(cells) > opening.COLUMNS:
            continue
        places = _places_of([re.sub(r"[^a-z0-9]", "", cell.lower()) for cell in cells])
        if spec.ERROR in places and (spec.CUID in places or spec.URL in places):
            return ResultHeader(delimiter, places, len(cells))
    return None


def _places_of(names: list[str]) -> dict[str, int]:
    """Return the place of each known column that one of these names spells."""
    places = dict[str, int]()
    for column, spellings in spec.SPELLINGS.items():
        known = [spelling for spelling in spellings if spelling in names]
        if known:
            places[column] = names.index(known[0])
    return places


def first_header(lines: Sequence[str]) -> tuple[int, ResultHeader] | None:
    """Return the number of the line that is the header, and the header; None where none is."""
    for number, line in enumerate(lines[:HEAD]):
        header = find_header(line) if len(line) <= opening.HEADER else None
        if header is not None:
            return number, header
    return None


class Records(NamedTuple):
    """The records of a file, and a problem code for each place where one is damaged."""

    records: list[list[str]]
    problems: list[str]


def read_records(lines: list[str], header: ResultHeader) -> Records:
    """Read the records with doubled quotes, or with backslashes where that gives fewer problems."""
    whole_lines = _whole_lines(lines, header)
    if whole_lines is not None:
        return Records(whole_lines, [])
    doubled = _split(lines, header, None)
    if not doubled.problems or not any('\\"' in line for line in lines):
        return doubled
    escaped = _split(lines, header, "\\")
    return min(doubled, escaped, key=lambda split: len(split.problems))


def _whole_lines(lines: list[str], header: ResultHeader) -> list[list[str]] | None:
    """Return the records where each line is one of the header's width, as most often; else None.

    Nothing is damaged then, so that no record has to be looked at by itself.
    """
    reader = csv.reader(lines, delimiter=header.delimiter, strict=True)
    try:
        records = list(reader)
    except csv.Error:
        return None
    is_whole = len(records) == len(lines) and {header.width}.issuperset(map(len, records))
    return records if is_whole else None


def _split(lines: list[str], header: ResultHeader, escape: str | None) -> Records:
    """Split lines into records; a quote that never closes spoils only its own line."""
    records: list[list[str]] = []
    problems: list[str] = []
    start = 0
    lines_left = opening.READINGS * (len(lines) + opening.LINES // 100)
    while start < len(lines):
        # a slice would copy, an islice skip, all before it
        remaining = map(lines.__getitem__, range(start, len(lines)))
        stretch = _well_formed(remaining, header, escape, records)
        lines_left -= stretch.read
        if lines_left < 0:
            raise opening.RefusedError(opening.WORK)
        if not stretch.problem:
            break
        problems.append(stretch.problem)
        _append(records, _lone_record(lines[start + stretch.used], header))
        start += stretch.used + 1
    problems += [opening.RAGGED for record in records if len(record) != header.width]
    if _is_cut(lines, records, header):
        problems.append(opening.TRUNCATED)
    return Records(records, problems)


def _is_cut(lines: list[str], records: list[list[str]], header: ResultHeader) -> bool:
    """Return whether the last line ends in the middle of a record."""
    if not records or lines[-1].endswith(("\r", "\n")):
        return False
    return len(records[-1]) < header.width


def ends_with_url(lines: Sequence[str], header: ResultHeader) -> bool:
    """Return whether the last line has no end and its last cell is a URL that nothing closes."""
    is_last_column = header.places.get(spec.URL) == header.width - 1
    return is_last_column and not lines[-1].endswith(("\r", "\n", '"'))


def _lone_record(line: str, header: ResultHeader) -> list[str]:
    """Return the record of a line whose quotes are not paired."""
    # the quotes of an unquoted error object
    bare = f"{header.delimiter}{{" in line or f"{header.delimiter}[" in line
    lines = [line.rstrip("\r\n")]
    if bare:
        reader = csv.reader(lines, delimiter=header.delimiter, quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(lines, delimiter=header.delimiter)
    return next(reader, [])


def _append(records: list[list[str]], record: list[str]) -> None:
    if len(record) > opening.COLUMNS:
        raise opening.RefusedError(opening.COLUMNS_MANY)
    records.append(record)


class Stretch(NamedTuple):
    """Lines that are well formed: how many were used, how many were read, what stopped it."""

    used: int
    read: int
    problem: str = ""


def _well_formed(
    lines: Iterator[str], header: ResultHeader, escape: str | None, records: list[list[str]]
) -> Stretch:
    """Append records while they are well formed."""
    reader = csv.reader(
        lines,
        delimiter=header.delimiter,
        doublequote=escape is None,
        escapechar=escape,
        strict=True,
    )
    used = 0
    try:
        for record in reader:
            if reader.line_num - used > 1 and len(record) != header.width:
                # an open quote swallowed the next lines
                return Stretch(used, reader.line_num, opening.QUOTING)
            used = reader.line_num
            if record and (len(record) > 1 or record[0].strip()):
                _append(records, record)
    except csv.Error as error:
        is_cut = "end of data" in str(error)
        return Stretch(used, reader.line_num, opening.TRUNCATED if is_cut else opening.QUOTING)
    return Stretch(used, reader.line_num)


def fit(record: list[str], header: ResultHeader) -> list[str]:
    """Give a record the header's width.

    An unquoted error object is joined again; the url of a row that was cut is dropped.
    """
    cells = list(record)
    while len(cells) > header.width and not cells[-1].strip():
        cells.pop()
    surplus = len(cells) - header.width
    if surplus > 0:
        start = header.places[spec.ERROR]
        end = start + surplus + 1
        cells[start:end] = [header.delimiter.join(cells[start:end])]
    elif surplus < 0:
        cells += [""] * -surplus
        if spec.URL in header.places:  # half a link is no link
            cells[header.places[spec.URL]] = ""
    return cells
