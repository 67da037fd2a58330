"""Who a cardholder is, and which card is meant: the one notion of identity.

* A **cardholder** is a cuid. Where we generated the cuid, which differs in every extract, name and
  address stand for it.
* A **card** is a cardholder and the last four digits of a card. Two cards of one cardholder that
  look the same in one run are two cards: `twin` numbers them by their rows.
* An **issue** of a card is its expiration and, where the source tells (`[resend]
  reissue_column`), its reissue number. A reissued card is the same card: its issues are one
  history, and that of the newest extract (`flows/book/issues.py`) says where the card stands.

No card number and no digest of one is kept, so a reissue that changes none of these cannot be told.
Of a row's content three fingerprints are kept (FINGERPRINTS): CRC-32, the same in every version,
and too little to identify a person. A change of name or address is a different one.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from isal.isal_zlib import crc32  # with a list of texts, in half the time of zlib's

from schemas import portal

HASHED = 100_000  # rows at once
GENERATED = "^cl-[0-9a-f]{12}-[0-9]+$"  # a cuid that we generated
CARD = ("holder", "last_4", "twin")
CARD_WITHOUT_TWIN = ("holder", "last_4")  # where one decision is about all twins
ISSUE = (*CARD, "expiration", "reissue_check")
CONTENT_FINGERPRINTS = ("name_check", "address_check")
FINGERPRINTS = (*CONTENT_FINGERPRINTS, "reissue_check")
NAME = (portal.FIRST_NAME, portal.LAST_NAME, portal.NAME_ON_CARD)
ADDRESS = (
    portal.ADDRESS1,
    portal.ADDRESS2,
    portal.CITY,
    portal.SUBNATIONAL,
    portal.COUNTRY,
    portal.POSTAL_CODE,
)


def add_fingerprints(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` (the portal's columns) with the fingerprints of name and address."""
    return rows.with_columns(
        fingerprint(rows, *NAME).alias("name_check"),
        fingerprint(rows, *ADDRESS).alias("address_check"),
    )


def fingerprint(rows: pl.DataFrame, *names: str) -> pl.Series:
    """Return the CRC-32 of these columns of each row."""
    texts = rows.select(
        pl.concat_str([pl.col(name).fill_null("") for name in names], separator="\x1f")
    ).to_series()
    contents = texts.cast(pl.Binary).to_list()
    return pl.Series(values=np.fromiter(map(crc32, contents), np.uint32, rows.height))


def holder(rows: pl.DataFrame, cuid: str = "cuid") -> pl.Expr:
    """Return what the cardholder of each row is known by; null where the row names none.

    `rows` has the cuid, the expiration and CONTENT_FINGERPRINTS.
    """
    known_by = pl.col(cuid).alias("holder")
    if not rows[cuid].str.starts_with("cl-").any():
        return known_by
    content = pl.concat_str(*CONTENT_FINGERPRINTS, "expiration", separator=" ")
    is_generated = known_by.str.contains(GENERATED)
    identity = pl.when(is_generated).then(pl.coalesce(content, known_by)).otherwise(known_by)
    return identity.alias("holder")


def card_keys(rows: pl.DataFrame, cuid: str = "cuid") -> pl.Series:
    """Return the key (`card`) of each row's card, the same for every issue and twin.

    Valid in this process only. `rows` as for `holder`, with last_4.
    """
    card = pl.struct(holder(rows, cuid).alias("holder"), "last_4").hash().alias("card")
    return rows.select(card).to_series()


def numbered_twins(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of one run with `twin`: 0, and 1, 2, ... for cards that look the same.

    `rows` has the other columns of ISSUE, in the order of the run, each sent card once.
    """
    look = [name for name in ISSUE if name != "twin"]
    twin = pl.int_range(pl.len()).over(look).cast(pl.UInt8)
    if is_single(rows, look).all():
        twin = pl.lit(0, pl.UInt8)
    return rows.with_columns(twin=twin)


def is_among(rows: pl.DataFrame, others: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """Return which rows have the same values in these columns as one of the others."""
    if others.is_empty():
        return pl.repeat(value=False, n=rows.height, dtype=pl.Boolean, eager=True)
    numbered = rows.select(columns).with_row_index("place")
    places = numbered.join(others, on=list(columns), how="semi", nulls_equal=True)["place"]
    return pl.int_range(rows.height, dtype=pl.UInt32, eager=True).is_in(places.implode())


def is_among_many(rows: pl.DataFrame, others: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """Return what `is_among` does, by hash, which among a million others takes less memory.

    Where two rows have one hash, both are taken for the same.
    """
    return hashes(rows, columns).is_in(hashes(others, columns).implode())


def last_day() -> pl.Expr:
    """Return the last day of a card, from its `expiration`."""
    year = 2000 + pl.col("expiration").str.slice(0, 2).cast(pl.Int32)
    month = pl.col("expiration").str.slice(2, 2).cast(pl.Int32)
    return pl.date(year, month, 1).dt.month_end()


def is_single(rows: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """Return which rows surely have no other row with the same values in these columns.

    By hash, which is faster: where two rows have one hash, both are taken for the same.
    """
    known_by = hashes(rows, columns)
    in_order = known_by.sort()  # polars' is_unique makes a table of five times the memory
    repeated = in_order.filter(in_order == in_order.shift())
    return ~known_by.is_in(repeated.implode())


def hashes(rows: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """Return a hash of these columns of each row, the same in this process only.

    By blocks: what is hashed is copied, and all at once it would be the peak of a night's memory.
    """
    blocks = [block.select(pl.struct(columns).hash()) for block in rows.iter_slices(HASHED)]
    return pl.concat([pl.DataFrame(schema={columns[0]: pl.UInt64}), *blocks]).to_series()
