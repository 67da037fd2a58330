"""A sample of an extract of another form than lines of text, as an extension reads it."""

import re
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any, BinaryIO, Final, NamedTuple

import polars as pl

from flows.configuration import ConfigurationError
from flows.extensions import hooks
from flows.extensions.init.control_records import form_of, stated_in
from flows.extensions.init.dialect import take_sample
from flows.extensions.init.guess import Column, Guess, Sample
from schemas.expressions import UNREADABLE
from schemas.reference import toml

OF_TEXT: Final = ("delimiter", "quoting", "encoding", "final_newline")  # what no sheet needs
_PAGES: Final = "Which code page of EBCDIC is it? Accents and brackets differ: ask the issuer"


class Copybook(NamedTuple):
    """A copybook: what the settings call its file, and its text."""

    file: str
    text: str


def sample_of_form(stream: BinaryIO, name: str, copybook: Copybook | None) -> Sample | None:
    """Return a sample of an extract of a rare form, None of one that is lines of text.

    Raises ExtractError, and ConfigurationError where a copybook cannot be read.
    """
    for read in hooks("sampled"):
        sampled = read(stream, name, copybook)
        if sampled is not None:
            return _sample(sampled, name)
    if copybook is not None:
        problem = "copybooks cannot be read: the extension `formats` is missing"
        raise ConfigurationError(file=copybook.file, problems=problem)
    return None


def _sample(sampled: Any, name: str) -> Sample:
    guesses = [
        _guess(key, value, reason, sampled.pages)
        for key, (value, reason) in sampled.settings.items()
    ]
    if sampled.rows is None:
        sample = take_sample(BytesIO(sampled.lines), name)
        needed = [guess for guess in sample.guesses if guess.key not in OF_TEXT]
        return sample._replace(guesses=[*guesses, *needed], days_may_be_years=True)
    guesses.append(Guess("pattern", '"*"', "which files below extracts/ are extracts"))
    edges = around(sampled.texts)
    above = sampled.texts[: bool(edges.header)]
    last = sampled.texts[-1] if edges.trailer else ""
    guesses += _guesses_around(edges, sampled.texts, sampled.total)
    is_last = sampled.rows.height == sampled.total
    rows = slice(bool(edges.header), -1 if edges.trailer and is_last else None)
    is_readable = pl.Series(sampled.is_readable[rows], dtype=pl.Boolean)
    columns = _columns(sampled.rows[rows].filter(is_readable))
    return Sample(guesses, columns, True, last, above)


def _guess(key: str, value: object, reason: str, pages: Sequence[str]) -> Guess:
    if key == "encoding" and pages:
        return Guess(key, toml(value), reason, _PAGES, tuple(map(toml, pages)))
    return Guess(key, toml(value), reason)


def _guesses_around(edges: "Around", texts: Sequence[str], total: int) -> Iterator[Guess]:
    """Yield the settings that keep header and trailer records from the rows."""
    if edges.header:
        form = form_of(texts[0], edges.header)
        yield Guess("comment", toml(form), "a first record that is not a row")
    if not edges.trailer:
        return
    stated = stated_in(texts[-1], total - bool(edges.header) - 1, {})
    if stated is not None:
        reason = "the last record; the group is the number of rows"
        yield Guess("trailer", toml(stated.pattern(fixed=True)), reason)
    elif not edges.header:
        form = form_of(texts[-1], edges.trailer)
        yield Guess("comment", toml(form), "a last record that is not a row")


def _columns(rows: pl.DataFrame) -> list[Column]:
    """Return the fields of records that are rows, by names without what all begin with.

    COBOL programs name their fields so.
    """
    prefix, hyphen, _ = rows.columns[0].partition("-")
    shared = prefix + hyphen
    if not hyphen or not all(name.startswith(shared) for name in rows.columns):
        shared = ""
    columns = []
    for name in rows.columns:
        texts = rows[name].fill_null("").to_list()
        values = tuple("" if text == UNREADABLE else text for text in texts)
        columns.append(Column(f"from = {toml(name)}", name, values, name.removeprefix(shared)))
    return columns


_HEADER: Final = re.compile("(?:HEADER|HEAD|HDR|BOF|FHDR|FH|H|0+)(?=[^A-Za-z]|$)")
_TRAILER: Final = re.compile(
    "(?:TRAILER|TRAIL|TRLR|TRL|TLR|FTR|FOOTER|EOF|END|TOTALS?|FT|T|9+)(?=[^A-Za-z]|$)"
)


class Around(NamedTuple):
    """What the records around the rows begin with; "" where there is none."""

    header: str
    trailer: str


def around(records: Sequence[str]) -> Around:
    """Return how the first and the last record begin, where no other record begins like it.

    `records`: the text of the first ones, and of the last.
    """
    if len(records) < 3:
        return Around("", "")
    return Around(
        _beginning(records[0], records[1:-1], _HEADER),
        _beginning(records[-1], records[1:-1], _TRAILER),
    )


def _beginning(record: str, rows: Sequence[str], kind: re.Pattern[str]) -> str:
    """Return the first characters of a record that is emptier than the rows, and unlike them."""
    tag = kind.match(record)
    if tag is None or any(row.startswith(tag[0]) for row in rows):
        return ""
    filled = [sum(character.isalnum() for character in row) for row in rows]
    is_emptier = sum(map(str.isalnum, record)) < 0.7 * min(filled)
    return tag[0] if is_emptier else ""
