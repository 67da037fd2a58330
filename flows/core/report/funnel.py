"""The funnel: cardholders, sent, linked, opened, authenticated, placed, and failed by kind; each counts once.

A cardholder is a cuid, over all the rows given, and counts by the best state of any of them. Counting goes by 64-bit
marks, so that the rows of many runs cost sixteen bytes and not their texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

import polars as pl

from schemas import ledger
from schemas.placements import BILLABLE, STAGES
from schemas.states import LINKED

SITES = 50  # merchant sites named; the rest is one line
OTHERS, UNKNOWN_SITE = "other sites", "site not known"

# Days since the run's business date, upper limits, the last open: a link lives two months (interface.md 8).
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


def standings(records: pl.DataFrame, states: pl.DataFrame, by_row: pl.DataFrame, by_cuid: pl.DataFrame) -> pl.DataFrame:
    """Return how far each row of a ledger part came (STANDING, without `age`).

    `records`: run, row, cuid, fate. `states`: row, state of the rows sent. `by_row` and `by_cuid`: what the service
    (row) and the transaction reports (cuid) say of linked rows, with the columns of ENDS; either may be empty.
    """
    told = records.join(states, on="row", how="left").join(by_row.select("row", *ENDS), on="row", how="left")
    both = told.join(by_cuid.select("cuid", *ENDS), on="cuid", how="left", suffix="_report")
    linked = pl.col("state") == LINKED
    placed = _either("termination_type", BILLABLE)
    stage = (
        pl.when(linked & placed).then(PLACED)
        .when(linked & _any("authenticated")).then(AUTHENTICATED)
        .when(linked & _any("opened")).then(OPENED)
        .when(linked).then(LINK)
        .when(pl.col("fate") == ledger.SUBMITTED).then(SENT)
        .otherwise(0)
    )  # fmt: skip
    late = pl.col("running_report") & pl.col("termination_type").is_null()  # the service knows of an end: it is later
    running = linked & ~placed & (pl.col("running").fill_null(value=False) | late.fill_null(value=False))
    failed = pl.when(linked & ~placed & ~running).then(pl.coalesce("termination_type", "termination_type_report"))
    return both.select(
        _holder().alias("holder"),
        stage.fill_null(0).cast(pl.UInt8).alias("stage"),
        running.fill_null(value=False).alias("running"),
        failed.alias("failed"),
        pl.when(linked).then(pl.coalesce("merchant_site", "merchant_site_report")).alias("site"),
    )


def age_of(as_of: date, today: date) -> int:
    """Return which of LINK_AGES the links of a run of that business date have."""
    return sum((today - as_of).days > limit for limit in _AGE_LIMITS)


def cells(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Count cardholders by everything the funnel shows (CELLS): each once, by its best state over all frames.

    Cells of different cardholders add up by `add`.
    """
    every = pl.concat([pl.DataFrame(schema=STANDING), *(frame.cast(STANDING) for frame in frames)])
    again = pl.col("holder").is_duplicated()
    first = pl.concat([every.filter(~again), _best(every.filter(again))])
    return first.group_by(list(CELLS)[:-1]).agg(pl.len().cast(pl.UInt64).alias("cardholders"))


def _best(rows: pl.DataFrame) -> pl.DataFrame:
    """Put the rows of each cardholder together: placed, else under way where any is, else failed."""
    ordered = rows.sort("stage", "failed", "site", "age", descending=[True, False, False, False], nulls_last=True)
    one = ordered.group_by("holder", maintain_order=True).agg(
        pl.col("stage").first(),
        pl.col("running").any(),
        *(pl.col(name).drop_nulls().first() for name in ("failed", "site")),
        pl.col("age").first(),
    )
    running = pl.col("running") & (pl.col("stage") < PLACED)
    failed = pl.when((pl.col("stage") < PLACED) & ~running).then("failed")
    return one.with_columns(running.alias("running"), failed.alias("failed"))


def add(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Add up cells."""
    every = pl.concat([pl.DataFrame(schema=CELLS), *parts])
    return every.group_by(list(CELLS)[:-1]).agg(pl.col("cardholders").sum())


def facts(counted: pl.DataFrame) -> dict[str, Any]:
    """Return the funnel of cells: stages, failures by kind, jobs under way, by merchant site and by age of link."""
    total = int(counted["cardholders"].sum())
    reached = [_sum(counted.filter(pl.col("stage") >= at)) for at in range(len(STAGES))]
    failed = counted.drop_nulls("failed").group_by("failed").agg(pl.col("cardholders").sum())
    return {
        "stages": [
            {"stage": stage, "cardholders": number, "share": number / total if total else 0.0}
            for stage, number in zip(STAGES, reached, strict=True)
        ],
        "failed": [
            {"kind": kind, "cardholders": number, "share": number / total}
            for kind, number in failed.sort("cardholders", "failed", descending=[True, False]).iter_rows()
        ],
        "under_way": _sum(counted.filter("running")),
        "sites": _sites(counted),
        "ages": [{"age": name, **_reached(counted.filter(age=at))} for at, name in enumerate(LINK_AGES)],
    }


def _sites(counted: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the funnel's end by merchant site, most cardholders first, of those that came to one."""
    known = counted.filter((pl.col("stage") >= AUTHENTICATED) | pl.col("failed").is_not_null() | pl.col("running"))
    named = known.with_columns(pl.col("site").fill_null(UNKNOWN_SITE))
    sizes = (
        named.group_by("site").agg(pl.col("cardholders").sum()).sort("cardholders", "site", descending=[True, False])
    )
    shown = sizes["site"].head(SITES)
    folded = named.with_columns(pl.when(pl.col("site").is_in(shown.implode())).then("site").otherwise(pl.lit(OTHERS)))
    names = [*shown, *([OTHERS] if sizes.height > SITES else [])]
    return [{"site": name, **_reached(folded.filter(site=name))} for name in names]


def _reached(counted: pl.DataFrame) -> dict[str, int]:
    stages = {STAGES[at]: _sum(counted.filter(pl.col("stage") >= at)) for at in (LINK, OPENED, AUTHENTICATED, PLACED)}
    return {**stages, "failed": _sum(counted.drop_nulls("failed"))}


def _sum(counted: pl.DataFrame) -> int:
    return int(counted["cardholders"].sum())


def _holder() -> pl.Expr:
    """Mark a cardholder by cuid; a row whose cuid nobody could read is one of its own."""
    own = pl.struct("run", "row").hash(seed=1)
    return pl.when(pl.col("cuid").is_null()).then(own).otherwise(pl.col("cuid").hash())


def _any(column: str) -> pl.Expr:
    return pl.col(column).fill_null(value=False) | pl.col(f"{column}_report").fill_null(value=False)


def _either(column: str, value: str) -> pl.Expr:
    return ((pl.col(column) == value).fill_null(value=False)) | (
        (pl.col(f"{column}_report") == value).fill_null(value=False)
    )
