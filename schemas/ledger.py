"""The ledger: one record per source row, saying where it went, and what a sent row has come to. No PAN, CVV or hash."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

SUBMITTED = "submitted"
REJECTED = "rejected"
DUPLICATE = "duplicate"
SUPPRESSED = "suppressed"
FATES = (SUBMITTED, REJECTED, DUPLICATE, SUPPRESSED)

LINKED = "linked"  # it has a verified link
ERROR = "error"  # the partner refused it, and said why
AWAITING = "awaiting"  # nobody has said anything of it yet
BROKEN = "broken"  # of an answer: it settles nothing, so the row stays awaiting and the break says why


class Ledger(pa.DataFrameModel):
    """One record per source row."""

    row: pl.UInt32 = pa.Field(ge=1)  # ordinal of the record in the extract, from 1, refused lines included
    line: pl.UInt32 = pa.Field(ge=1)  # physical line it starts on, from 1, header included
    cuid: pl.String = pa.Field(nullable=True)  # as sent (made by us where absent); null: line unreadable
    cuid_made: pl.Boolean  # True where the cuid is ours
    last_4: pl.String = pa.Field(nullable=True, str_matches=r"^[0-9]{4}$")
    expiration: pl.String = pa.Field(nullable=True, str_matches=r"^[0-9]{4}$")  # YYMM
    fate: pl.String = pa.Field(isin=FATES)
    chunk: pl.UInt32 = pa.Field(nullable=True, ge=1)  # from 1; null unless submitted
    position: pl.UInt16 = pa.Field(nullable=True, ge=1)  # data row within the chunk, from 1
    origin: pl.UInt32 = pa.Field(nullable=True, ge=1)  # the row of the run this one repeats (`selection.of`), if any
    name_check: pl.UInt32 = pa.Field(nullable=True)  # CRC-32 of names and of address as sent, kept where the extract
    address_check: pl.UInt32 = pa.Field(nullable=True)  # is a portfolio: it tells whether they changed, and no more
    reasons: pl.List(pl.String)  # type: ignore[valid-type]  # "column|code" each, warnings of sent rows too; mypy wants a class where pandera reads a dtype

    class Config:
        """Exactly these columns in this order."""

        strict = True
        ordered = True


def dtypes() -> dict[str, pl.DataType]:
    """Return the ledger's columns and polars types, in order."""
    return {name: column.dtype.type for name, column in Ledger.to_schema().columns.items()}
