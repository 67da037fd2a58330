"""Normalising: the spellings extracts use become the one spelling the portal takes. Decides nothing, refuses nothing."""

from __future__ import annotations

import polars as pl

from schemas import places
from schemas.portal import (
    COUNTRY,
    CUID,
    CVV,
    CVV_HASH,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    MONTH,
    NAME_ON_CARD,
    PAN,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
    columns,
)
from schemas.rules import Rules

# strip_chars() alone leaves the zero-width ones, which no eye can see and every comparison does.
EDGES = (
    " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\u200b\u200c\u200d\u2060\ufeff"
    + "".join(map(chr, range(0x2000, 0x200B)))
)
BREAKS = r"[\p{Cc}\x{2028}\x{2029}]+"  # no newline inside a field may leave us
TRUE = ("TRUE", "T", "YES", "Y", "1")
FALSE = ("FALSE", "F", "NO", "N", "0")


def normalise(rows: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Return `rows` with every cell in the portal's spelling; same shape, twice is the same as once (interface.md 2.6)."""
    trimmed = rows.with_columns(_trimmed(name) for name in columns())
    spelled = trimmed.with_columns(
        _pan(), _month(), _year(), _boolean(), _mapped(COUNTRY, places.country_spellings())
    )
    placed = spelled.with_columns(_subnational()).with_columns(_postal_code(rules))
    return placed.with_columns(_name_on_card()) if rules.fill_name_on_card else placed


def _trimmed(name: str) -> pl.Expr:
    """Trim, join lines and compose accents; a cuid, CVV or hash is another's text: trimmed only."""
    text = pl.col(name)
    if name not in (CUID, CVV, CVV_HASH):
        text = text.str.replace_all(BREAKS, " ").str.normalize("NFC")
    text = text.str.strip_chars(EDGES)
    return pl.when(text != "").then(text).alias(name)


def _pan() -> pl.Expr:
    return pl.col(PAN).str.replace_all(r"[\s\p{Pd}\x{200B}\x{FEFF}]", "")


def _month() -> pl.Expr:
    return pl.col(MONTH).str.replace(r"^([1-9])$", "0${1}")


def _year() -> pl.Expr:
    return pl.col(YEAR).str.replace(r"^20([0-9]{2})$", "${1}")


def _boolean() -> pl.Expr:
    upper = pl.col(IS_PRIMARY).str.to_uppercase()
    return (
        pl.when(upper.is_in(TRUE)).then(pl.lit("TRUE"))
        .when(upper.is_in(FALSE)).then(pl.lit("FALSE"))
        .otherwise(IS_PRIMARY).alias(IS_PRIMARY)
    )  # fmt: skip


def _mapped(name: str, spellings: dict[str, str]) -> pl.Expr:
    """Return the column with each known spelling replaced, whatever its case; others stay."""
    known = pl.col(name).str.to_uppercase()
    return pl.coalesce(
        known.replace_strict(spellings, default=None, return_dtype=pl.String), pl.col(name)
    ).alias(name)


def _subnational() -> pl.Expr:
    plain = pl.col(SUBNATIONAL).str.to_uppercase().str.replace_all(r"[.\s]+", " ").str.strip_chars()
    code = pl.when(pl.col(COUNTRY) == places.US).then(
        plain.replace_strict(places.subnational_spellings(places.US), default=None, return_dtype=pl.String)
    ).when(pl.col(COUNTRY) == places.CANADA).then(
        plain.replace_strict(places.subnational_spellings(places.CANADA), default=None, return_dtype=pl.String)
    )  # fmt: skip
    return pl.coalesce(code, pl.col(SUBNATIONAL)).alias(SUBNATIONAL)


def _postal_code(rules: Rules) -> pl.Expr:
    """Spell ZIP and Canadian codes; ZIP+4 is cut, as the challenge at the link asks for what a cardholder knows."""
    text = pl.col(POSTAL_CODE)
    american = text.str.replace(
        r"^([0-9]{5})[-\s]?([0-9]{4})$", "${1}-${2}" if rules.keep_zip_plus_4 else "${1}"
    )
    canadian = text.str.to_uppercase().str.replace(r"^([A-Z][0-9][A-Z])[-\s]*([0-9][A-Z][0-9])$", "${1} ${2}")
    return (
        pl.when(pl.col(COUNTRY) == places.US).then(american)
        .when(pl.col(COUNTRY) == places.CANADA).then(canadian)
        .otherwise(text).alias(POSTAL_CODE)
    )  # fmt: skip


def _name_on_card() -> pl.Expr:
    """Fill an absent name from first and last name: optional here, required by the partner's sibling interface."""
    whole = pl.concat_str(FIRST_NAME, LAST_NAME, separator=" ")
    return pl.coalesce(NAME_ON_CARD, whole).alias(NAME_ON_CARD)
