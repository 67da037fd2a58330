"""The portal's input file: 20 columns, their order, names and rules (interface.md 2.6 and 8).

The partner's interface moves; what moves stands here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import cache
from typing import Any, NamedTuple

import pandera.polars as pa
import polars as pl

from schemas import places
from schemas.expressions import (
    CANADIAN_SHAPE,
    CVV_SHAPE,
    EMAIL_SHAPE,
    FILLER_SHAPE,
    HASH_SHAPE,
    MONTH_SHAPE,
    PAN_SHAPE,
    PHONE_SHAPE,
    YEAR_SHAPE,
    ZIP_SHAPE,
    expires,
    holds_card,
    luhn_holds,
    one_of,
    yymm,
)
from schemas.rules import Rules

INTERFACE = "2.6/2026-11"  # goes into the settings digest: a changed contract is a changed run
MAX_ROWS = 1000  # cardholders per upload file

CUID = "cardholder.cuid"
PAN = "service_card.pan"
YEAR = "service_card.expiration_year"
MONTH = "service_card.expiration_month"
NAME_ON_CARD = "service_card.name_on_card"
CVV_HASH = "service_card.cvv_hash"
CVV = "service_card.cvv"
CUSTOMER_KEY = "service_card.customer_key"
NICKNAME = "service_card.nickname"
ADDRESS1 = "service_card.address.address1"
ADDRESS2 = "service_card.address.address2"
CITY = "service_card.address.city"
SUBNATIONAL = "service_card.address.subnational"
COUNTRY = "service_card.address.country"
POSTAL_CODE = "service_card.address.postal_code"
EMAIL = "service_card.address.email"
PHONE = "service_card.address.phone_number"
FIRST_NAME = "service_card.address.first_name"
LAST_NAME = "service_card.address.last_name"
IS_PRIMARY = "service_card.address.is_primary"

NO_PLACEHOLDER = {
    CUID: "cardholder.cuid", PAN: "card.pan", YEAR: "card.expiration_year", MONTH: "card.expiration_month",
    ADDRESS1: "address.address1", CITY: "address.city", SUBNATIONAL: "address.subnational",
    COUNTRY: "address.country", POSTAL_CODE: "address.postal_code", FIRST_NAME: "address.first_name",
    LAST_NAME: "address.last_name", IS_PRIMARY: "address.is_primary",
}  # fmt: skip
FARTHEST = 20 * 12  # months; no card is made for longer, so the digits mean something else
_PLACES = pl.Series(sorted(places.postal_places())).implode()


class Rule(NamedTuple):
    """One rule: the column it speaks of, its code, and an expression that is false where a row breaks it."""

    column: str
    code: str
    holds: pl.Expr


_STANDING: dict[str, Rule] = {}  # the rules of the models' bodies by code; pandera keeps functions only


def _holds(expression: pl.Expr) -> Callable[[Any], pl.LazyFrame]:
    """Return a pandera check function."""

    def check(data: Any) -> pl.LazyFrame:
        frame: pl.LazyFrame = data.lazyframe
        return frame.select(expression)

    return check


def _made(code: str, column: str, holds: pl.Expr) -> Rule:
    return Rule(column, code, holds.fill_null(True))  # a rule speaks only of values that are there


def _rule(code: str, column: str, holds: pl.Expr) -> Any:
    """Return one named check for the model's body."""
    rule = _STANDING[code] = _made(code, column, holds)

    def check(cls: type, data: Any) -> pl.LazyFrame:
        return _holds(rule.holds)(data)

    named = pa.check(column, name=code, n_failure_cases=0)  # 0: pandera would keep the values
    return named(check)


def _required(code: str, column: str) -> Any:
    return _rule(code, column, pl.col(column).is_not_null())


def _shaped(code: str, column: str, shape: str) -> Any:
    return _rule(code, column, pl.col(column).str.contains(shape))


def _by_country(american: pl.Expr, canadian: pl.Expr) -> pl.Expr:
    """Return the expression of the row's country; null, which passes, where we do not know the country."""
    us, ca = (pl.col(COUNTRY).is_in([name for name in places.COUNTRIES if name[0] in first]) for first in ("uU", "cC"))
    return pl.when(us).then(american).when(ca).then(canadian)


def _text(alias: str) -> Any:
    return pa.Field(alias=alias, nullable=True)  # absent is null; required columns say so by a rule with a code


class PortalInput(pa.DataFrameModel):
    """The portal's input file after normalising: 20 columns of text, and every rule under its reason code."""

    cuid: pl.String = _text(CUID)
    pan: pl.String = _text(PAN)
    expiration_year: pl.String = _text(YEAR)
    expiration_month: pl.String = _text(MONTH)
    name_on_card: pl.String = _text(NAME_ON_CARD)
    cvv_hash: pl.String = _text(CVV_HASH)
    cvv: pl.String = _text(CVV)
    customer_key: pl.String = _text(CUSTOMER_KEY)
    nickname: pl.String = _text(NICKNAME)
    address1: pl.String = _text(ADDRESS1)
    address2: pl.String = _text(ADDRESS2)
    city: pl.String = _text(CITY)
    subnational: pl.String = _text(SUBNATIONAL)
    country: pl.String = _text(COUNTRY)
    postal_code: pl.String = _text(POSTAL_CODE)
    email: pl.String = _text(EMAIL)
    phone_number: pl.String = _text(PHONE)
    first_name: pl.String = _text(FIRST_NAME)
    last_name: pl.String = _text(LAST_NAME)
    is_primary: pl.String = _text(IS_PRIMARY)

    pan_missing = _required("card.pan.missing", PAN)
    year_missing = _required("card.expiration_year.missing", YEAR)
    month_missing = _required("card.expiration_month.missing", MONTH)
    address1_missing = _required("address.address1.missing", ADDRESS1)
    city_missing = _required("address.city.missing", CITY)
    subnational_missing = _required("address.subnational.missing", SUBNATIONAL)
    country_missing = _required("address.country.missing", COUNTRY)
    postal_code_missing = _required("address.postal_code.missing", POSTAL_CODE)
    first_name_missing = _required("address.first_name.missing", FIRST_NAME)
    last_name_missing = _required("address.last_name.missing", LAST_NAME)
    is_primary_missing = _required("address.is_primary.missing", IS_PRIMARY)
    name_on_card_missing = _required("card.name_on_card.missing", NAME_ON_CARD)
    cvv_missing = _rule("card.cvv.missing", CVV, pl.col(CVV).is_not_null() | pl.col(CVV_HASH).is_not_null())

    # It would put a card number in the ledger.
    cuid_card_number = _rule("cardholder.cuid.card_number", CUID, ~holds_card(pl.col(CUID), pl.col(PAN)))
    cuid_format = _rule("cardholder.cuid.format", CUID, ~pl.col(CUID).str.contains(r"\p{Cc}"))  # sent as it came
    pan_format = _shaped("card.pan.format", PAN, PAN_SHAPE)
    pan_luhn = _rule("card.pan.luhn", PAN, luhn_holds(pl.col(PAN)))
    year_format = _shaped("card.expiration_year.format", YEAR, YEAR_SHAPE)
    month_format = _shaped("card.expiration_month.format", MONTH, MONTH_SHAPE)
    name_on_card_format = _shaped("card.name_on_card.format", NAME_ON_CARD, r"^[^0-9]*\p{L}[^0-9]*$")
    cvv_format = _shaped("card.cvv.format", CVV, CVV_SHAPE)
    cvv_hash_format = _shaped("card.cvv_hash.format", CVV_HASH, HASH_SHAPE)
    country_unknown = _rule("address.country.unknown", COUNTRY, pl.col(COUNTRY).is_in(places.COUNTRIES))
    subnational_unknown = _rule(
        "address.subnational.unknown",
        SUBNATIONAL,
        _by_country(pl.col(SUBNATIONAL).is_in(list(places.STATES)), pl.col(SUBNATIONAL).is_in(list(places.PROVINCES))),
    )
    postal_code_format = _rule(
        "address.postal_code.format",
        POSTAL_CODE,
        _by_country(pl.col(POSTAL_CODE).str.contains(ZIP_SHAPE), pl.col(POSTAL_CODE).str.contains(CANADIAN_SHAPE)),
    )
    postal_code_mismatch = _rule(
        "address.postal_code.mismatch",
        POSTAL_CODE,
        _by_country(
            pl.col(POSTAL_CODE).str.slice(0, 3) + pl.col(SUBNATIONAL),
            pl.col(POSTAL_CODE).str.slice(0, 1) + pl.col(SUBNATIONAL),
        ).is_in(_PLACES),
    )
    email_format = _shaped("address.email.format", EMAIL, EMAIL_SHAPE)
    phone_number_format = _shaped("address.phone_number.format", PHONE, PHONE_SHAPE)
    is_primary_format = _rule("address.is_primary.format", IS_PRIMARY, pl.col(IS_PRIMARY).is_in(["TRUE", "FALSE"]))

    class Config:
        """Exactly these columns in this order."""

        strict = True
        ordered = True


class Sent(PortalInput):
    """A chunk as it leaves us: at most one of CVV and hash stands in a row."""

    one_secret = _rule("card.cvv.both", CVV, pl.col(CVV).is_null() | pl.col(CVV_HASH).is_null())


@cache
def columns() -> tuple[str, ...]:
    """Return the names of the 20 columns, in order (interface.md 2.6)."""
    return tuple(PortalInput.to_schema().columns)


@cache
def for_day(as_of: date, rules: Rules) -> pa.DataFrameSchema:
    """Return PortalInput with the rules that depend on the business date and on the issuer's settings.

    Of the rules a cell breaks only the first is told, so a placeholder comes before the shape it has not.
    """
    schema = PortalInput.to_schema()
    for rule in _placeholders(rules):
        schema = schema.update_column(rule.column, checks=[_check(rule), *schema.columns[rule.column].checks])
    dated = [_check(rule) for rule in _of_the_day(as_of, rules)]
    return schema.update_column(YEAR, checks=[*schema.columns[YEAR].checks, *dated])


@cache
def rules_of_day(as_of: date, rules: Rules) -> tuple[Rule, ...]:
    """Return the rules of `for_day`, in its order, as expressions: asked together they cost half as much."""
    known = _STANDING | {rule.code: rule for rule in (*_placeholders(rules), *_of_the_day(as_of, rules))}
    columns_of_day = for_day(as_of, rules).columns.values()
    return tuple(known[str(check.name)] for column in columns_of_day for check in column.checks)


def _placeholders(rules: Rules) -> list[Rule]:
    placeholder = one_of(rules.placeholders, FILLER_SHAPE)
    return [
        _made(f"{stem}.placeholder", column, ~pl.col(column).str.contains(placeholder))
        for column, stem in NO_PLACEHOLDER.items()
    ]


def _of_the_day(as_of: date, rules: Rules) -> list[Rule]:
    expiry, now = expires(pl.col(YEAR), pl.col(MONTH)), yymm(as_of)
    return [
        _made("card.expiration.expired", YEAR, expiry >= now),  # valid to the end of its month
        _made("card.expiration.far", YEAR, expiry <= yymm(as_of, FARTHEST)),
        _made("card.expiration.soon", YEAR, (expiry < now) | (expiry >= yymm(as_of, rules.link_life_months))),
    ]


def _check(rule: Rule) -> pa.Check:
    return pa.Check(_holds(rule.holds), name=rule.code, n_failure_cases=0)
