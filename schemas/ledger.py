"""The ledger: one record per source row, with its fate. It holds no PAN, CVV or CVV hash."""

import pandera.polars as pa
import polars as pl

from schemas.tables import Table

FATES = ("submitted", "rejected", "duplicate", "suppressed")
SUBMITTED, REJECTED, DUPLICATE, SUPPRESSED = FATES

LINKED = "linked"  # it has a verified link
ERROR = "error"  # the partner refused it and gave a reason
AWAITING = "awaiting"  # no answer yet
BROKEN = "broken"  # an answer that settles nothing: the row stays awaiting and a break explains why


class Ledger(Table):
    """One record per source row."""

    row: pl.UInt32 = pa.Field(ge=1)  # ordinal of the record in the extract, from 1, refused lines included
    line: pl.UInt32 = pa.Field(ge=1)  # physical line it starts on, from 1, header included
    cuid: pl.String = pa.Field(nullable=True)  # as sent (generated if absent); null: line unreadable
    cuid_made: pl.Boolean  # True if we generated the cuid
    last_4: pl.String = pa.Field(nullable=True, str_matches=r"^[0-9]{4}$")
    expiration: pl.String = pa.Field(nullable=True, str_matches=r"^[0-9]{4}$")  # YYMM
    fate: pl.String = pa.Field(isin=FATES)
    chunk: pl.UInt32 = pa.Field(nullable=True, ge=1)  # from 1; null unless submitted
    position: pl.UInt16 = pa.Field(nullable=True, ge=1)  # data row within the chunk, from 1
    origin: pl.UInt32 = pa.Field(nullable=True, ge=1)  # the row it repeats, of the run `selection.of`
    name_check: pl.UInt32 = pa.Field(nullable=True)  # CRC-32 of the names and of the address as sent, for a full
    address_check: pl.UInt32 = pa.Field(nullable=True)  # portfolio, and where we generated the cuid
    reissue_check: pl.UInt32 = pa.Field(nullable=True)  # CRC-32 of what [resend] reissue_column holds
    reasons: pl.List(pl.String)  # type: ignore[valid-type]  # "column|code" each, warnings of sent rows too; mypy wants a class where pandera reads a dtype


dtypes = Ledger.dtypes
