"""Which rows are not eligible for a link (`[eligible]`), before the rules ask if they are right.

A row is ineligible only where that is certain: a number of another length is a card of a network
whose check digit is right, and a country is one that is known. Anything else is for the rules.
"""

from datetime import date
from itertools import chain

import polars as pl

from flows.extracts.mapping import ELIGIBLE
from schemas import places
from schemas.conditions import AMERICAN, CANADIAN
from schemas.eligible import NETWORKS, OTHER_LENGTHS, Eligibility, is_foreign
from schemas.expressions import PAN_SHAPE, luhn_holds, yymm
from schemas.issuer import Issuer
from schemas.portal import COUNTRY, MONTH, PAN, YEAR
from schemas.reasons import (
    COUNTRY_NOT_SERVED,
    ENDS_BEFORE_LINK,
    LENGTH_NOT_TAKEN,
    NETWORK_NOT_TAKEN,
    NOT_WANTED,
)

_SERVED = {"US": AMERICAN, "CA": CANADIAN}


def ineligible(rows: pl.DataFrame, issuer: Issuer, as_of: date) -> pl.Series:
    """Return why each row is not eligible, as `column|code`; null where it is.

    `rows`: the portal's columns, normalised, and ELIGIBLE where it is mapped.
    """
    conditions = _conditions(issuer, as_of)
    if ELIGIBLE in rows.columns:
        conditions[f"|{NOT_WANTED}"] = ~pl.col(ELIGIBLE)
    asks_for_more = ELIGIBLE in rows.columns or issuer.eligible != Eligibility()
    why = pl.lit(None, pl.String)
    for reason, condition in reversed(conditions.items()):
        why = pl.when(condition.fill_null(value=False)).then(pl.lit(reason)).otherwise(why)
    why = why.alias("why")
    if asks_for_more:
        return rows.select(why).to_series()
    odd = rows.select(_is_odd().arg_true()).to_series()
    eligible = pl.repeat(None, rows.height, dtype=pl.String, eager=True).alias("why")
    return eligible.scatter(odd, rows[odd].select(why).to_series())


def _is_odd() -> pl.Expr:
    """Return whether a row may be ineligible where `[eligible]` asks for nothing: seldom any."""
    is_odd = (pl.col(PAN).str.len_bytes() != 16) | ~pl.col(COUNTRY).is_in(places.COUNTRIES)
    return is_odd.fill_null(value=False)


def _conditions(issuer: Issuer, as_of: date) -> dict[str, pl.Expr]:
    """Return what makes a row ineligible, by reason; the first that holds is reported."""
    settings = issuer.eligible
    pan = pl.col(PAN)
    country = pl.col(COUNTRY)
    conditions = {
        f"{PAN}|{LENGTH_NOT_TAKEN}": (pan.str.len_bytes() != 16)
        & pan.str.contains(OTHER_LENGTHS)
        & luhn_holds(pan),
        f"{COUNTRY}|{COUNTRY_NOT_SERVED}": ~country.is_in(places.COUNTRIES) & is_foreign(country),
    }
    others = [name for name in _SERVED if name not in settings.countries]
    if others:
        spellings = [*chain.from_iterable(_SERVED[name] for name in others)]
        conditions[f"{COUNTRY}|{COUNTRY_NOT_SERVED}"] |= country.is_in(spellings)
    if settings.networks:
        networks = "|".join(NETWORKS[network] for network in settings.networks)
        is_other = pan.str.contains(PAN_SHAPE) & luhn_holds(pan) & ~pan.str.contains(networks)
        conditions[f"{PAN}|{NETWORK_NOT_TAKEN}"] = is_other
    if not settings.ending_cards:
        link_ends = yymm(as_of, issuer.rules.link_life_months)
        expiry = pl.concat_str(YEAR, MONTH)
        is_date = expiry.str.contains("^[0-9]{2}(0[1-9]|1[0-2])$")
        conditions[f"{YEAR}|{ENDS_BEFORE_LINK}"] = is_date & (expiry < link_ends)
    return conditions
