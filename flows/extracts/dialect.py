"""How an extract is written, found in its lines: encoding, delimiter, quoting, header, trailer; and
a sample of it.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import BinaryIO, NamedTuple

import polars as pl

from flows.extracts.decode import decodes, line_blocks
from flows.extracts.errors import EncodingError, HeaderError, TruncatedError
from flows.extracts.header import SEP, header_names
from schemas.expressions import luhn_holds
from schemas.issuer import SourceSettings
from schemas.reference import toml

# lines looked at in the beginning; after it, one in each block of so many bytes
FIRST, BLOCK = 2000, 1 << 14
ABOVE = 12  # most lines above the data
_TAG = re.compile(
    r'["(*#=-]*(?:TRA?I?LE?R?|TL?R|FTR|FOOTER|EOF|END|TOTALS?|RECORDS?|T|Z|9+)(?=[^A-Za-z-]|$)|[(*#=-]+'
)
_ODD = re.compile("[a-z][À-ÞŽŠŒŸ]|[^\x00-\x7fÀ-ɏªº°½¼·’‘´–-]")  # hardly ever in cp1252 text
_CARD = re.compile("[0-9]{12}|[0-9]{4}[ -][0-9]{4}[ -][0-9]{4}")


class Guess(NamedTuple):
    """One setting: its value as TOML, "" for none, and why; where there is a doubt, a question and
    other values.
    """

    key: str
    value: str
    reason: str
    question: str = ""
    others: tuple[str, ...] = ()


class Column(NamedTuple):
    """A source column: its source in TOML, its name if it has one, its values in the sample without
    blanks around.
    """

    source: str
    name: str
    values: tuple[str, ...]

    @property
    def spec(self) -> str:
        """The column as a portal column is made of it alone."""
        return toml(self.name) if self.name else f"{{ {self.source} }}"

    @property
    def present(self) -> list[str]:
        """The values that are not empty."""
        return [value for value in self.values if value]


# Guesses for `[source]`, the columns, and whether a header names them.
Sample = tuple[tuple[Guess, ...], tuple[Column, ...], bool]


class _Lines(NamedTuple):
    """Lines of an extract: some of them, the last with content, how many have content; whether a
    newline ends it.
    """

    some: list[str]
    last: str
    total: int
    ends: bool
    encoding: Guess


def take_sample(stream: BinaryIO, name: str) -> Sample:
    """Read an extract, and find how it is written; ExtractError where its lines are not rows of one
    kind.
    """
    try:
        lines = _read(stream, "utf-8", name)
    except EncodingError:
        stream.seek(0)
        lines = _read(stream, "utf-16", name)
    return _delimited(lines, name) or _fixed(lines, name)


def _read(stream: BinaryIO, encoding: str, name: str) -> _Lines:
    """Read all lines; of a file that is cut off, those that can be read."""
    some, last, total, block = list[bytes](), b"", 0, b""
    valid = wrong = 0
    with suppress(TruncatedError):
        for block in line_blocks(stream, encoding, name, BLOCK):
            rows = [
                line.removesuffix(b"\r")
                for line in block.rstrip(b"\x1a").split(b"\n")
                if line.strip()
            ]
            some += rows if total < FIRST else rows[:1]
            total, last = total + len(rows), rows[-1] if rows else last
            odd = [] if block.isascii() else [line for line in rows if not line.isascii()]
            right = sum(decodes(line, "utf-8") for line in odd)
            valid, wrong = valid + right, wrong + len(odd) - right
    kind, others, doubt = "utf-8", list[str](), ""
    if wrong > valid:
        kind = encoding = "cp1252"
        odd_text = _ODD.search("\n".join(line.decode(kind, "replace") for line in some))
        doubt = (
            "Some characters are unusual in cp1252: are names with accents right?"
            if odd_text
            else ""
        )
    if wrong and valid:
        others = ["utf-8" if kind == "cp1252" else "cp1252"]
        doubt = f"{valid:,} lines are UTF-8 and {wrong:,} are not: which are right?"
    guess = Guess("encoding", toml(encoding), "what its bytes are", doubt, tuple(map(toml, others)))
    ends = block.rstrip(b"\x1a")[-1:] in (b"", b"\n")
    return _Lines(
        [line.decode(kind, "replace") for line in some],
        last.decode(kind, "replace"),
        total,
        ends,
        guess,
    )


def _records(lines: Sequence[str], delimiter: str, quoting: str) -> Iterator[list[str]]:
    plain = (line.replace("\\N", "") if quoting == "backslash" else line for line in lines)
    escape = "\\" if quoting == "backslash" else None
    with suppress(csv.Error):  # the reader will report the line; a guess can do without
        for fields in csv.reader(map("{}\n".format, plain), delimiter=delimiter, escapechar=escape):
            yield [re.sub('^="(.*)"$', r"\1", field).strip() for field in fields]


def _delimited(lines: _Lines, name: str) -> Sample | None:
    """Find delimiter, header and trailer; None where no delimiter divides most lines alike."""
    text = "\n".join(lines.some)
    quoting = "excel" if '="' in text else "backslash" if re.search(r'\\["N]', text) else "doubled"
    divided = []
    for mark in ",;\t|":
        sizes = Counter(
            len(fields) for fields in _records(lines.some, mark, quoting) if len(fields) > 2
        )
        divided += [
            (times, size, mark)
            for size, times in sizes.most_common(1)
            if times >= 0.5 * len(lines.some)
        ]
    if not divided:
        return None
    times, size, delimiter = max(divided)
    header, at = _header(
        lines.some[:ABOVE], size, SourceSettings.model_validate({"delimiter": delimiter}), name
    )
    above, data = (
        [line for line in lines.some[:at] if not SEP.match(line)],
        lines.some[at + bool(header) :],
    )
    tag = re.match(r"[#*!]" if header else r"[A-Za-z]{1,8}|[#*!]", (above or [""])[0])
    comment = tag[0] if tag and not any(line.startswith(tag[0]) for line in data) else ""
    titles = sum(1 for line in above if not (comment and line.startswith(comment)))
    found = _trailer(lines, lines.total - at - bool(header) - 1, delimiter)
    # there is one setting for it
    trailer = [one for one in found if not comment or one.key != "comment"]
    rows = [
        fields
        for fields in _records(data[: -1 if trailer else None], delimiter, quoting)
        if len(fields) == size
    ]
    names = header or tuple(f"column_{place}" for place in range(1, size + 1))
    columns = (
        Column(f"from = {toml(one)}", one, tuple(row[at] for row in rows))
        for at, one in enumerate(names)
    )
    written = [
        Guess(
            "delimiter",
            toml(delimiter),
            f"it divides {times:,} of {len(lines.some):,} lines into {size} fields",
        ),
        Guess("quoting", toml(quoting), "how cells with quotes are written"),
        Guess(
            "header_rows",
            str(titles + 1 if header else 0),
            "the last of them has the names" if header else "none",
        ),
    ]
    if not header:
        written.append(
            Guess("names", toml(names), "no line names the columns: call them what you like")
        )
    written += (
        [Guess("comment", toml(comment), "lines that begin like this are no rows")]
        if comment
        else []
    )
    return (*written, *_rest(lines, trailer)), tuple(columns), bool(header)


def _header(
    lines: Sequence[str], size: int, settings: SourceSettings, name: str
) -> tuple[tuple[str, ...], int]:
    """Return the column names and their line; no names, and the first line of data, where no line
    has them.
    """
    problems = []
    for at, line in enumerate(lines):
        fields = next(_records([line], settings.delimiter, ""), [])
        if len(fields) == size and _CARD.search(line):
            return (), at
        if len(fields) == size and sum(map(bool, fields)) >= 0.8 * size:
            try:
                return header_names(line, settings, name), at
            except HeaderError as problem:
                problems.append(problem)
    raise (
        problems[0]
        if problems
        else HeaderError(name=name, problem="no line of its beginning has column names")
    )


def _trailer(lines: _Lines, rows: int, delimiter: str) -> Iterator[Guess]:
    """Yield a guess for `trailer` where the last line is one with the number of rows, for `comment`
    without it.
    """
    last, tag = lines.last, _TAG.match(lines.last)
    if tag is None or _CARD.search(last.replace(f"{rows:09d}", "")):
        return
    runs = sorted(re.finditer("[0-9]+", last), key=lambda run: abs(int(run[0]) - rows))
    # cells may span lines
    count = next((run for run in runs if 0.8 * rows < int(run[0]) <= rows), None)
    if count is None and not delimiter:  # fixed width: within a longer run of digits
        count = next(
            filter(None, (re.search(f"{rows:0{width}}", last) for width in range(12, 4, -1))), None
        )
    if count is None:
        asked = f"The last line has not the number of rows, {rows:,}: what is it?"
        mark = re.sub("[A-Za-z0-9].*$", "", last[tag.end() :])[:1]
        if not any(line.startswith(tag[0] + mark) for line in lines.some if line != last):
            asked = asked if re.search("[0-9]", last) else ""
            yield Guess("comment", toml(tag[0] + mark), "the last line is no row", asked)
        return
    pattern = f"^{re.escape(tag[0])}"
    for part in re.findall("[0-9]+|[A-Za-z]+|.", last[tag.end() : count.start()]):
        mark = re.escape(part).replace("\\ ", " ")  # polars rejects an escaped space
        pattern += "[0-9]+" if part.isdigit() else "[A-Za-z]+" if part.isalpha() else mark
    digits = "+" if delimiter else f"{{{len(count[0])}}}"
    asked = (
        ""
        if int(count[0]) == rows
        else f"It says {int(count[0]):,}, with {rows:,} lines above: is it the count?"
    )
    yield Guess(
        "trailer",
        toml(f"{pattern}([0-9]{digits})"),
        "the last line; the group is the number of rows",
        asked,
    )


def _fixed(lines: _Lines, name: str) -> Sample:
    """Find width and fields of lines that are equally long; HeaderError where no place has card
    numbers.
    """
    [(width, times)] = Counter(map(len, lines.some)).most_common(1) or [(0, 0)]
    data = [line for line in lines.some if len(line) == width and _CARD.search(line)]
    spans = _spans(data) if times > 0.9 * len(lines.some) - 2 and width > 30 else []
    if not spans:
        raise HeaderError(
            name=name, problem="no delimiter divides its lines alike, and they have no fixed width"
        )
    above = lines.some.index(data[0])
    written = (
        Guess("format", '"fixed"', "no delimiter divides the lines, and they are equally long"),
        Guess("width", str(width), "characters of a line"),
        Guess("header_rows", str(above), "lines above the data"),
    )
    columns = (
        Column(f"at = [{a}, {b}]", "", tuple(line[a - 1 : b].strip() for line in data))
        for a, b in spans
    )
    return (
        (*written, *_rest(lines, _trailer(lines, lines.total - above - 1, ""))),
        tuple(columns),
        False,
    )


def _spans(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Return first and last character of each field; none where no place has card numbers.

    A field begins where all lines have a blank before it, between digits and other text, and around
    the card number.
    """
    places = ["".join(place) for place in zip(*lines, strict=True)]
    filled = [1 - place.count(" ") / len(place) for place in places]
    digits = [place.replace(" ", "").isdigit() for place in places]
    starts = (at for at in range(len(places) - 15) if all(digits[at : at + 16]))
    cards = ((at, pl.Series([line[at : at + 16] for line in lines])) for at in starts)
    card = next(
        (at for at, numbers in cards if pl.select(luhn_holds(pl.lit(numbers)).mean()).item() > 0.9),
        None,
    )
    if card is None:
        return []
    edges = {0, card, card + 16, len(places)}
    for at in range(1, len(places)):
        turns = (
            digits[at] != digits[at - 1]
            and filled[at]
            and filled[at - 1]
            and "-" not in places[at - 1]
        )
        numbers = all(digits[at : at + 4]) or all(digits[max(at - 4, 0) : at])
        edges |= (
            {at} if (turns and numbers) or (filled[at - 1] < 0.005 and filled[at] > 0.03) else set()
        )
    after = next((at for at in range(card + 16, len(places)) if not digits[at]), len(places))
    edges |= {after - 3} if after - card - 16 in (7, 9, 11) else set()  # a date and the CVV
    spans = pairwise(sorted(edges.difference(range(card + 1, card + 16))))
    return [(first + 1, last) for first, last in spans if any(filled[first:last])]


def _rest(lines: _Lines, trailer: Iterator[Guess] | list[Guess]) -> Iterator[Guess]:
    yield lines.encoding
    yield from trailer
    reason = (
        "a file that ends without a newline was cut off"
        if lines.ends
        else "the last line has no newline"
    )
    yield Guess("final_newline", str(lines.ends).lower(), reason)
    yield Guess("pattern", '"*"', "which files below extracts/ are extracts")
