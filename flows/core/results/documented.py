"""Result files as they are documented (interface.md 2.7), many at once: a header, then a well-formed record a line.

The line grammar decides before the parser sees a line. A file with anything else in it is not read here, but by what
reads any file (`flows.core.results.results`); that would give the same cells of these too, in three times the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from flows.core.extract.grammar import Delimited
from flows.core.results.head import Head, find_head
from schemas import result as spec

BOM = b"\xef\xbb\xbf"
WIDEST = 32  # columns: the grammar of a line grows with them, and five are documented


class _Body(NamedTuple):
    """The records of one file, each a line that ends in a newline."""

    at: int
    text: bytes
    height: int


def read_documented(contents: Sequence[bytes]) -> list[pl.DataFrame | None]:
    """Return the cells of each file (columns of schemas.result.SPELLINGS, text), None of one to be read otherwise."""
    found: list[pl.DataFrame | None] = [None] * len(contents)
    for line, bodies in _by_header(contents).items():
        head = _head(line)
        sound = _sound(bodies, head) if head else []
        cells = _cells(sound, head) if head and sound else None
        if cells is None:
            continue
        start = 0
        for body in sound:
            found[body.at] = cells[start : start + body.height]
            start += body.height
    return found


def _by_header(contents: Sequence[bytes]) -> dict[bytes, list[_Body]]:
    """Part the files that are plain text with a header line and lines after it by that header."""
    bodies: dict[bytes, list[_Body]] = {}
    for at, content in enumerate(contents):
        text = content.removeprefix(BOM)
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        header, _, body = text.partition(b"\n")
        if body and b"\r" not in text and _is_utf8(text):
            whole = body if body.endswith(b"\n") else body + b"\n"
            bodies.setdefault(header, []).append(_Body(at, whole, whole.count(b"\n")))
    return bodies


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _head(line: bytes) -> Head | None:
    if b"\0" in line:  # UTF-16 without a mark may look like UTF-8
        return None
    head = find_head(line.decode())
    return head if head and head.width <= WIDEST else None


def _sound(bodies: Sequence[_Body], head: Head) -> list[_Body]:
    """Return the files of which every line is a record."""
    lines = pl.read_lines(b"".join([body.text for body in bodies])).to_series()
    quoted = lines.str.contains('"', literal=True).to_numpy()
    grammar = Delimited(head.delimiter, head.width)
    holds = np.empty(len(lines), dtype=bool)
    for with_quotes, mask in ((False, ~quoted), (True, quoted)):
        holds[mask] = grammar.holds(lines.filter(pl.Series(mask)), with_quotes).to_numpy()
    starts = np.cumsum([0, *(body.height for body in bodies)])
    if starts[-1] != len(lines):
        return []
    whole = np.logical_and.reduceat(holds, starts[:-1]).tolist()
    return [body for body, sound in zip(bodies, whole, strict=True) if sound]


def _cells(bodies: Sequence[_Body], head: Head) -> pl.DataFrame | None:
    """Return the cells of records, None where the parser does not see as many of them as the grammar."""
    text = b"".join([body.text for body in bodies])
    names = [str(at) for at in range(head.width)]
    options: dict[str, Any] = {"has_header": False, "infer_schema": False, "glob": False, "separator": head.delimiter}
    try:
        rows = pl.read_csv(text, schema=dict.fromkeys(names, pl.String), **options)
    except pl.exceptions.PolarsError:  # its message would quote rows
        return None
    if rows.height != sum(body.height for body in bodies):
        return None
    absent = pl.lit(None, pl.String)
    return rows.select(
        (pl.col(names[head.places[name]]) if name in head.places else absent).alias(name) for name in spec.SPELLINGS
    )
