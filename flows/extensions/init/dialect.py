"""How an extract is written, guessed from its lines: delimiter, quoting, header, trailer, width.

A sample of its columns goes with it.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import BinaryIO, NamedTuple

from flows.extensions.init.column_signs import are_headers
from flows.extensions.init.control_records import form_of, guess_trailer
from flows.extensions.init.fixed_width import field_spans
from flows.extensions.init.guess import Column, Guess, Sample, named_column
from flows.extensions.init.sample import CARD, Lines, read_lines, records
from flows.extracts.errors import EncodingError, HeaderError
from flows.extracts.header import SEP, header_names, otherwise_closed
from schemas.reference import toml
from schemas.source import SourceSettings

ABOVE = 12  # most lines above the data


class _Division(NamedTuple):
    """How a delimiter divides lines: most of them into so many fields. The larger is the better."""

    lines: int
    fields: int
    delimiter: str


class _Header(NamedTuple):
    """The names of the columns, none where no line has them, and the lines above header or data.

    `fields` are the names as the line has them, where one may be there twice.
    """

    names: tuple[str, ...]
    above: int
    fields: Sequence[str] = ()

    @property
    def first_row(self) -> int:
        """The index of the first line of data."""
        return self.above + bool(self.names)


def take_sample(stream: BinaryIO, name: str) -> Sample:
    """Read an extract, and find how it is written.

    Raises ExtractError where its lines are not rows of one kind.
    """
    try:
        lines = read_lines(stream, "utf-8", name)
    except EncodingError:
        stream.seek(0)
        lines = read_lines(stream, "utf-16", name)
    return _delimited(lines, name) or _fixed(lines, name)


def _delimited(lines: Lines, name: str) -> Sample | None:
    """Find delimiter, header and trailer; None where no delimiter divides most lines alike."""
    quoting = _quoting("\n".join(lines.sampled))
    division = _division(lines.sampled, quoting)
    if division is None:
        return None
    delimiter = division.delimiter
    header = _header(lines.sampled[:ABOVE], division, name)
    above = [line for line in lines.sampled[: header.above] if not SEP.match(line)]
    data = lines.sampled[header.first_row :]
    comment = _comment(above, data, header)
    trailer = guess_trailer(lines, lines.total - header.first_row - 1, delimiter)
    if comment and trailer and trailer.key == "comment":  # there is one setting for it
        trailer = None
    if trailer:
        data = data[:-1]
    numbered = (f"column_{place}" for place in range(1, division.fields + 1))
    names = header.names or tuple(numbered)
    rows = [row for row in records(data, delimiter, quoting) if len(row) == division.fields]
    divided = f"{division.lines:,} of {len(lines.sampled):,} lines into {division.fields} fields"
    guesses = [
        Guess("delimiter", toml(delimiter), f"it divides {divided}"),
        Guess("quoting", toml(quoting), "how cells with quotes are written"),
        *_header_guesses(header, names, above, comment),
        *_end_guesses(lines, trailer),
    ]
    columns = _columns(names, rows, header.fields)
    above = lines.sampled[: header.above]
    return Sample(guesses, columns, bool(header.names), lines.last, above)


def _quoting(text: str) -> str:
    if '="' in text:
        return "excel"
    return "backslash" if re.search(r'\\["N]', text) else "doubled"


def _division(lines: Sequence[str], quoting: str) -> _Division | None:
    """Return how the delimiter that divides most lines alike does so; at least half must be."""
    divisions = []
    for delimiter in ",;\t|":
        sizes = [len(fields) for fields in records(lines, delimiter, quoting)]
        likely = Counter(size for size in sizes if size > 2)
        for size, times in likely.most_common(1):
            if times >= 0.5 * len(lines):
                divisions.append(_Division(times, size, delimiter))
    return max(divisions, default=None)


def _header(lines: Sequence[str], division: _Division, name: str) -> _Header:
    """Find the first line as wide as the data: the header if it has names, data if it has a card.

    Raises HeaderError where there is neither, and where names above the data cannot be theirs.
    """
    problems: list[HeaderError] = []
    unusable: list[HeaderError] = []
    for above, line in enumerate(lines):
        fields = next(records([line], division.delimiter, ""), [])
        if len(fields) == division.fields and CARD.search(line):
            if unusable:
                raise unusable[0]
            return _Header((), above)
        try:
            names = _names(fields, lines[above:], division, name)
        except HeaderError as problem:
            problems.append(problem)
            if are_headers(fields):
                unusable.append(problem)
        else:
            if names:
                return _Header(names, above, fields)
    if problems:
        raise problems[0]
    raise HeaderError(name=name, problem="none of its first lines has column names")


def _names(
    fields: Sequence[str], lines: Sequence[str], division: _Division, name: str
) -> tuple[str, ...]:
    """Return the names in the first of these lines, () where it is none; HeaderError.

    It may end in a delimiter where the data does not, or the other way round.
    """
    header, *data = lines
    settings = SourceSettings.model_validate({"delimiter": division.delimiter})
    more = len(fields) - division.fields
    closed = sum(line.endswith(division.delimiter) for line in data)
    if more == 0 and sum(map(bool, fields)) >= 0.8 * division.fields:
        return header_names(header, settings, name)
    if (more == 1 and not fields[-1]) or (more == -1 and 2 * closed > len(data)):
        return otherwise_closed(header_names(header, settings, name))
    if more and are_headers(fields):
        problem = f"it names {len(fields)} columns, and most lines have {division.fields} fields"
        raise HeaderError(name=name, problem=problem)
    return ()


def _comment(above: Sequence[str], data: Sequence[str], header: _Header) -> str:
    """Return `comment` for the first line above header or data, "" where data is like it.

    It is a mark that lines begin with, or the form of a whole line, since a word may begin a row.
    """
    if not above:
        return ""
    mark = re.match(r"[#*!]" if header.names else r"[A-Za-z]{1,8}|[#*!]", above[0])
    if mark is None or any(line.startswith(mark[0]) for line in data):
        return ""
    return form_of(above[0], mark[0]) if mark[0].isalpha() else mark[0]


def _header_guesses(
    header: _Header, names: tuple[str, ...], above: Sequence[str], comment: str
) -> list[Guess]:
    if header.names:
        titles = [line for line in above if not (comment and line.startswith(comment))]
        reason = "the last of them has the names"
        guesses = [Guess("header_rows", str(len(titles) + 1), reason)]
    else:
        reason = "no line names the columns: call them what you like"
        guesses = [Guess("header_rows", "0", "none"), Guess("names", toml(names), reason)]
    if comment:
        guesses.append(Guess("comment", toml(comment), "lines like this are not rows"))
    return guesses


def _columns(
    names: Sequence[str], rows: Sequence[Sequence[str]], fields: Sequence[str]
) -> list[Column]:
    """Return the columns; those of a name that is there twice are told by that name."""
    times = Counter(fields)
    columns = []
    for place, (name, field) in enumerate(zip_longest(names, fields[: len(names)], fillvalue="")):
        values = tuple(row[place] for row in rows)
        short = field if times[field] > 1 else ""
        columns.append(named_column(name, values, short))
    return columns


def _fixed(lines: Lines, name: str) -> Sample:
    """Find width and fields of lines that are equally long.

    Raises HeaderError where no place has card numbers.
    """
    [(width, times)] = Counter(map(len, lines.sampled)).most_common(1) or [(0, 0)]
    data = _alike([line for line in lines.sampled if len(line) == width and CARD.search(line)])
    is_fixed = width > 30 and times > 0.9 * len(lines.sampled) - 2
    spans = field_spans(data) if is_fixed else []
    if not spans:
        problem = "no delimiter divides its lines evenly, and they have no fixed width"
        raise HeaderError(name=name, problem=problem)
    above = lines.sampled.index(data[0])
    trailer = guess_trailer(lines, lines.total - above - 1, "")
    guesses = [
        Guess("format", '"fixed"', "no delimiter divides the lines, and they are equally long"),
        Guess("width", str(width), "characters of a line"),
        Guess("header_rows", str(above), "lines above the data"),
        *_end_guesses(lines, trailer),
    ]
    columns = []
    for first, last in spans:
        values = tuple(line[first - 1 : last].strip() for line in data)
        columns.append(Column(f"at = [{first}, {last}]", "", values))
    return Sample(guesses, columns, False, lines.last, lines.sampled[:above])


def _alike(lines: list[str]) -> list[str]:
    """Return lines without a first and a last one that no other begins like: header and trailer."""
    beginnings = Counter(line[:1] for line in lines)
    is_alone = [beginnings[line[:1]] == 1 for line in lines]
    if len(lines) > 3 and is_alone[-1]:
        lines = lines[:-1]
    if len(lines) > 3 and is_alone[0]:
        lines = lines[1:]
    return lines


def _end_guesses(lines: Lines, trailer: Guess | None) -> list[Guess]:
    """Return what is guessed of any format."""
    newline = "the last line has no newline"
    if lines.ends_in_newline:
        newline = "a file that ends without a newline was cut off"
    guesses = [
        lines.encoding,
        trailer,
        Guess("final_newline", toml(lines.ends_in_newline), newline),
        Guess("pattern", '"*"', "which files below extracts/ are extracts"),
    ]
    return [guess for guess in guesses if guess is not None]
