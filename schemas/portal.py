"""The portal's input file: 20 columns, their order, names and rules (interface.md 2.6 and 8).

The partner's interface moves; what moves stands here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pandera.polars as pa
import polars as pl

from schemas import places
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

REQUIRED = {
    PAN: "card.pan", YEAR: "card.expiration_year", MONTH: "card.expiration_month", ADDRESS1: "address.address1",
    CITY: "address.city", SUBNATIONAL: "address.subnational", COUNTRY: "address.country",
    POSTAL_CODE: "address.postal_code", FIRST_NAME: "address.first_name", LAST_NAME: "address.last_name",
    IS_PRIMARY: "address.is_primary",
}  # fmt: skip
REPEATED_MARK = r"^(0{4,}|[xX]{3,}|[-.?*_]+)$"  # 0000, XXX, ---: what stands where nothing was known

_ZIP = r"^[0-9]{5}(-[0-9]{4})?$"
_CANADIAN = r"^[ABCEGHJ-NPRSTVXY][0-9][ABCEGHJ-NPRSTV-Z] [0-9][ABCEGHJ-NPRSTV-Z][0-9]$"
_EMAIL = r"^[^\s@,;<>\"]+@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)+$"
_PHONE = r"^\+?[0-9][0-9 ().-]{5,22}[0-9]$|^\([0-9][0-9 ().-]{5,22}[0-9]$"
_BASE64_SHA256 = r"^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$"  # 32 bytes leave two zero bits in the last letter


def _luhn_table() -> pl.Series:
    """Return the Luhn sum of each four-digit group: a 16-digit number is four lookups, not sixteen."""
    n = np.arange(10_000)
    doubled = lambda digit: digit * 2 - 9 * (digit > 4)  # noqa: E731  one line of arithmetic, used twice below
    return pl.Series(doubled(n // 1000) + n // 100 % 10 + doubled(n // 10 % 10) + n % 10, dtype=pl.UInt8)


_LUHN = _luhn_table()
_PLACES = pl.Series(sorted(places.postal_places()))


def luhn_holds(number: pl.Expr) -> pl.Expr:
    """Return whether 16-digit texts pass Luhn; null for texts of another shape."""
    groups = [number.str.slice(at, 4).cast(pl.UInt32, strict=False) for at in (0, 4, 8, 12)]
    total = pl.sum_horizontal(pl.lit(_LUHN).gather(group).cast(pl.UInt16) for group in groups)
    return pl.when(number.str.contains(r"^[0-9]{16}$")).then(total % 10 == 0)


def months_left(as_of: date) -> pl.Expr:
    """Return the months from that of `as_of` to the month a card expires at the end of; null where unreadable."""
    year, month = (pl.col(name).str.to_integer(strict=False) for name in (YEAR, MONTH))
    return (2000 + year - as_of.year) * 12 + month - as_of.month


def _rule(code: str, column: str, holds: pl.Expr) -> Any:
    """Return one named check of the model; a rule speaks only of values that are there, so null passes."""

    def check(cls: type, data: Any) -> pl.LazyFrame:
        frame: pl.LazyFrame = data.lazyframe
        return frame.select(holds.fill_null(True))

    return pa.check(column, name=code, n_failure_cases=0)(check)  # 0: pandera would keep the values


def _matches(column: str, pattern: str) -> pl.Expr:
    return pl.col(column).str.contains(pattern)


def _present(column: str) -> pl.Expr:
    return pl.col(column).is_not_null()


def _in(country: str) -> pl.Expr:
    return pl.col(COUNTRY).is_in([name for name in places.COUNTRIES if name[0].upper() == country[0]])


def _text(alias: str) -> Any:
    return pa.Field(
        alias=alias, nullable=True
    )  # absent is null; required columns say so by a rule with a code


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

    pan_missing = _rule("card.pan.missing", PAN, _present(PAN))
    year_missing = _rule("card.expiration_year.missing", YEAR, _present(YEAR))
    month_missing = _rule("card.expiration_month.missing", MONTH, _present(MONTH))
    address1_missing = _rule("address.address1.missing", ADDRESS1, _present(ADDRESS1))
    city_missing = _rule("address.city.missing", CITY, _present(CITY))
    subnational_missing = _rule("address.subnational.missing", SUBNATIONAL, _present(SUBNATIONAL))
    country_missing = _rule("address.country.missing", COUNTRY, _present(COUNTRY))
    postal_missing = _rule("address.postal_code.missing", POSTAL_CODE, _present(POSTAL_CODE))
    first_name_missing = _rule("address.first_name.missing", FIRST_NAME, _present(FIRST_NAME))
    last_name_missing = _rule("address.last_name.missing", LAST_NAME, _present(LAST_NAME))
    primary_missing = _rule("address.is_primary.missing", IS_PRIMARY, _present(IS_PRIMARY))
    cvv_missing = _rule("card.cvv.missing", CVV, _present(CVV) | _present(CVV_HASH))

    # Either would put a card number in the ledger.
    cuid_is_card = _rule(
        "cardholder.cuid.card_number",
        CUID,
        ~pl.col(CUID).str.contains(pl.col(PAN), literal=True).fill_null(False)
        & ~luhn_holds(pl.col(CUID)).fill_null(False),
    )
    cuid_format = _rule("cardholder.cuid.format", CUID, ~_matches(CUID, r"\p{Cc}"))
    pan_format = _rule("card.pan.format", PAN, _matches(PAN, r"^[0-9]{16}$"))
    pan_luhn = _rule("card.pan.luhn", PAN, luhn_holds(pl.col(PAN)))
    year_format = _rule("card.expiration_year.format", YEAR, _matches(YEAR, r"^[0-9]{2}$"))
    month_format = _rule("card.expiration_month.format", MONTH, _matches(MONTH, r"^(0[1-9]|1[0-2])$"))
    cvv_format = _rule("card.cvv.format", CVV, _matches(CVV, r"^[0-9]{3,4}$"))
    cvv_hash_format = _rule("card.cvv_hash.format", CVV_HASH, _matches(CVV_HASH, _BASE64_SHA256))
    name_digits = _rule("card.name_on_card.format", NAME_ON_CARD, ~_matches(NAME_ON_CARD, r"[0-9]"))
    country_unknown = _rule("address.country.unknown", COUNTRY, pl.col(COUNTRY).is_in(places.COUNTRIES))
    subnational_unknown = _rule(
        "address.subnational.unknown",
        SUBNATIONAL,
        pl.when(_in(places.US)).then(pl.col(SUBNATIONAL).is_in(list(places.STATES)))
        .when(_in(places.CANADA)).then(pl.col(SUBNATIONAL).is_in(list(places.PROVINCES))),
    )  # fmt: skip
    postal_format = _rule(
        "address.postal_code.format",
        POSTAL_CODE,
        pl.when(_in(places.US))
        .then(_matches(POSTAL_CODE, _ZIP))
        .when(_in(places.CANADA))
        .then(_matches(POSTAL_CODE, _CANADIAN)),
    )
    postal_mismatch = _rule(
        "address.postal_code.mismatch",
        POSTAL_CODE,
        pl.when(_in(places.US)).then(pl.format("US|{}|{}", pl.col(POSTAL_CODE).str.slice(0, 3), SUBNATIONAL))
        .when(_in(places.CANADA)).then(pl.format("CA|{}|{}", pl.col(POSTAL_CODE).str.slice(0, 1), SUBNATIONAL))
        .is_in(_PLACES.implode()),
    )  # fmt: skip
    email_format = _rule("address.email.format", EMAIL, _matches(EMAIL, _EMAIL))
    phone_format = _rule("address.phone_number.format", PHONE, _matches(PHONE, _PHONE))
    primary_format = _rule(
        "address.is_primary.format", IS_PRIMARY, pl.col(IS_PRIMARY).is_in(["TRUE", "FALSE"])
    )

    class Config:
        """Exactly these columns in this order."""

        strict = True
        ordered = True


class Sent(PortalInput):
    """A chunk as it leaves us: at most one of CVV and hash stands in a row."""

    one_secret = _rule("card.cvv.both", CVV, ~(_present(CVV) & _present(CVV_HASH)))


def columns() -> tuple[str, ...]:
    """Return the names of the 20 columns, in order (interface.md 2.6)."""
    return tuple(PortalInput.to_schema().columns)


def for_day(as_of: date, rules: Rules) -> pa.DataFrameSchema:
    """Return PortalInput with the rules that depend on the business date and on the issuer's settings."""
    left = months_left(as_of)
    checks = [
        (f"{stem}.placeholder", column, _no_placeholder(column, rules)) for column, stem in REQUIRED.items()
    ]
    checks += [
        ("card.expiration.expired", YEAR, left >= 0),
        ("card.expiration.far", YEAR, left <= 20 * 12),
        ("card.expiration.soon", YEAR, ~left.is_between(0, rules.link_life_months - 1)),
    ]
    schema = PortalInput.to_schema()
    for code, column, holds in checks:
        here = schema.columns[column].checks
        schema = schema.update_column(
            column, checks=[pa.Check(_holds(holds), name=code, n_failure_cases=0), *here]
        )
    return schema


def _holds(expression: pl.Expr) -> Callable[[Any], pl.LazyFrame]:
    def check(data: Any) -> pl.LazyFrame:
        frame: pl.LazyFrame = data.lazyframe
        return frame.select(expression.fill_null(True))

    return check


def _no_placeholder(column: str, rules: Rules) -> pl.Expr:
    return ~(pl.col(column).is_in(list(rules.placeholders)) | _matches(column, REPEATED_MARK))
