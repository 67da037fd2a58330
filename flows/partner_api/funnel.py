"""The funnel: cardholders, sent, linked, opened, authenticated, placed, and failed by kind.

Each counts once. Frames in, facts out; `run_funnel.py` reads the frames of runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

import polars as pl

from schemas import ledger
from schemas.ledger import LINKED
from schemas.partner_api.link_placements import BILLABLE, STAGES

SITES = 50  # merchant sites named; all others are one line
OTHERS = "other sites"
UNKNOWN_SITE = "site not known"

# Days since the run's business date, upper limits, the last open: a link lives two months
# (interface.md 8).
LINK_AGES = ("0 to 6 days", "7 to 13 days", "14 to 29 days", "30 to 61 days", "62 days and older")
_AGE_LIMITS = (6, 13, 29, 61)

SENT, LINK, OPENED, AUTHENTICATED, PLACED = range(1, 6)  # places in STAGES
REACHED = (*STAGES[LINK:], "failed")  # what is counted by merchant site and by age of link
ENDS = pl.Schema(  # what is known of a linked row beyond its link, by row or by cuid
    {
        "opened": pl.Boolean(),
        "authenticated": pl.Boolean(),
        "running": pl.Boolean(),
        "termination_type": pl.String(),
        "merchant_site": pl.String(),
    }
)
STANDING = pl.Schema(
    {
        "holder": pl.UInt64(),
        "stage": pl.UInt8(),
        "running": pl.Boolean(),
        "failed": pl.String(),
        "site": pl.String(),
        "age": pl.UInt8(),
    }
)
CELLS = pl.Schema(
    {
        "stage": pl.UInt8(),
        "running": pl.Boolean(),
        "failed": pl.String(),
        "site": pl.String(),
        "age": pl.UInt8(),
        "cardholders": pl.UInt64(),
    }
)
_CELL = list(CELLS)[:-1]  # what cardholders are counted by


def funnel_stages(
    records: pl.DataFrame, states: pl.DataFrame, by_row: pl.DataFrame, by_cuid: pl.DataFrame
) -> pl.DataFrame:
    """Return how far each row of a ledger part came (STANDING, without `age`).

    `records`: run, row, cuid, fate. `states`: row, state of the rows sent. `by_row` and `by_cuid`:
    what the service (row) and the transaction reports (cuid) say of linked rows, with the columns
    of ENDS; either may be empty.
    """
    by_service = by_row.select("row", *ENDS)
    by_report = by_cuid.select("cuid", *ENDS)
    rows = (
        records.join(states, on="row", how="left")
        .join(by_service, on="row", how="left")
        .join(by_report, on="cuid", how="left", suffix="_report")
    )
    linked = pl.col("state") == LINKED
    placed = linked & _either_is("termination_type", BILLABLE)
    stage = (
        pl.when(placed)
        .then(PLACED)
        .when(linked & _any("authenticated"))
        .then(AUTHENTICATED)
        .when(linked & _any("opened"))
        .then(OPENED)
        .when(linked)
        .then(LINK)
        .when(pl.col("fate") == ledger.SUBMITTED)
        .then(SENT)
        .otherwise(0)
    )
    unplaced = linked & ~_either_is("termination_type", BILLABLE)
    # where the service knows of an end, it is later than what a report says
    runs_by_report = pl.col("running_report") & pl.col("termination_type").is_null()
    running = unplaced & (
        pl.col("running").fill_null(value=False) | runs_by_report.fill_null(value=False)
    )
    end = pl.coalesce("termination_type", "termination_type_report")
    site = pl.coalesce("merchant_site", "merchant_site_report")
    return rows.select(
        _holder().alias("holder"),
        stage.fill_null(0).cast(pl.UInt8).alias("stage"),
        running.fill_null(value=False).alias("running"),
        pl.when(unplaced & ~running).then(end).alias("failed"),
        pl.when(linked).then(site).alias("site"),
    )


def _holder() -> pl.Expr:
    """Mark a cardholder by cuid; a row whose cuid nobody could read is one of its own."""
    own = pl.struct("run", "row").hash(seed=1)
    return pl.when(pl.col("cuid").is_null()).then(own).otherwise(pl.col("cuid").hash())


def _any(column: str) -> pl.Expr:
    return pl.col(column).fill_null(value=False) | pl.col(f"{column}_report").fill_null(value=False)


def _either_is(column: str, value: str) -> pl.Expr:
    by_service = (pl.col(column) == value).fill_null(value=False)
    by_report = (pl.col(f"{column}_report") == value).fill_null(value=False)
    return by_service | by_report


def age_of(as_of: date, today: date) -> int:
    """Return which of LINK_AGES the links of a run of that business date have."""
    return sum((today - as_of).days > limit for limit in _AGE_LIMITS)


def cells(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Count cardholders by everything the funnel shows (CELLS): each once, by its best state.

    `frames`: STANDING. Cells of different cardholders add up by `add`.
    """
    rows = pl.concat([pl.DataFrame(schema=STANDING), *(frame.cast(STANDING) for frame in frames)])
    repeated = pl.col("holder").is_duplicated()
    holders = pl.concat([rows.filter(~repeated), _best(rows.filter(repeated))])
    return holders.group_by(_CELL).agg(pl.len().cast(pl.UInt64).alias("cardholders"))


def _best(rows: pl.DataFrame) -> pl.DataFrame:
    """Combine the rows of each cardholder: placed, else under way where any is, else failed."""
    ordered = rows.sort(
        "stage", "failed", "site", "age", descending=[True, False, False, False], nulls_last=True
    )
    holders = ordered.group_by("holder", maintain_order=True).agg(
        pl.col("stage").first(),
        pl.col("running").any(),
        pl.col("failed").drop_nulls().first(),
        pl.col("site").drop_nulls().first(),
        pl.col("age").first(),
    )
    running = pl.col("running") & (pl.col("stage") < PLACED)
    failed = pl.when((pl.col("stage") < PLACED) & ~running).then("failed")
    return holders.with_columns(running.alias("running"), failed.alias("failed"))


def add(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Add up cells."""
    rows = pl.concat([pl.DataFrame(schema=CELLS), *parts])
    return rows.group_by(_CELL).agg(pl.col("cardholders").sum())


def facts(counted: pl.DataFrame) -> dict[str, Any]:
    """Return the funnel of cells.

    Stages, failures by kind, jobs under way, by merchant site and by age of link.
    """
    return {
        "stages": _stages(counted),
        "failed": _failures(counted),
        "under_way": _sum(counted.filter("running")),
        "sites": _sites(counted),
        "ages": [
            {"age": name, **_reached(counted.filter(age=age))} for age, name in enumerate(LINK_AGES)
        ],
    }


def _stages(counted: pl.DataFrame) -> list[dict[str, Any]]:
    total = _sum(counted)
    stages = []
    for place, stage in enumerate(STAGES):
        number = _sum_from(counted, place)
        share = number / total if total else 0.0
        stages.append({"stage": stage, "cardholders": number, "share": share})
    return stages


def _failures(counted: pl.DataFrame) -> list[dict[str, Any]]:
    """Return how many cardholders failed by kind, most first."""
    total = _sum(counted)
    failed = counted.drop_nulls("failed").group_by("failed").agg(pl.col("cardholders").sum())
    ordered = failed.sort("cardholders", "failed", descending=[True, False])
    return [
        {"kind": kind, "cardholders": number, "share": number / total}
        for kind, number in ordered.iter_rows()
    ]


def _sites(counted: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the funnel's end by merchant site, most cardholders first."""
    came_to_site = (
        (pl.col("stage") >= AUTHENTICATED) | pl.col("failed").is_not_null() | pl.col("running")
    )
    named = counted.filter(came_to_site).with_columns(pl.col("site").fill_null(UNKNOWN_SITE))
    sizes = named.group_by("site").agg(pl.col("cardholders").sum())
    ordered = sizes.sort("cardholders", "site", descending=[True, False])["site"]
    shown = ordered.head(SITES)
    is_shown = pl.col("site").is_in(shown.implode())
    folded = named.with_columns(pl.when(is_shown).then("site").otherwise(pl.lit(OTHERS)))
    names = shown.to_list()
    if len(ordered) > SITES:
        names.append(OTHERS)
    return [{"site": name, **_reached(folded.filter(site=name))} for name in names]


def _reached(counted: pl.DataFrame) -> dict[str, int]:
    reached = {
        STAGES[stage]: _sum_from(counted, stage) for stage in (LINK, OPENED, AUTHENTICATED, PLACED)
    }
    reached["failed"] = _sum(counted.drop_nulls("failed"))
    return reached


def _sum_from(counted: pl.DataFrame, stage: int) -> int:
    """Return how many cardholders came to a stage."""
    return _sum(counted.filter(pl.col("stage") >= stage))


def _sum(counted: pl.DataFrame) -> int:
    return int(counted["cardholders"].sum())
