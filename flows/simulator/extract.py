"""Writes a sample extract of any size: test cards only, and the truth about every row made bad on
purpose.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from hashlib import sha256
from io import BytesIO
from typing import BinaryIO, NamedTuple

import numpy as np
import polars as pl

from flows.simulator.people import FIRST_NAMES, LAST_NAMES, PLACES, STREETS, UNITS
from schemas import portal
from schemas.expressions import GENERATED, PUBLISHED

BLOCK = 100_000
STRIDE = 618_033_989  # shares no factor with 10**9, so a billion rows have a billion card numbers


class Dialect(NamedTuple):
    """How an issuer writes: `names` maps portal columns to the issuer's header, `trailer` holds
    `{rows}`.
    """

    delimiter: str = ","
    encoding: str = "utf-8"
    newline: str = "\n"
    names: Mapping[str, str] | None = None
    trailer: str = ""


class SampleTruth(NamedTuple):
    """What was written: data rows, and a frame row, column, code of the rows that must be
    refused.
    """

    rows: int
    bad: pl.DataFrame


class Flaw(NamedTuple):
    """One way of making a row bad: the column, what it holds instead, the code it must be refused
    with.
    """

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
    nothing, pan = pl.lit(None, pl.String), pl.col(portal.PAN)
    next_digit = (pan.str.slice(-1).cast(pl.Int8) + 1) % 10
    elsewhere = (
        pl.when(pl.col(portal.COUNTRY) == "US").then(pl.lit("00605"))
        .when(pl.col(portal.SUBNATIONAL) == "ON").then(pl.lit("V6B 1A1")).otherwise(pl.lit("K1A 0B1"))
    )  # fmt: skip
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


def _people(ordinals: np.ndarray, as_of: date, seed: int, rng: np.random.Generator) -> pl.DataFrame:
    """Return one block of good rows: `row`, then the portal's columns."""
    count = len(ordinals)

    def pick(values: Sequence[str | None]) -> pl.Series:
        return pl.Series(values, dtype=pl.String).gather(rng.integers(0, len(values), count))

    place = pl.Series(rng.integers(0, len(PLACES), count))
    city, state, postal, area = (
        pl.Series(field).gather(place) for field in zip(*PLACES, strict=True)
    )
    # months: well after the link's two
    ripe = as_of.year * 12 + as_of.month - 1 + rng.integers(6, 54, count)
    cvv = rng.integers(0, 1000, count)
    hashed = rng.random(count) < 0.1
    row = pl.Series("row", ordinals).cast(pl.UInt32)
    house, line = (
        pl.Series(rng.integers(low, high, count)).cast(pl.String)
        for low, high in ((1, 9999), (100, 200))
    )
    frame = pl.DataFrame(
        {"row": row, "cvv": cvv, "hashed": hashed, "year": ripe // 12 % 100, "month": ripe % 12 + 1}
    )
    padded = frame.select(
        pl.col("cvv").cast(pl.String).str.zfill(3),
        pl.col("year", "month").cast(pl.String).str.zfill(2),
    )
    built = {
        portal.CUID: pl.select(pl.lit(f"S{seed}-") + row.cast(pl.String).str.zfill(8)).to_series(),
        portal.PAN: pl.Series(_pans(ordinals, seed)),
        portal.YEAR: padded["year"],
        portal.MONTH: padded["month"],
        portal.CVV_HASH: _hashes().gather(cvv).zip_with(frame["hashed"], _nothing(count)),
        portal.CVV: padded["cvv"].zip_with(~frame["hashed"], _nothing(count)),
        portal.NICKNAME: pick(("Everyday", None, None)),
        portal.ADDRESS1: house + " " + pick(STREETS),
        portal.ADDRESS2: pick((*UNITS, *(None,) * 8)),
        portal.CITY: city,
        portal.SUBNATIONAL: state,
        portal.COUNTRY: pl.Series(["CA" if " " in place[2] else "US" for place in PLACES]).gather(
            place
        ),
        portal.POSTAL_CODE: postal,
        portal.EMAIL: pl.select(
            pl.lit("holder") + row.cast(pl.String) + "@example.com"
        ).to_series(),
        portal.PHONE: area + "-555-0" + line,
        portal.FIRST_NAME: pick(FIRST_NAMES),
        portal.LAST_NAME: pick(LAST_NAMES),
        portal.IS_PRIMARY: pick(("TRUE", "TRUE", "TRUE", "FALSE")),
    }
    return pl.DataFrame(
        {"row": row} | {name: built.get(name, _nothing(count)) for name in portal.columns()}
    )


def _nothing(count: int) -> pl.Series:
    return pl.Series([None], dtype=pl.String).new_from_index(0, count)


def _hashes() -> pl.Series:
    return pl.Series(
        [base64.b64encode(sha256(b"%03d" % cvv).digest()).decode() for cvv in range(1000)]
    )


def _pans(ordinals: np.ndarray, seed: int) -> list[str]:
    """Return a card number each: the published test cards first, then one of its own under the test
    BIN.
    """
    body = int(GENERATED) * 10**9 + (ordinals * STRIDE + seed * 7919) % 10**9
    total = np.zeros_like(body)
    for place in range(15):
        digit = body // 10**place % 10 * (2 if place % 2 == 0 else 1)
        total += digit // 10 + digit % 10
    pans = (body * 10 + -total % 10).astype(str).tolist()
    return [
        PUBLISHED[row - 1] if row <= len(PUBLISHED) else pan
        for row, pan in zip(ordinals, pans, strict=True)
    ]


def _spoil(
    block: pl.DataFrame, share: float, ways: Sequence[Flaw], rng: np.random.Generator
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Give a share of the rows one flaw each; return the block and row, column, code of those."""
    flaw = np.where(rng.random(block.height) < share, rng.integers(0, len(ways), block.height), -1)
    marked = block.with_columns(flaw=pl.Series(flaw))
    for number, way in enumerate(ways):
        hit = pl.col("flaw") == number
        marked = marked.with_columns(
            pl.when(hit).then(way.instead).otherwise(way.column).alias(way.column)
        )
    named = pl.DataFrame(
        [(way.column, way.code) for way in ways], schema=["column", "code"], orient="row"
    )
    truth = marked.select("row", "flaw").join(
        named.with_row_index("flaw").cast({"flaw": pl.Int64}), on="flaw"
    )
    return marked.drop("flaw"), truth.drop("flaw").sort("row")


def _write(out: BinaryIO, block: pl.DataFrame, dialect: Dialect, *, header: bool) -> None:
    names = dialect.names or {name: name for name in portal.columns()}
    text = BytesIO()
    block.select(pl.col(column).alias(name) for column, name in names.items()).write_csv(
        text, include_header=header, separator=dialect.delimiter, line_terminator=dialect.newline
    )
    plain = text.getvalue()
    out.write(plain if dialect.encoding == "utf-8" else plain.decode().encode(dialect.encoding))
