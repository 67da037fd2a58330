"""How far each row of a ledger came towards a placed card, and what that is known by.

Frames in, a frame out; `funnel.py` counts cardholders of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from schemas import ledger
from schemas.ledger import AWAITING, LINKED
from schemas.partner_api.link_placements import BILLABLE
from schemas.partner_api.unknowns import (
    NEVER_ASKED,
    NO_AUTHENTICATION,
    NO_RESULT,
    REPORT_WORD,
    REPORTS,
    RESULTS,
    SERVICE,
    UNREADABLE,
)

SENT, LINK, OPENED, AUTHENTICATED, PLACED = range(1, 6)  # places in STAGES
ENDS = pl.Schema(  # what is known of a linked row beyond its link, by row or by cuid; null: unknown
    {
        "opened": pl.Boolean(),
        "authenticated": pl.Boolean(),
        "running": pl.Boolean(),  # null: nothing is known of its jobs, so neither of their ends
        "termination_type": pl.String(),
        "merchant_site": pl.String(),
    }
)
# Why the service does not know (schemas.partner_api.unknowns): of each column above that has one.
CAUSES = pl.Schema(
    {
        "opened_cause": pl.String(),
        "authenticated_cause": pl.String(),
        "ended_cause": pl.String(),
    }
)
# What each stage of a row is known by (one of SOURCES), else why it is not; null before that stage.
BASES = pl.Schema(
    {
        "linked_basis": pl.String(),
        "opened_basis": pl.String(),
        "authenticated_basis": pl.String(),
        "ended_basis": pl.String(),
    }
)
STANDING = pl.Schema(
    {
        "holder": pl.UInt64(),
        "stage": pl.UInt8(),
        "running": pl.Boolean(),
        "failed": pl.String(),
        "site": pl.String(),
        **BASES,
        "age": pl.UInt8(),
    }
)
_BY_REPORT: Final = "_report"  # suffix of the columns of ENDS that transaction reports say


def funnel_stages(
    records: pl.DataFrame, states: pl.DataFrame, by_row: pl.DataFrame, by_cuid: pl.DataFrame
) -> pl.DataFrame:
    """Return how far each row of a ledger part came (STANDING, without `age`).

    `records`: run, row, cuid, fate. `states`: row, state of the rows sent. `by_row` and `by_cuid`:
    what the service (row) and the transaction reports (cuid) say of linked rows, with the columns
    of ENDS, the service with those of CAUSES too, the reports with `status`; either may be empty.
    """
    by_service = by_row.select("row", *ENDS, *CAUSES)
    by_report = by_cuid.select("cuid", *ENDS, report_status="status")
    rows = (
        records.join(states, on="row", how="left")
        .join(by_service, on="row", how="left")
        .join(by_report, on="cuid", how="left", suffix=_BY_REPORT)
        .with_columns(_reached("").alias("reached"), _reached(_BY_REPORT).alias("reported"))
    )
    linked = pl.col("state") == LINKED
    stage = (
        pl.when(linked)
        .then(pl.max_horizontal("reached", "reported"))
        .when(pl.col("fate") == ledger.SUBMITTED)
        .then(SENT)
        .otherwise(0)
    )
    rows = rows.with_columns(stage.cast(pl.UInt8).alias("stage"))
    unplaced = linked & (pl.col("stage") < PLACED)
    # where the service knows of an end, it is later than what a report says
    runs_by_report = pl.col("running_report") & pl.col("termination_type").is_null()
    running = unplaced & (
        pl.col("running").fill_null(value=False) | runs_by_report.fill_null(value=False)
    )
    end = pl.coalesce("termination_type", "termination_type_report")
    site = pl.coalesce("merchant_site", "merchant_site_report")
    return rows.select(
        _holder().alias("holder"),
        "stage",
        running.fill_null(value=False).alias("running"),
        pl.when(unplaced & ~running).then(end).alias("failed"),
        pl.when(linked).then(site).alias("site"),
        _linked_basis().alias("linked_basis"),
        *(pl.when(linked).then(basis).alias(name) for name, basis in _bases().items()),
    )


def _reached(suffix: str) -> pl.Expr:
    """Return the stage of a linked row by the service, or by reports; what is unknown counts as
    not reached.
    """
    return (
        pl.when(pl.col(f"termination_type{suffix}") == BILLABLE)
        .then(PLACED)
        .when(pl.col(f"authenticated{suffix}"))
        .then(AUTHENTICATED)
        .when(pl.col(f"opened{suffix}"))
        .then(OPENED)
        .otherwise(LINK)
    )


def _linked_basis() -> pl.Expr:
    """Return what is known of the link of a row that was sent."""
    answered = pl.when(pl.col("state") == AWAITING).then(pl.lit(NO_RESULT))
    return pl.when(pl.col("state").is_not_null()).then(answered.otherwise(pl.lit(RESULTS)))


def _bases() -> dict[str, pl.Expr]:
    """Return what the stages of a linked row are known by, else why they are not."""
    is_reported = pl.col("opened_report").is_not_null()
    word = pl.format(f"{REPORT_WORD}.{{}}", pl.col("report_status"))
    unread = pl.when(is_reported).then(pl.coalesce(word, pl.lit(UNREADABLE)))
    silent = pl.when(is_reported).then(pl.lit(NO_AUTHENTICATION))
    never = pl.lit(NEVER_ASKED)
    return {
        "opened_basis": _basis(OPENED, ["opened"], "opened_cause", never),
        "authenticated_basis": _basis(
            AUTHENTICATED, ["authenticated"], "authenticated_cause", silent
        ),
        "ended_basis": _basis(PLACED, ["running", "termination_type"], "ended_cause", unread),
    }


def _basis(stage: int, columns: Sequence[str], cause: str, by_report: pl.Expr) -> pl.Expr:
    """Return what a stage is known by: who says that it was reached, else who says anything of it.

    `columns`: in any of which something is said. `by_report`: why reports do not say, which counts
    where the service was never asked.
    """
    by_service = pl.any_horizontal(pl.col(name).is_not_null() for name in columns)
    in_report = pl.any_horizontal(pl.col(f"{name}{_BY_REPORT}").is_not_null() for name in columns)
    in_vain = pl.when(pl.col(cause) != NEVER_ASKED).then(cause)
    return (
        pl.when(pl.col("reached") >= stage)
        .then(pl.lit(SERVICE))
        .when(pl.col("reported") >= stage)
        .then(pl.lit(REPORTS))
        .when(by_service)
        .then(pl.lit(SERVICE))
        .when(in_report)
        .then(pl.lit(REPORTS))
        .otherwise(pl.coalesce(in_vain, by_report, pl.lit(NEVER_ASKED)))
    )


def _holder() -> pl.Expr:
    """Mark a cardholder by cuid; a row whose cuid nobody could read is one of its own."""
    own = pl.struct("run", "row").hash(seed=1)
    return pl.when(pl.col("cuid").is_null()).then(own).otherwise(pl.col("cuid").hash())
