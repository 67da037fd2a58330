"""The files of a report, derived and rebuilt at any time: links.csv, errors.csv, rejects.csv, chunks.csv."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

STAGES = ("submit", "partner")  # who refused: we before sending, or the partner


class Links(pa.DataFrameModel):
    """links.csv: what the marketing system sends; verified links only."""

    cuid: pl.String
    last_4: pl.String = pa.Field(str_matches=r"^[0-9]{4}$")
    url: pl.String = pa.Field(str_startswith="https://")
    expires_on: pl.Date = pa.Field(nullable=True)

    class Config:
        """Exactly these columns in this order."""

        strict = True
        ordered = True


class Refusals(pa.DataFrameModel):
    """errors.csv and rejects.csv: one line per row and reason, with what to do."""

    row: pl.UInt32 = pa.Field(ge=1)  # data record of the extract, from 1
    cuid: pl.String = pa.Field(nullable=True)
    last_4: pl.String = pa.Field(nullable=True)
    stage: pl.String = pa.Field(isin=STAGES)
    column: pl.String = pa.Field(nullable=True)
    reason: pl.String = pa.Field(str_matches=r"^[a-z0-9_]+\.[a-z0-9_]+\.[a-z0-9_]+$")
    message: pl.String = pa.Field(nullable=True)  # masked, safe in a spreadsheet
    action: pl.String

    class Config:
        """Exactly these columns in this order."""

        strict = True
        ordered = True


class Chunks(pa.DataFrameModel):
    """chunks.csv: every chunk with what was sent and what came back."""

    chunk: pl.UInt32 = pa.Field(ge=1, unique=True)
    name: pl.String = pa.Field(unique=True)  # as it is uploaded
    bytes: pl.UInt64  # of the sealed file
    sha256: pl.String = pa.Field(str_matches=r"^[0-9a-f]{64}$")
    sent: pl.UInt32
    answers: pl.UInt32
    linked: pl.UInt32
    error: pl.UInt32
    awaiting: pl.UInt32
    state: pl.String = pa.Field(isin=("answered", "partial", "awaiting"))
    results: pl.String = pa.Field(nullable=True)  # file names, joined by " | "

    class Config:
        """Exactly these columns in this order."""

        strict = True
        ordered = True
