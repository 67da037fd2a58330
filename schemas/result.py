"""The result file that comes back from the portal (interface.md 2.7): its columns, their spellings, its rows."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

CUID = "cuid"
LAST_4 = "last_4"
URL = "url"
EXPIRATION_DATE = "expiration_date"
ERROR = "error"

# Folded spellings (lower case, letters and digits only) a portal's column may have; first the documented one.
SPELLINGS: dict[str, tuple[str, ...]] = {
    CUID: ("cuid", "cardholdercuid"),
    LAST_4: ("last4", "lastfour", "cardlast4", "panlast4"),
    URL: ("url", "cardlinkurl", "link", "cardlink"),
    EXPIRATION_DATE: ("expirationdate", "expireson", "expiresat", "expirydate", "linkexpirationdate"),
    ERROR: ("error", "errors", "errormessage"),
}


class ResultFile(pa.DataFrameModel):
    """A result file as interface.md 2.7 describes it: text only, an error row has nothing but its error."""

    cuid: pl.String = pa.Field(nullable=True)
    last_4: pl.String = pa.Field(nullable=True, str_matches=r"^[0-9]{4}$")
    url: pl.String = pa.Field(nullable=True, str_startswith="https://")
    expiration_date: pl.String = pa.Field(nullable=True)
    error: pl.String = pa.Field(nullable=True)

    class Config:
        """Exactly these columns in this order."""

        strict = True
        ordered = True


class ResultTable(pa.DataFrameModel):
    """The rows of a result file as we hold them: every row of the file once, absent is null."""

    position: pl.UInt32 = pa.Field(ge=1, unique=True)  # data row of the file, from 1
    cuid: pl.String = pa.Field(nullable=True)
    last_4: pl.String = pa.Field(nullable=True)
    url: pl.String = pa.Field(nullable=True)
    expires_on: pl.Date = pa.Field(nullable=True)  # null where the text is no date
    expires_raw: pl.String = pa.Field(nullable=True)
    error: pl.String = pa.Field(nullable=True)  # raw: may echo card data, so it is never stored

    class Config:
        """Exactly these columns in this order."""

        strict = True
        ordered = True
