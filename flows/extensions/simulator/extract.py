"""Writes a sample extract of any size, with test cards only.

It returns the truth about every row that it made bad on purpose. What a seed gives depends on the
order of the draws: nothing may draw in between.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from hashlib import sha256
from io import BytesIO
from typing import BinaryIO, NamedTuple

import numpy as np
import polars as pl

from flows.extensions.simulator.people import FIRST_NAMES, LAST_NAMES, PLACES, STREETS, UNITS
from schemas import portal
from schemas.expressions import GENERATED, PUBLISHED

BLOCK = 100_000
STRIDE = 618_033_989  # shares no factor with 10**9, so a billion rows have a billion card numbers


class Dialect(NamedTuple):
    """How an issuer writes.

    `names` maps portal columns to the issuer's header, `trailer` holds `{rows}`.
    """

    delimiter: str = ","
    encoding: str = "utf-8"
    newline: str = "\n"
    names: Mapping[str, str] | None = None
    trailer: str = ""


class SampleTruth(NamedTuple):
    """What was written: the number of data rows, and which must be refused (row, column, code)."""

    rows: int
    bad: pl.DataFrame


class Flaw(NamedTuple):
    """One way of making a row bad: a column, what it holds instead, the code of its refusal."""

    column: str
    instead: pl.Expr
    code: str


def write_sample(
    out: BinaryIO,
    rows: int,
    *,
    as_of: date,
    bad: float = 0.0,
    seed: int = 0,
    dialect: Dialect | None = None,
    published: bool = False,
) -> SampleTruth:
    """Write `rows` data rows of interface.md 2.6 to `out`, a share `bad` of them with a flaw each.

    `published`: with published test cards only, over and over, for a portal that is not sealed.
    """
    dialect = dialect or Dialect()
    truths = []
    for number, block in enumerate(_blocks(rows, as_of, seed)):
        if published:
            cards = pl.Series(PUBLISHED).gather((block["row"] - 1) % len(PUBLISHED))
            block = block.with_columns(cards.alias(portal.PAN))
        flawed, truth = _spoil(block, bad, flaws(as_of), np.random.default_rng([seed, number, 1]))
        _write(out, flawed.drop("row"), dialect, header=number == 0)
        truths.append(truth)
    if dialect.trailer:
        out.write((dialect.trailer.format(rows=rows) + dialect.newline).encode(dialect.encoding))
    return SampleTruth(rows, pl.concat(truths))


def flaws(as_of: date) -> tuple[Flaw, ...]:
    """Return every way `write_sample` makes a row bad on the business date `as_of`."""
    nothing = pl.lit(None, pl.String)
    pan = pl.col(portal.PAN)
    next_digit = (pan.str.slice(-1).cast(pl.Int8) + 1) % 10
    elsewhere = (
        pl.when(pl.col(portal.COUNTRY) == "US")
        .then(pl.lit("00605"))
        .when(pl.col(portal.SUBNATIONAL) == "ON")
        .then(pl.lit("V6B 1A1"))
        .otherwise(pl.lit("K1A 0B1"))
    )
    return (
        Flaw(portal.CUID, pan, "cardholder.cuid.card_number"),
        Flaw(portal.PAN, nothing, "card.pan.missing"),
        Flaw(portal.PAN, pan.str.slice(0, 15), "card.pan.format"),
        Flaw(portal.PAN, pan.str.slice(0, 15) + next_digit.cast(pl.String), "card.pan.luhn"),
        Flaw(portal.MONTH, pl.lit("13"), "card.expiration_month.format"),
        Flaw(portal.YEAR, pl.lit(f"{(as_of.year - 1) % 100:02d}"), "card.expiration.expired"),
        Flaw(portal.CVV, pl.lit("12345"), "card.cvv.format"),
        Flaw(portal.ADDRESS1, nothing, "address.address1.missing"),
        Flaw(portal.CITY, pl.lit("N/A"), "address.city.placeholder"),
        Flaw(portal.SUBNATIONAL, pl.lit("ZZ"), "address.subnational.unknown"),
        Flaw(portal.COUNTRY, pl.lit("Atlantis"), "address.country.unknown"),
        Flaw(portal.POSTAL_CODE, nothing, "address.postal_code.missing"),
        Flaw(portal.POSTAL_CODE, elsewhere, "address.postal_code.mismatch"),
        Flaw(portal.FIRST_NAME, nothing, "address.first_name.missing"),
        Flaw(portal.LAST_NAME, pl.lit("NULL"), "address.last_name.placeholder"),
        Flaw(portal.IS_PRIMARY, pl.lit("perhaps"), "address.is_primary.format"),
    )


def _blocks(rows: int, as_of: date, seed: int) -> Iterator[pl.DataFrame]:
    for number, first in enumerate(range(0, max(rows, 1), BLOCK)):
        ordinals = np.arange(first + 1, min(first + BLOCK, rows) + 1, dtype=np.int64)
        yield _people(ordinals, as_of, seed, np.random.default_rng([seed, number, 0]))


class _Draws:
    """Draws one value for each row of a block."""

    def __init__(self, rng: np.random.Generator, rows: int) -> None:
        self._rng = rng
        self._rows = rows

    def integers(self, low: int, high: int) -> np.ndarray:
        """Draw numbers from `low` up to, but not including, `high`."""
        return self._rng.integers(low, high, self._rows)

    def flags(self, share: float) -> np.ndarray:
        """Draw which rows belong to a share."""
        return self._rng.random(self._rows) < share

    def texts(self, values: Sequence[str | None]) -> pl.Series:
        """Draw one of the values for each row."""
        return pl.Series(values, dtype=pl.String).gather(self.integers(0, len(values)))


def _people(ordinals: np.ndarray, as_of: date, seed: int, rng: np.random.Generator) -> pl.DataFrame:
    """Return one block of good rows: `row`, then the portal's columns."""
    count = len(ordinals)
    row = pl.Series("row", ordinals).cast(pl.UInt32)
    draws = _Draws(rng, count)
    place = pl.Series(draws.integers(0, len(PLACES)))
    # well after the two months of a link
    months = as_of.year * 12 + as_of.month - 1 + draws.integers(6, 54)
    cvv = draws.integers(0, 1000)
    is_hashed = pl.Series(draws.flags(0.1))
    house = pl.Series(draws.integers(1, 9999)).cast(pl.String)
    line = pl.Series(draws.integers(100, 200)).cast(pl.String)
    nickname = draws.texts(("Everyday", None, None))
    street = draws.texts(STREETS)
    unit = draws.texts((*UNITS, *(None,) * 8))
    first_name = draws.texts(FIRST_NAMES)
    last_name = draws.texts(LAST_NAMES)
    is_primary = draws.texts(("TRUE", "TRUE", "TRUE", "FALSE"))

    def at_place(values: Iterable[str]) -> pl.Series:
        return pl.Series(list(values)).gather(place)

    cells = {
        portal.CUID: pl.select(pl.lit(f"S{seed}-") + row.cast(pl.String).str.zfill(8)).to_series(),
        portal.PAN: pl.Series(_pans(ordinals, seed)),
        portal.YEAR: _digits(months // 12 % 100, 2),
        portal.MONTH: _digits(months % 12 + 1, 2),
        portal.CVV_HASH: _hashes().gather(cvv).zip_with(is_hashed, _nothing(count)),
        portal.CVV: _digits(cvv, 3).zip_with(~is_hashed, _nothing(count)),
        portal.NICKNAME: nickname,
        portal.ADDRESS1: house + " " + street,
        portal.ADDRESS2: unit,
        portal.CITY: at_place(place.city for place in PLACES),
        portal.SUBNATIONAL: at_place(place.subnational for place in PLACES),
        portal.COUNTRY: at_place(place.country for place in PLACES),
        portal.POSTAL_CODE: at_place(place.postal_code for place in PLACES),
        portal.EMAIL: pl.select(
            pl.lit("holder") + row.cast(pl.String) + "@example.com"
        ).to_series(),
        portal.PHONE: at_place(place.area for place in PLACES) + "-555-0" + line,
        portal.FIRST_NAME: first_name,
        portal.LAST_NAME: last_name,
        portal.IS_PRIMARY: is_primary,
    }
    columns = {name: cells.get(name, _nothing(count)) for name in portal.columns()}
    return pl.DataFrame({"row": row, **columns})


def _digits(numbers: np.ndarray, width: int) -> pl.Series:
    return pl.Series(numbers).cast(pl.String).str.zfill(width)


def _nothing(count: int) -> pl.Series:
    return pl.Series([None], dtype=pl.String).new_from_index(0, count)


def _hashes() -> pl.Series:
    return pl.Series(
        [base64.b64encode(sha256(b"%03d" % cvv).digest()).decode() for cvv in range(1000)]
    )


def _pans(ordinals: np.ndarray, seed: int) -> list[str]:
    """Return a card number each: the published test cards, then new ones under the test BIN."""
    body = int(GENERATED) * 10**9 + (ordinals * STRIDE + seed * 7919) % 10**9
    total = np.zeros_like(body)
    for place in range(15):
        weight = 2 if place % 2 == 0 else 1
        weighted = body // 10**place % 10 * weight
        total += weighted // 10 + weighted % 10
    pans = (body * 10 + -total % 10).astype(str).tolist()
    return [
        PUBLISHED[row - 1] if row <= len(PUBLISHED) else pan
        for row, pan in zip(ordinals, pans, strict=True)
    ]


def _spoil(
    block: pl.DataFrame, share: float, ways: Sequence[Flaw], rng: np.random.Generator
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Give a share of the rows one flaw each; return the block and row, column, code of those."""
    draws = _Draws(rng, block.height)
    is_bad = draws.flags(share)
    number_of_flaw = np.where(is_bad, draws.integers(0, len(ways)), -1)
    marked = block.with_columns(flaw=pl.Series(number_of_flaw))
    for number, way in enumerate(ways):
        spoilt = pl.when(pl.col("flaw") == number).then(way.instead).otherwise(way.column)
        marked = marked.with_columns(spoilt.alias(way.column))
    expected = pl.DataFrame(
        {
            "flaw": pl.Series(range(len(ways)), dtype=pl.Int64),
            "column": [way.column for way in ways],
            "code": [way.code for way in ways],
        }
    )
    truth = marked.select("row", "flaw").join(expected, on="flaw")
    return marked.drop("flaw"), truth.drop("flaw").sort("row")


def _write(out: BinaryIO, block: pl.DataFrame, dialect: Dialect, *, header: bool) -> None:
    names = dialect.names or {name: name for name in portal.columns()}
    text = BytesIO()
    block.select(pl.col(column).alias(name) for column, name in names.items()).write_csv(
        text, include_header=header, separator=dialect.delimiter, line_terminator=dialect.newline
    )
    content = text.getvalue()
    if dialect.encoding != "utf-8":
        content = content.decode().encode(dialect.encoding)
    out.write(content)
