"""Rows of erased cardholders: they are not sent, and the ledger says of them that they were there.

Their records have the place of the row and the reason (`ERASED`), and nothing of the person.
"""

from typing import NamedTuple

import polars as pl

from flows.runs.erased import ErasedPeople, rows_of
from flows.submissions.ledger import unread_records
from schemas import ledger
from schemas.portal import CUID
from schemas.reasons import ERASED

_SUPPRESSED = pl.lit(ledger.SUPPRESSED)


class Parted(NamedTuple):
    """The rows of others, as they are, and ledger records of those of erased cardholders."""

    others: pl.DataFrame
    erased: pl.DataFrame


def part_by_cuid(rows: pl.DataFrame, erased: ErasedPeople, cuid: str = CUID) -> Parted:
    """Part rows (row, line, and the cuid in that column) by their cuids."""
    if not erased:
        return Parted(rows, _records(rows.clear()))
    return _parted(rows, erased.named_by(rows[cuid]))


def part_by_content(rows: pl.DataFrame, erased: ErasedPeople) -> Parted:
    """Part rows with CONTENT_FINGERPRINTS, those with a cuid of ours by their content."""
    if not erased:
        return Parted(rows, _records(rows.clear()))
    return _parted(rows, rows_of(erased, rows.with_columns(cuid=CUID)))


def _parted(rows: pl.DataFrame, is_erased: pl.Series) -> Parted:
    return Parted(rows.filter(~is_erased), _records(rows.filter(is_erased)))


def _records(rows: pl.DataFrame) -> pl.DataFrame:
    places = rows.select("row", "line", code=pl.lit(ERASED))
    return unread_records(places, _SUPPRESSED)
