"""The correction template: what is wrong with a row in words, what is accepted, and one cell for the right value.

It holds no card number; card fields are corrected at the source only.
"""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from schemas.portal import CVV, CVV_HASH, MONTH, PAN, YEAR, columns

AT_SOURCE = frozenset({PAN, YEAR, MONTH, CVV, CVV_HASH})
SOURCE_ONLY = "correct it at the source"

# What a corrected extract may have beside the issuer's columns: the row it replaces, and of which run. Readers give a
# header that is called `row` the underscore: their frames have a `row` of their own.
ROW, RUN = "row_", "run"
BESIDE = (ROW, RUN)

UNNAMED = "is not accepted"  # of a rule whose kind has no words of its own below
WRONG = {
    "missing": "is missing", "placeholder": "is a placeholder", "format": "has the wrong form",
    "unknown": "is not known", "mismatch": "does not fit the rest", "luhn": "has a wrong check digit",
    "expired": "has expired", "far": "lies too far ahead", "soon": "ends too soon",
    "card_number": "holds a card number", "other_cuid": "stands under another cuid too",
    "newline": "was hashed with a line break", "utf16": "was hashed as UTF-16", "lost_zero": "lost a leading zero",
    "empty": "is the hash of nothing", "hex": "is written in hexadecimal", "base64_of_hex": "is encoded twice",
    "base64url": "is in the alphabet for URLs", "unpadded": "lacks the = at its end",
    "repeated": "is there already", "excluded": "is left out by the filter", "standing": "has a link",
    "awaiting": "waits for its answer", "refused": "was refused before", "invalid": "cannot be read",
    "unterminated": "has a quote that does not end", "bare": "has a quote inside", "too_few": "has too few fields",
    "too_many": "has too many fields", "short": "is too short", "long": "is too long",
    "control": "holds a control character", "unavailable": "could not be taken just then",
    "length": "has the wrong length", "exists": "is there already", "unsupported": "is not supported",
    "renewed": "has a newer link", "absent": "is not in the extract", "before_link": "ends before a link would",
    "unreadable": "is refused without a readable reason", "other": "is refused for another reason",
}  # fmt: skip


class Template(pa.DataFrameModel):
    """The template as it is written: one line per row and reason."""

    run: pl.String
    row: pl.UInt32 = pa.Field(ge=1)
    cuid: pl.String = pa.Field(nullable=True)
    last_4: pl.String = pa.Field(nullable=True, str_matches=r"^[0-9]{4}$")
    column: pl.String = pa.Field(nullable=True, isin=columns())  # empty: nothing tells which; may be filled in
    code: pl.String = pa.Field(str_matches=r"^[a-z0-9_]+\.[a-z0-9_]+\.[a-z0-9_]+$")
    wrong: pl.String
    accepted: pl.String
    correction: pl.String = pa.Field(nullable=True)  # for people to fill in

    class Config:
        """Exactly these columns in this order."""

        strict = True
        ordered = True


class Filled(pa.DataFrameModel):
    """What a filled-in template asks for: one line per corrected cell."""

    line: pl.UInt32 = pa.Field(ge=1)  # of the file, as an editor shows it
    row: pl.UInt32 = pa.Field(ge=1)
    cuid: pl.String = pa.Field(nullable=True)
    last_4: pl.String = pa.Field(nullable=True)
    column: pl.String = pa.Field(isin=[name for name in columns() if name not in AT_SOURCE])
    correction: pl.String

    class Config:
        """Exactly these columns in this order."""

        strict = True
        ordered = True


def template_columns() -> list[str]:
    """Return the template's columns, in order."""
    return list(Template.to_schema().columns)
