"""The base of every table we write, as `Settings` is of every TOML table; the CSVs of the reports.

These can be rebuilt at any time: of a run links.csv, errors.csv and others, across runs
worklist.csv.
"""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import pandera.polars as pa
import polars as pl


class Table(pa.DataFrameModel):
    """A table with exactly its columns, in their order."""

    class Config:
        """Refuse a table with other columns, or with these in another order."""

        strict = True
        ordered = True

    @classmethod
    def dtypes(cls) -> dict[str, pl.DataType]:
        """Return the columns and their polars types, in order."""
        return {name: column.dtype.type for name, column in cls.to_schema().columns.items()}


def parquet(
    frame: pl.DataFrame, metadata: Mapping[str, str] | None = None, **options: Any
) -> bytes:
    """Return a frame as Parquet."""
    out = BytesIO()
    frame.write_parquet(out, metadata=dict(metadata or {}), **options)
    return out.getvalue()


STAGES = ("submit", "partner")  # where a row was refused: by us before sending, or by the partner


class Links(Table):
    """links.csv: the verified links, for the marketing system to send."""

    cuid: pl.String
    last_4: pl.String = pa.Field(str_matches=r"^[0-9]{4}$")
    url: pl.String = pa.Field(str_startswith="https://")
    expires_on: pl.Date = pa.Field(nullable=True)


class Rejects(Table):
    """rejects.csv, suppressed.csv: a line per row and reason, in the words of the issuer's file."""

    row: pl.UInt32 = pa.Field(ge=1)  # data record of the extract, from 1
    line: pl.UInt32 = pa.Field(ge=1)  # physical line it starts on, from 1, header included
    cuid: pl.String = pa.Field(nullable=True)
    last_4: pl.String = pa.Field(nullable=True)
    stage: pl.String = pa.Field(isin=STAGES)
    source: pl.String = pa.Field(nullable=True)  # columns of the file; null for the whole line
    wrong: pl.String
    # shape of the cell (A for letters, 9 for digits, 9(16) for 16 of them), or size of the line
    found: pl.String = pa.Field(nullable=True)
    expected: pl.String
    setting: pl.String = pa.Field(nullable=True)  # that would take it
    column: pl.String = pa.Field(nullable=True)  # the portal's
    reason: pl.String = pa.Field(str_matches=r"^[a-z0-9_]+\.[a-z0-9_]+\.[a-z0-9_]+$")
    action: pl.String


class Refusals(Table):
    """errors.csv: one line per row and reason of the partner's, with the action to take."""

    row: pl.UInt32 = pa.Field(ge=1)  # data record of the extract, from 1
    cuid: pl.String = pa.Field(nullable=True)
    last_4: pl.String = pa.Field(nullable=True)
    stage: pl.String = pa.Field(isin=STAGES)
    column: pl.String = pa.Field(nullable=True)
    reason: pl.String = pa.Field(str_matches=r"^[a-z0-9_]+\.[a-z0-9_]+\.[a-z0-9_]+$")
    message: pl.String = pa.Field(nullable=True)  # masked, safe in a spreadsheet
    action: pl.String


class Awaiting(Table):
    """awaiting.csv: every row that was sent and has no answer that counts."""

    row: pl.UInt32 = pa.Field(ge=1)
    cuid: pl.String
    last_4: pl.String = pa.Field(str_matches=r"^[0-9]{4}$")
    chunk: pl.UInt32 = pa.Field(ge=1)
    since: pl.String  # time of upload, or of commit if the upload is unknown
    why: pl.String
    action: pl.String


class Questions(Table):
    """questions.csv: what to ask the partner, row by row."""

    chunk: pl.String  # as it was uploaded; the result file, for a row of no chunk
    cuid: pl.String = pa.Field(nullable=True)
    last_4: pl.String = pa.Field(nullable=True)
    question: pl.String


class Work(Table):
    """worklist.csv: each thing to do about all runs, what is due first at the top."""

    due: pl.String
    kind: pl.String
    number: pl.UInt32 = pa.Field(nullable=True, ge=1)  # of its matter, until it is over
    issuer: pl.String
    run: pl.String
    chunk: pl.UInt32 = pa.Field(nullable=True, ge=1)
    rows: pl.UInt32
    age: pl.String
    who: pl.String = pa.Field(isin=("issuer", "partner", "operator"))
    matter: pl.String  # what is the matter, in a sentence
    first: pl.String  # the first step
    decisions: pl.String  # those that can follow, each with its command
