"""The lines of an extract that guesses are made from, and the encoding they are in."""

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO, NamedTuple

from flows.extensions.init.guess import Guess
from flows.extracts.decode import decodes, line_blocks
from flows.extracts.errors import TruncatedError
from flows.extracts.grammar import LONGEST_RECORD
from flows.extracts.status_words import shape
from schemas.reference import toml

FIRST = 2000  # lines looked at in the beginning
BLOCK = 1 << 14  # bytes; of each later block, one line is looked at
BLANK = b' \t\r,;|"'  # all that is in a line without content, whatever the delimiter
SHOWN = 3  # lines of which a choice shows what it makes
_BEYOND_ASCII = re.compile(rb"[A-Za-z]*[\x80-\xff][A-Za-z\x80-\xff]*")
CARD = re.compile("[0-9]{12}|[0-9]{4}[ -][0-9]{4}[ -][0-9]{4}")
_ODD = re.compile("[a-z][À-ÞŽŠŒŸ]|[^\x00-\x7fÀ-ɏªº°½¼·’‘´–-]")  # hardly ever in cp1252 text


class Lines(NamedTuple):
    """The lines of an extract that have content."""

    sampled: list[str]
    last: str
    total: int
    ends_in_newline: bool
    encoding: Guess


def read_lines(stream: BinaryIO, encoding: str, name: str) -> Lines:
    """Read all lines; of a file that is cut off, those that can be read.

    Raises ExtractError where it is no text; EncodingError where it is not what `encoding` says,
    "utf-8" or "utf-16".
    """
    reading = _Reading()
    with suppress(TruncatedError):
        for block in line_blocks(stream, encoding, name, BLOCK):
            reading.add(block)
    if reading.invalid > reading.valid:
        encoding = "cp1252"
    text_encoding = "cp1252" if encoding == "cp1252" else "utf-8"
    sampled = [line.decode(text_encoding, "replace") for line in reading.sampled]
    return Lines(
        sampled,
        reading.last.decode(text_encoding, "replace"),
        reading.total,
        reading.ends_in_newline,
        _encoding(encoding, reading, sampled),
    )


class _Reading:
    """What has been read of an extract."""

    def __init__(self) -> None:
        self.sampled: list[bytes] = []
        self.last = b""
        self.total = 0
        self.ends_in_newline = True
        # lines beyond ASCII, which are UTF-8 or are not
        self.valid = 0
        self.invalid = 0

    def add(self, block: bytes) -> None:
        """Take in a block of whole lines."""
        content = block.rstrip(b"\x1a")
        lines = [line.removesuffix(b"\r") for line in content.split(b"\n") if line.strip(BLANK)]
        self.sampled += lines if self.total < FIRST else lines[:1]
        self.total += len(lines)
        self.ends_in_newline = content[-1:] in (b"", b"\n")
        if lines:
            self.last = lines[-1]
        if not block.isascii():
            self._count(lines)

    def _count(self, lines: Sequence[bytes]) -> None:
        beyond_ascii = [line for line in lines if not line.isascii()]
        valid = sum(decodes(line, "utf-8") for line in beyond_ascii)
        self.valid += valid
        self.invalid += len(beyond_ascii) - valid


def _encoding(encoding: str, reading: _Reading, sampled: Sequence[str]) -> Guess:
    guess = Guess("encoding", toml(encoding), "what its bytes are")
    if reading.valid and reading.invalid:
        counts = f"{reading.valid:,} lines are UTF-8 and {reading.invalid:,} are not"
        other = "utf-8" if encoding == "cp1252" else "cp1252"
        shown = tuple(_in_shape(reading.sampled, choice) for choice in (encoding, other))
        question = f"{counts}: which are right?"
        return guess._replace(question=question, others=(toml(other),), shown=shown)
    if encoding == "cp1252" and _ODD.search("\n".join(sampled)):
        question = "Some characters are unusual in cp1252: are names with accents right?"
        shown = (_in_shape(reading.sampled, encoding),)
        return guess._replace(question=question, shown=shown)
    return guess


def _in_shape(lines: Sequence[bytes], encoding: str) -> str:
    """Return what an encoding makes of the first words beyond ASCII of three lines, in shape.

    What is no letter in it is a question mark. Where lines are UTF-8 and others are not, both are
    among them.
    """
    by_kind: dict[bool, list[bytes]] = {True: [], False: []}
    for line in lines:
        word = _BEYOND_ASCII.search(line)
        if word:
            by_kind[decodes(line, "utf-8")].append(word[0])
    words = [*by_kind[False][:2], *by_kind[True][:2]][:SHOWN]
    return " | ".join(shape(word.decode(encoding, "replace")) for word in words)


def records(lines: Sequence[str], delimiter: str, quoting: str) -> Iterator[list[str]]:
    """Yield the fields of lines, without blanks around them, as far as they can be read."""
    escape = None
    if quoting == "backslash":
        escape = "\\"
        lines = [line.replace("\\N", "") for line in lines]
    for record in _records(lines, escape):
        with suppress(csv.Error):  # the reader will report the line; a guess can do without
            fields = next(csv.reader(record, delimiter=delimiter, escapechar=escape))
            yield [re.sub('^="(.*)"$', r"\1", field).strip() for field in fields]


def _records(lines: Sequence[str], escape: str | None) -> Iterator[list[str]]:
    """Yield the lines of each record; a quote that nothing closes soon is of its line alone."""
    is_odd = [line.replace(f'{escape}"', "").count('"') % 2 for line in lines]
    place = 0
    while place < len(lines):
        end = place + 1
        if is_odd[place] and 1 in is_odd[end : place + LONGEST_RECORD]:
            end = is_odd.index(1, end) + 1
        yield [f"{line}\n" for line in lines[place:end]]
        place = end
