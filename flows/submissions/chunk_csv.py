"""A chunk as the portal reads it: a header and a line per row (interface.md 2.6).

Its columns and their order come from `flows/runs/header.py`: those of `schemas/portal.py`, or of
the portal's template.
"""

from collections.abc import Sequence
from io import BytesIO

import polars as pl

from flows.errors import BugError
from flows.runs.header import Header


def lines(rows: pl.DataFrame, order: Sequence[str]) -> pl.Series:
    """Return each row as a chunk's line, with the columns in the portal's `order`.

    Raises BugError for a line break in a cell.
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
