"""Which rows of a run have a link: by its results, or by a single link that was made for a row since."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from flows.core.names import RunKeys
from flows.core.ports import Store
from flows.steps.beyond.singles import Single, singles
from flows.steps.rows import read_rows
from flows.steps.runs import read_ledger
from schemas.manifest import LedgerPart
from schemas.states import LINKED

LINK = pl.Schema(
    {"row": pl.UInt32(), "cuid": pl.String(), "last_4": pl.String(), "url": pl.String(), "expires_on": pl.Date()}
)


def single_links(store: Store, keys: RunKeys) -> pl.DataFrame:
    """Return the single links made for rows of a run (LINK), the last one of each row."""
    return links_of(singles(store, keys))


def links_of(alone: Iterable[Single]) -> pl.DataFrame:
    """Return the links that single requests brought (LINK), the last one of each row."""
    made = {one.asked.row: _link(one) for one in alone if one.answered and one.answered.url}
    return pl.DataFrame(list(made.values()), schema=LINK, orient="row")


def linked_rows(store: Store, keys: RunKeys, part: LedgerPart, alone: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a ledger part that have a link (LINK); `alone` are the run's single links."""
    columns = ["row", "cuid", "last_4", "state", "url", "expires_on"]
    linked = pl.concat(read_rows(store, keys, [part], columns, pl.col("state") == LINKED)).select(*LINK)
    if alone.is_empty():
        return linked
    (records,) = read_ledger(store, keys, [part], ["row"])
    mine = alone.join(records, on="row", how="semi").join(linked, on="row", how="anti")
    return pl.concat([linked, mine.select(*LINK)]).sort("row")


def states_with(states: pl.DataFrame, alone: pl.DataFrame) -> pl.DataFrame:
    """Return row and state of reconciled rows, those with a single link as linked ones."""
    made = alone.select("row", pl.lit(LINKED).alias("state"))
    return pl.concat([states.join(made, on="row", how="anti"), made])


def _link(one: Single) -> tuple[object, ...]:
    told = one.answered
    return one.asked.row, one.asked.cuid, one.asked.last_4, told and told.url, told and told.expires_on
