"""The result file that the portal returns (interface.md 2.7): columns, their spellings, rows."""

from datetime import timedelta

import pandera.polars as pa
import polars as pl

from schemas.tables import Table

LIFE = timedelta(days=62)  # of a link whose end the result does not tell (interface.md 8)
CUID = "cuid"
LAST_4 = "last_4"
URL = "url"
EXPIRATION_DATE = "expiration_date"
ERROR = "error"
# Accepted spellings of each column (lower case, letters and digits only), the documented one first.
SPELLINGS: dict[str, tuple[str, ...]] = {
    CUID: ("cuid", "cardholdercuid"),
    LAST_4: ("last4", "lastfour", "cardlast4", "panlast4"),
    URL: ("url", "cardlinkurl", "link", "cardlink"),
    EXPIRATION_DATE: (
        "expirationdate",
        "expireson",
        "expiresat",
        "expirydate",
        "linkexpirationdate",
    ),
    ERROR: ("error", "errors", "errormessage"),
}


class ResultTable(Table):
    """The rows of a result file once read: every row once, null where a cell is absent."""

    position: pl.UInt32 = pa.Field(ge=1, unique=True)  # data row of the file, from 1
    cuid: pl.String = pa.Field(nullable=True)
    last_4: pl.String = pa.Field(nullable=True)
    url: pl.String = pa.Field(nullable=True)
    expires_on: pl.Date = pa.Field(nullable=True)  # null if the text is not a date
    expires_form: pl.String = pa.Field(nullable=True)  # of that text: A and 9 for its characters
    error: pl.String = pa.Field(nullable=True)  # raw: may echo card data, so it is never stored
