"""What rules ask of a row beyond the shape of one cell, as polars expressions over the portal's
columns.

A condition is true where the row is good, and null, which holds, where there is nothing to judge.
One that depends on the business date or the settings is a function of both. Building blocks are in
`schemas.expressions`; which rule asks what is in `schemas.rules`.
"""

from datetime import date

import polars as pl

from schemas import cvv, places
from schemas.expressions import (
    CANADIAN_SHAPE,
    FILLER_SHAPE,
    ZIP_SHAPE,
    holds_card,
    lacks,
    matches,
    one_of,
    yymm,
)
from schemas.issuer import RuleSettings
from schemas.portal import COUNTRY, CVV, CVV_HASH, MONTH, PAN, POSTAL_CODE, SUBNATIONAL, YEAR
from schemas.rule import Condition
from schemas.telling import tells_card

LONGEST = 254  # characters, as many as an e-mail address may have
FARTHEST = 20 * 12  # months; no card is valid for longer, so the digits mean something else
AMERICAN = tuple(country for country in places.COUNTRIES if country[0] in "Uu")
CANADIAN = tuple(country for country in places.COUNTRIES if country[0] in "Cc")


def no_placeholder(column: str) -> Condition:
    """Return the condition that a cell does not stand for nothing: NULL, N/A, ---, 0000."""
    return lambda _, settings: lacks(column, one_of(settings.placeholders, FILLER_SHAPE))


def short_enough(column: str) -> Condition:
    """Return the condition that a text has at most as many characters as its column may."""
    return lambda _, settings: (
        pl.col(column).str.len_chars() <= settings.max_length.get(column, LONGEST)
    )


def no_card_number(column: str) -> pl.Expr:
    """Return whether a text holds no card number, neither the row's own nor another."""
    return ~holds_card(pl.col(column), pl.col(PAN))


def tells_nothing(column: str) -> pl.Expr:
    """Return whether neither a card number nor any CVV follows from an identifier."""
    is_own_hash = (pl.col(column) == pl.col(CVV_HASH)).fill_null(value=False)
    return no_card_number(column) & ~tells_card(pl.col(column), pl.col(PAN)) & ~is_own_hash


def not_expired(as_of: date, _: RuleSettings) -> pl.Expr:
    """Return whether the card is valid on the business date; it is to the end of its month."""
    return ~_is_dated() | (_expiry() >= yymm(as_of))


def not_far(as_of: date, _: RuleSettings) -> pl.Expr:
    """Return whether the card ends no later than a card can."""
    return ~_is_dated() | (_expiry() <= yymm(as_of, FARTHEST))


def outlives_its_link(as_of: date, settings: RuleSettings) -> pl.Expr:
    """Return whether the card is valid until its link ends; one that has expired is not asked."""
    link_ends = yymm(as_of, settings.link_life_months)
    return ~_is_dated() | (_expiry() < yymm(as_of)) | (_expiry() >= link_ends)


def hash_without(mistake: str) -> pl.Expr:
    """Return whether the CVV hash does not have this mistake, one of `schemas.cvv`."""
    return cvv.mistake(pl.col(CVV_HASH)).ne_missing(pl.lit(mistake))


def hash_of_a_cvv() -> pl.Expr:
    """Return whether the CVV hash is that of any CVV."""
    return pl.col(CVV_HASH).is_in(cvv.all_hashes().implode())


def hash_of_its_cvv() -> pl.Expr:
    """Return whether the CVV hash is that of the CVV beside it."""
    beside = pl.when(pl.col(CVV_HASH).is_not_null()).then(CVV)
    return cvv.hash_of_each(beside) == pl.col(CVV_HASH)


def subnational_of_its_country() -> pl.Expr:
    """Return whether the state or province is one of the row's country."""
    state = pl.col(SUBNATIONAL)
    return _by_country(state.is_in(list(places.STATES)), state.is_in(list(places.PROVINCES)))


def postal_code_of_its_country() -> pl.Expr:
    """Return whether the postal code has the form of the row's country."""
    return _by_country(matches(POSTAL_CODE, ZIP_SHAPE), matches(POSTAL_CODE, CANADIAN_SHAPE))


def postal_code_in_its_state() -> pl.Expr:
    """Return whether the postal code is one of the row's state or province."""
    code = pl.col(POSTAL_CODE)
    state = pl.col(SUBNATIONAL)
    place = _by_country(code.str.slice(0, 3) + state, code.str.slice(0, 1) + state)
    return place.is_in(pl.Series(sorted(places.postal_places())).implode())


def _expiry() -> pl.Expr:
    """Return YYMM, which sorts as text; polars makes it once for all rules."""
    return pl.concat_str(YEAR, MONTH)


def _is_dated() -> pl.Expr:
    """Return whether year and month can be read."""
    return _expiry().str.contains("^[0-9]{2}(0[1-9]|1[0-2])$")


def _by_country(american: pl.Expr, canadian: pl.Expr) -> pl.Expr:
    """Return the expression of the row's country; null where the country is unknown."""
    country = pl.col(COUNTRY)
    return (
        pl.when(country.is_in(AMERICAN)).then(american).when(country.is_in(CANADIAN)).then(canadian)
    )
