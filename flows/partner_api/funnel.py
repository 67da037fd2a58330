"""The funnel: cardholders, sent, linked, opened, authenticated, placed, and failed by kind.

Each counts once. A stage has those who reached it, of how many that is known, and the others by
cause. Frames in, facts out; `run_funnel.py` reads the frames of runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Final

import polars as pl

from flows.partner_api.row_stages import (
    AUTHENTICATED,
    BASES,
    LINK,
    OPENED,
    PLACED,
    SENT,
    STANDING,
)
from schemas.partner_api.link_placements import STAGES
from schemas.partner_api.unknowns import SOURCES

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
