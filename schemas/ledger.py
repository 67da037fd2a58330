"""The ledger: one record per source row, with its fate. It holds no PAN, CVV or CVV hash."""

import pandera.polars as pa
import polars as pl
from pandera.api.polars.types import PolarsData

from schemas.tables import Table

FATES = ("submitted", "rejected", "ineligible", "duplicate", "suppressed")
SUBMITTED, REJECTED, INELIGIBLE, DUPLICATE, SUPPRESSED = FATES

LINKED = "linked"  # it has a verified link
ERROR = "error"  # the partner refused it and gave a reason
AWAITING = "awaiting"  # no answer yet
BROKEN = "broken"  # an answer that settles nothing: the row stays awaiting and a break explains why

EMPTY = "empty"  # `found` of a cell without anything

# What holds of each column where it is filled.
HOLDS = {
    **{name: pl.col(name) >= 1 for name in ("row", "line", "chunk", "position", "origin")},
    **{name: pl.col(name).str.contains("^[0-9]{4}$") for name in ("last_4", "expiration")},
    "fate": pl.col("fate").is_in(FATES),
}


class Ledger(Table):
    """One record per source row."""

    row: pl.UInt32  # ordinal of the record in the extract, from 1, refused lines included
    line: pl.UInt32  # physical line it starts on, from 1, header included
    # as sent (generated if absent); null: line unreadable
    cuid: pl.String = pa.Field(nullable=True)
    cuid_made: pl.Boolean  # True if we generated the cuid
    last_4: pl.String = pa.Field(nullable=True)
    expiration: pl.String = pa.Field(nullable=True)  # YYMM
    fate: pl.String
    chunk: pl.UInt32 = pa.Field(nullable=True)  # from 1; null unless submitted
    position: pl.UInt16 = pa.Field(nullable=True)  # data row within the chunk, from 1
    origin: pl.UInt32 = pa.Field(nullable=True)  # the row it repeats, of the run `selection.of`
    # CRC-32 of the names and of the address as sent, or as they have changed
    name_check: pl.UInt32 = pa.Field(nullable=True)
    address_check: pl.UInt32 = pa.Field(nullable=True)
    # CRC-32 of what [resend] reissue_column holds
    reissue_check: pl.UInt32 = pa.Field(nullable=True)
    # "column|code" each, warnings of sent rows too
    reasons: pl.List(pl.String)  # type: ignore[valid-type]  # mypy wants a class, pandera a dtype
    # of a rejected row, for each reason: the shape of what was found, or the size of the line
    found: pl.List(pl.String) = pa.Field(nullable=True)  # type: ignore[valid-type]  # as above

    @pa.dataframe_check
    @classmethod
    def cells(cls, data: PolarsData) -> pl.LazyFrame:
        """Compare all cells with HOLDS at once: a check of its own takes a millisecond, however few
        the rows.
        """
        return data.lazyframe.select(
            pl.all_horizontal(holds.fill_null(value=True) for holds in HOLDS.values())
        )


dtypes = Ledger.dtypes
