"""How far each row of a ledger came towards a placed card, and what that is known by.

Frames in, a frame out; `funnel.py` counts cardholders of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Final

import polars as pl

from flows.extensions.partner_api.link_placements import BILLABLE, STAGES
from flows.extensions.partner_api.unknowns import (
    NEVER_ASKED,
    NO_AUTHENTICATION,
    NO_RESULT,
    REPORT_WORD,
    REPORTS,
    RESULTS,
    SERVICE,
    SOURCES,
    UNREADABLE,
)
from schemas import ledger
from schemas.ledger import AWAITING, LINKED

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
# Why the service does not know (`unknowns.py`): of each column above that has one.
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


SITES = 50  # merchant sites named; all others are one line
OTHERS = "other sites"
UNKNOWN_SITE = "site not known"

# Days since the run's business date, upper limits, the last open: a link lives two months
# (interface.md 8).
LINK_AGES = ("0 to 6 days", "7 to 13 days", "14 to 29 days", "30 to 61 days", "62 days and older")
_AGE_LIMITS = (6, 13, 29, 61)

REACHED = (*STAGES[LINK:], "failed")  # what is counted by merchant site and by age of link
CELLS = pl.Schema(
    {
        "stage": pl.UInt8(),
        "running": pl.Boolean(),
        "failed": pl.String(),
        "site": pl.String(),
        **BASES,
        "age": pl.UInt8(),
        "cardholders": pl.UInt64(),
    }
)
_CELL = list(CELLS)[:-1]  # what cardholders are counted by
# By stage: whose number is that of the stage, and the column that says what it is known by.
_AMONG: Final = {LINK: SENT, OPENED: LINK, AUTHENTICATED: LINK, PLACED: LINK}
_BASIS: Final = {
    LINK: "linked_basis",
    OPENED: "opened_basis",
    AUTHENTICATED: "authenticated_basis",
    PLACED: "ended_basis",
}


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
    """Combine the rows of each cardholder: placed, else under way where any is, else failed.

    That a stage was not reached is known where every row says so.
    """
    ordered = rows.sort(
        *("stage", "failed", "site", "age", *BASES),
        descending=[True, *[False] * (3 + len(BASES))],
        nulls_last=True,
    )
    holders = ordered.group_by("holder", maintain_order=True).agg(
        pl.col("stage").first(),
        pl.col("running").any(),
        pl.col("failed").drop_nulls().first(),
        pl.col("site").drop_nulls().first(),
        pl.col("age").first(),
        *(_first(name, known=True).alias(name) for name in BASES),
        *(_first(name, known=False).alias(f"{name}_cause") for name in BASES),
    )
    running = pl.col("running") & (pl.col("stage") < PLACED)
    holders = holders.with_columns(running.alias("running"))
    holders = holders.with_columns(_combined(stage, name) for stage, name in _BASIS.items())
    has_failed = (pl.col("stage") < PLACED) & ~pl.col("running") & _is_known("ended_basis")
    return holders.with_columns(pl.when(has_failed).then("failed").alias("failed")).select(
        *STANDING
    )


def _first(basis: str, *, known: bool) -> pl.Expr:
    """Return the first source, or the first cause, among the rows of a cardholder."""
    is_source = pl.col(basis).is_in(SOURCES)
    return pl.col(basis).filter(is_source if known else ~is_source).drop_nulls().first()


def _combined(stage: int, basis: str) -> pl.Expr:
    """Return what a cardholder's stage is known by, else why it is not."""
    is_positive = pl.col("stage") >= stage
    if stage == PLACED:
        is_positive |= pl.col("running")
    cause = pl.when(~is_positive).then(f"{basis}_cause")
    return pl.coalesce(cause, basis).alias(basis)


def _is_known(basis: str) -> pl.Expr:
    return pl.col(basis).is_in(SOURCES)


def add(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Add up cells."""
    rows = pl.concat([pl.DataFrame(schema=CELLS), *parts])
    return rows.group_by(_CELL).agg(pl.col("cardholders").sum())


def facts(counted: pl.DataFrame) -> dict[str, Any]:
    """Return the funnel of cells.

    Stages, failures by kind, jobs under way, by merchant site and by age of link. A stage has those
    who reached it (`cardholders`, None where it is known of nobody), of how many it is `known`, by
    whom, and the others (`unknown`) by cause; shares are of those known. `failed` and `under_way`
    are known of those of whom it is known whether they are placed.
    """
    ends = _coverage(counted, PLACED)
    return {
        "stages": [_stage(counted, place) for place in range(len(STAGES))],
        "failed": _failures(counted, ends["known"]),
        "under_way": _count(ends, _sum(counted.filter("running"))),
        "sites": _sites(counted),
        "ages": [
            {"age": name, **_line(counted.filter(age=age))} for age, name in enumerate(LINK_AGES)
        ],
    }


def _stage(counted: pl.DataFrame, place: int) -> dict[str, Any]:
    coverage = _coverage(counted, place)
    number = _sum_from(counted, place)
    known = coverage["known"]
    return {
        "stage": STAGES[place],
        "cardholders": _count(coverage, number),
        "share": number / known if known else None,
        **coverage,
    }


def _coverage(counted: pl.DataFrame, place: int) -> dict[str, Any]:
    """Return of how many a stage is known, by whom, and of how many it is not, by cause."""
    if place not in _BASIS:  # of our own ledger
        return {"known": _sum(counted), "known_by": {}, "unknown": []}
    bases = _sums_by(counted.filter(pl.col("stage") >= _AMONG[place]), _BASIS[place])
    known_by = {basis: number for basis, number in bases if basis in SOURCES}
    unknown = [
        {"cause": basis, "cardholders": number} for basis, number in bases if basis not in SOURCES
    ]
    return {"known": sum(known_by.values()), "known_by": known_by, "unknown": unknown}


def _count(coverage: dict[str, Any], number: int) -> int | None:
    """Return a number of cardholders, None where nothing is known of them."""
    return None if coverage["unknown"] and not coverage["known"] else number


def _failures(counted: pl.DataFrame, known: int) -> list[dict[str, Any]]:
    """Return how many cardholders failed by kind, most first."""
    return [
        {"kind": kind, "cardholders": number, "share": number / known}
        for kind, number in _sums_by(counted, "failed")
    ]


def _sums_by(counted: pl.DataFrame, column: str) -> list[tuple[str, int]]:
    """Return how many cardholders have each value, most first."""
    sums = counted.drop_nulls(column).group_by(column).agg(pl.col("cardholders").sum())
    return sums.sort("cardholders", column, descending=[True, False]).rows()


def _sites(counted: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the funnel's end by merchant site, most cardholders first."""
    came_to_site = (
        (pl.col("stage") >= AUTHENTICATED) | pl.col("failed").is_not_null() | pl.col("running")
    )
    named = counted.filter(came_to_site).with_columns(pl.col("site").fill_null(UNKNOWN_SITE))
    names = [site for site, _ in _sums_by(named, "site")]
    shown = names[:SITES]
    is_shown = pl.col("site").is_in(shown)
    folded = named.with_columns(pl.when(is_shown).then("site").otherwise(pl.lit(OTHERS)))
    if len(names) > SITES:
        shown.append(OTHERS)
    return [{"site": name, **_line(folded.filter(site=name))} for name in shown]


def _line(counted: pl.DataFrame) -> dict[str, Any]:
    """Return how many of some linked cardholders reached each stage, and of how many that is
    known.
    """
    coverages = {STAGES[place]: _coverage(counted, place) for place in range(LINK, PLACED + 1)}
    numbers = {STAGES[place]: _sum_from(counted, place) for place in range(LINK, PLACED + 1)}
    coverages["failed"] = coverages[STAGES[PLACED]]
    numbers["failed"] = _sum(counted.drop_nulls("failed"))
    return {
        **{name: _count(coverages[name], number) for name, number in numbers.items()},
        "known": {name: coverage["known"] for name, coverage in coverages.items()},
    }


def _sum_from(counted: pl.DataFrame, stage: int) -> int:
    """Return how many cardholders came to a stage."""
    return _sum(counted.filter(pl.col("stage") >= stage))


def _sum(counted: pl.DataFrame) -> int:
    return int(counted["cardholders"].sum())
