"""A chunk as the portal reads it: UTF-8, LF, no BOM, minimal quoting, the header verbatim, nulls empty.

The header is interface.md 2.6's, or the one of the template downloaded from the portal, whose names are matched
to ours by suffix (`acme_card.pan` is `service_card.pan`).
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import BytesIO, StringIO
from typing import NamedTuple

import polars as pl

from flows.core.errors import BugError, OperatorError
from schemas.portal import columns


class TemplateError(OperatorError):
    """The template's header is not the portal's."""

    message = "Template {name}: missing columns: {missing}; unknown or repeated columns: {unknown}."
    next_step = "Download the blank template from the partner's portal again and name it in [portal] template."


class Header(NamedTuple):
    """The header row: our column names in the portal's order, and the line as it is written."""

    order: tuple[str, ...]
    line: bytes


def default_header() -> Header:
    """Return the header of interface.md 2.6."""
    return _header(columns(), columns())


def header_from_template(text: str, name: str) -> Header:
    """Take names and order from the portal's own template; TemplateError where it does not fit 2.6."""
    first = next(csv.reader(StringIO(text.removeprefix("\ufeff"))), [])
    theirs = [cell.strip() for cell in first]
    ours = {_suffix(column): column for column in columns()}
    order = tuple(ours.get(_suffix(cell), "") for cell in theirs)
    missing = [column for column in columns() if column not in order]
    unknown = [cell for cell, column in zip(theirs, order, strict=True) if not column or order.count(column) > 1]
    if missing or unknown:
        raise TemplateError(name=name, missing=", ".join(missing) or "none", unknown=", ".join(unknown) or "none")
    return _header(order, tuple(theirs))


def lines(rows: pl.DataFrame, order: Sequence[str]) -> pl.Series:
    """Return each row as a line of a chunk, without its end; columns in the portal's `order`, no line break in a cell.

    Raises BugError where a cell holds one.
    """
    out = BytesIO()
    rows.select(order).write_csv(out, include_header=False, quote_style="necessary")
    text = pl.read_lines(out.getvalue()).to_series()
    if len(text) != rows.height:
        raise BugError(place="writing lines", kind="a cell holds a line break")
    return text


def write_chunk(text: pl.Series, header: Header) -> bytes:
    """Return the CSV of the lines of at most 1000 rows (interface.md 2.6)."""
    body: bytes = text.str.join("\n").cast(pl.Binary).item()
    return b"%b%b\n" % (header.line, body)


def _header(order: tuple[str, ...], names: tuple[str, ...]) -> Header:
    line = StringIO()
    csv.writer(line, lineterminator="\n").writerow(names)
    return Header(order, line.getvalue().encode())


def _suffix(name: str) -> str:
    return name.partition(".")[2]
