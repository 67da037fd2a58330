"""Rows without the part of another file or record that they need: rejected, and whose they are.

`[status]` comes first: a card that is left out or deleted needs no address. Of the others the cuid
is kept as far as it keeps the rules of its column, and expiration and last four digits.
"""

from datetime import date
from typing import NamedTuple

import polars as pl

from flows.extracts.mapping import MappedRows, Mapping, map_rows
from flows.extracts.reader import Block
from flows.submissions.ledger import unsent_records
from flows.submissions.normalise import normalise
from flows.submissions.validate import validate
from schemas import ledger
from schemas.issuer import RuleSettings
from schemas.portal import CUID, MONTH, PAN, YEAR

_KNOWN = (CUID, PAN, MONTH, YEAR)


class MappedBlock(NamedTuple):
    """The mapped rows of a block, and those that lack a part: row, line, `code`, `found`, cells."""

    mapped: MappedRows
    alone: pl.DataFrame | None


def map_block(block: Block, mapping: Mapping) -> MappedBlock:
    """Put the rows of a block under the portal's columns; those alone that `[status]` would send
    are apart, all others among the mapped ones.
    """
    mapped = map_rows(block.rows, mapping)
    if block.alone is None or block.alone.is_empty():
        return MappedBlock(mapped, None)
    others = map_rows(block.alone, mapping)
    decided = mapped._replace(
        left_out=pl.concat([mapped.left_out, others.left_out]),
        deleted=pl.concat([mapped.deleted, others.deleted]),
    )
    is_open = ~pl.col("row").is_in(
        pl.concat([others.left_out["row"], others.deleted["row"]]).implode()
    )
    needed = block.alone.filter(is_open)
    cells = needed.select("row", "line", *mapping.only(_KNOWN).columns)
    return MappedBlock(decided, pl.concat([cells, needed["code", "found"]], how="horizontal"))


def records_alone(rows: pl.DataFrame, as_of: date, rules: RuleSettings) -> pl.DataFrame:
    """Return the ledger records, without origin, of rows that lack a part."""
    cells = normalise(rows.drop("code", "found"), rules)
    verdicts = validate(cells, as_of, rules)
    broken = verdicts.filter(column=CUID, severity="reject")["row"].unique()
    is_harmless = ~pl.col("row").is_in(broken.implode())
    is_dated = pl.col(YEAR).str.contains("^[0-9]{2}$") & pl.col(MONTH).str.contains("^[0-9]{2}$")
    has_number = pl.col(PAN).str.contains("^[0-9]{16}$")
    known = cells.with_columns(
        rows["code"],
        pl.when(is_harmless).then(CUID).alias(CUID),
        pl.when(has_number).then(pl.col(PAN).str.slice(-4)).alias("last_4"),
        pl.when(is_dated).then(pl.col(YEAR) + pl.col(MONTH)).alias("expiration"),
        cuid_made=pl.lit(value=False),
        reasons=pl.concat_list("|" + rows["code"]),
        found=pl.concat_list(rows["found"]),
    )
    return unsent_records(known, pl.lit(ledger.REJECTED))
