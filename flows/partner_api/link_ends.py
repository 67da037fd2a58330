"""What is known of the ends of links: whether each one's card is placed, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from flows.partner_api.stored_placements import read_placements
from flows.partner_api.transactions import reported
from flows.runs.frames import shaped
from flows.runs.single_links import ARRIVED
from flows.runs.stored_run import StoredRun
from flows.runs.threads import concurrently
from schemas.ledger import LINKED
from schemas.partner_api.link_placements import BILLABLE, KNOWN_ENDS

_LINK = pl.Schema({"run": pl.String(), "row": pl.UInt32(), "cuid": pl.String()})
_BY_SERVICE = pl.Schema(
    {
        "run": pl.String(),
        "row": pl.UInt32(),
        "termination_type": pl.String(),
        "running": pl.Boolean(),
        "settled": pl.Boolean(),
        "seen": ARRIVED,
    }
)


class _Links(NamedTuple):
    """The links of a run, and what the service last said of them."""

    links: pl.DataFrame
    by_service: pl.DataFrame


def link_ends(runs: Sequence[StoredRun], threads: int) -> pl.DataFrame:
    """Return what service and transaction reports say of the links of these runs (KNOWN_ENDS).

    `runs`: of one issuer. Those that neither has said anything of are left out.
    """
    followed = [run for run in runs if run.summary is not None and run.summary.get("funnel")]
    if not followed:
        return pl.DataFrame(schema=KNOWN_ENDS)
    first = followed[0]
    # a row whose status nobody can read says neither that its card is placed nor that it is not
    by_cuid = reported(first.store, first.issuer, pl.lit(value=True)).select(
        "cuid",
        "completed_on",
        end_reported="termination_type",
        is_reported=pl.col("running").is_not_null(),
    )
    read = concurrently(_links_of, followed, threads)
    links = pl.concat([pl.DataFrame(schema=_LINK), *(known.links for known in read)])
    none = pl.DataFrame(schema=_BY_SERVICE)
    by_service = pl.concat([none, *(known.by_service for known in read)])
    ends = links.join(by_service, on=["run", "row"], how="left").join(
        by_cuid, on="cuid", how="left"
    )
    return shaped(ends.with_columns(placed=_is_placed(), placed_on=_placed_on()), KNOWN_ENDS)


def _links_of(run: StoredRun) -> _Links:
    parts = run.committed().ledger
    is_linked = pl.col("state") == LINKED
    links = [run.rows_part(part, ["row", "cuid", "state"], is_linked) for part in parts]
    columns = [name for name in _BY_SERVICE if name != "run"]
    by_service = [read_placements(run, part, columns) for part in parts]
    return _Links(_of_run(run, links, _LINK), _of_run(run, by_service, _BY_SERVICE))


def _of_run(run: StoredRun, parts: Sequence[pl.DataFrame], schema: pl.Schema) -> pl.DataFrame:
    named = (part.with_columns(run=pl.lit(run.id)).select(*schema) for part in parts)
    return pl.concat([pl.DataFrame(schema=schema), *named])


def _is_placed() -> pl.Expr:
    """Return whether a card is placed; null where nobody has said."""
    by_service = pl.col("termination_type").eq_missing(BILLABLE)
    by_report = pl.col("end_reported").eq_missing(BILLABLE)
    is_known = pl.col("running").is_not_null() | pl.col("is_reported")
    return pl.when(by_service | by_report).then(True).when(is_known).then(False)


def _placed_on() -> pl.Expr:
    """Return the day that a report names, else that of the check that found the card placed.

    A link is not queried any more once it is settled.
    """
    by_report = pl.when(pl.col("end_reported") == BILLABLE).then("completed_on")
    is_settled = pl.col("settled") & (pl.col("termination_type") == BILLABLE)
    return pl.coalesce(by_report, pl.when(is_settled).then(pl.col("seen").dt.date()))
