"""The correction template: what is wrong with a row, what is accepted, a cell for the right value.

It contains no card number: card fields are corrected at the source only.
"""

import pandera.polars as pa
import polars as pl

from flows.steps import Option, Sentence
from schemas.portal import CVV, CVV_HASH, MONTH, PAN, YEAR, columns
from schemas.tables import Table

AT_SOURCE = frozenset({PAN, YEAR, MONTH, CVV, CVV_HASH})
SOURCE_ONLY = Sentence(
    "correct it at the source, not here: its row is sent when it comes with a later extract, or "
    "from a corrected extract in the issuer's corrections, with {option}",
    option=Option("--extract", of="resubmit"),
)
_BY_SUBJECT = {name.rpartition(".")[2]: name for name in columns()}

# Extra columns of a corrected extract: the row it replaces, and of which run. The reader renames a
# header `row` to `row_`, because its frames have a `row` of their own.
ROW = "row_"
RUN = "run"
BESIDE = (ROW, RUN)

UNNAMED = "is not accepted"  # for a rule whose kind is not listed below
# What is wrong with a cell, by the kind of its reason.
WRONG = {
    "missing": "is missing",
    "ambiguous": "is there more than once, and differs",
    "orphan": "stands before the row that it belongs to",
    "placeholder": "is a placeholder",
    "format": "has the wrong form",
    "unknown": "is not known",
    "mismatch": "does not fit the rest",
    "luhn": "has a wrong check digit",
    "expired": "has expired",
    "far": "is too far in the future",
    "soon": "ends too soon",
    "card_number": "contains a card number",
    "other_cuid": "also appears under another cuid",
    "newline": "was hashed with a line break",
    "utf16": "was hashed as UTF-16",
    "lost_zero": "lost a leading zero",
    "empty": "is the hash of an empty text",
    "hex": "is written in hexadecimal",
    "base64_of_hex": "is encoded twice",
    "base64url": "uses the Base64 alphabet for URLs",
    "unpadded": "lacks the = at its end",
    "repeated": "appears more than once",
    "excluded": "is left out by [status]",
    "standing": "has a link",
    "awaiting": "is awaiting its result",
    "changed": "has changed since its link",
    "reverted": "is again as its link has it",
    "up": "is given up",
    "deleted": "is marked as deleted",
    "deleted_unreadable": "is marked as deleted and does not say which card",
    "refused": "was refused before",
    "not_eligible": "is not eligible",
    "not_served": "is in a country that is not served",
    "not_wanted": "is left out by [eligible]",
    "network_not_taken": "is of a network that the partner does not take",
    "length_not_taken": "has a length that the partner does not take",
    "erased": "is of a cardholder who was erased",
    "invalid": "cannot be read",
    "unterminated": "has an unclosed quote",
    "bare": "has a quote inside a field",
    "too_few": "has too few fields",
    "too_many": "has too many fields",
    "short": "is too short",
    "long": "is too long",
    "control": "contains a control character",
    "unavailable": "could not be processed at the time",
    "length": "has the wrong length",
    "exists": "already exists",
    "unsupported": "is not supported",
    "absent": "is not in the extract",
    "gone": "is in an extract that is gone",
    "none": "is in no extract",
    "before_link": "ends before a link would",
    "lost": "has no usable result",
    "unreadable": "was refused without a readable reason",
    "cancelled": "was cancelled",
    "other": "was refused for another reason",
    "unmapped": "cannot be read by [columns]",
    "invisible": "contains characters that cannot be seen",
    "replaced": "lost letters, which were replaced by U+FFFD",
    "garbled_twice": "is UTF-8 read as cp1252 twice",
    "garbled": "is UTF-8 read in another encoding",
    "lost_letters": "lost letters, which became question marks",
    "masked": "is a masked number",
}


def column_of(code: str) -> str | None:
    """Return the portal's column that a reason code is about, None where it names none."""
    _, _, subject_and_kind = code.partition(".")
    subject = subject_and_kind.partition(".")[0]
    return YEAR if subject == "expiration" else _BY_SUBJECT.get(subject)


def is_at_source(code: str) -> bool:
    """Return whether what a reason code is about can be corrected at the source only."""
    return code.startswith("line.") or column_of(code) in AT_SOURCE


class Template(Table):
    """The template as we write it: one line per row and reason."""

    run: pl.String
    row: pl.UInt32 = pa.Field(ge=1)
    line: pl.UInt32 = pa.Field(nullable=True, ge=1)  # physical line of the issuer's file
    cuid: pl.String = pa.Field(nullable=True)
    last_4: pl.String = pa.Field(nullable=True, str_matches=r"^[0-9]{4}$")
    source: pl.String = pa.Field(nullable=True)  # columns of the issuer's file
    # empty if unknown; may be filled in
    column: pl.String = pa.Field(nullable=True, isin=columns())
    code: pl.String = pa.Field(str_matches=r"^[a-z0-9_]+\.[a-z0-9_]+\.[a-z0-9_]+$")
    wrong: pl.String
    found: pl.String = pa.Field(nullable=True)  # its shape, or the size of the line
    expected: pl.String  # in the issuer's file
    accepted: pl.String  # as a correction
    correction: pl.String = pa.Field(nullable=True)  # for people to fill in


class Filled(Table):
    """The corrections of a filled-in template: one line per corrected cell."""

    line: pl.UInt32 = pa.Field(ge=1)  # line of the file, as an editor counts
    row: pl.UInt32 = pa.Field(ge=1)
    cuid: pl.String = pa.Field(nullable=True)
    last_4: pl.String = pa.Field(nullable=True)
    column: pl.String = pa.Field(isin=[name for name in columns() if name not in AT_SOURCE])
    correction: pl.String
