"""The funnel from link to placed card: each cardholder once, by the best that any row says.

Of each row of a ledger and each stage a text says how it stands, so that of the rows of a
cardholder the first in order counts: that the stage was reached, and who says so; that a job is
under way to it; why it is not known; that it was not reached. Frames in, facts out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import Any, Final, NamedTuple

import polars as pl

from flows.extensions.partner_api.causes import (
    LOST_MESSAGES,
    NEVER_ASKED,
    NO_AUTHENTICATION,
    NO_RESULT,
    REPORT_WORD,
    REPORTS,
    RESULTS,
    SERVICE,
    UNREADABLE,
)
from flows.extensions.partner_api.service_objects import BILLABLE
from schemas import ledger
from schemas.ledger import AWAITING, LINKED

# How far a cardholder with a link came, least first; each stage holds all those after it.
BEYOND: Final = ("linked", "opened", "authenticated", "placed")
REACHED = (*BEYOND, "failed")  # what is counted by merchant site and by age of link
SITES = 50  # merchant sites named; all others are one line
OTHERS = "other sites"
UNKNOWN_SITE = "site not known"
# Days since the run's business date, upper limits, the last open: a link lives two months
# (interface.md 8).
LINK_AGES = ("0 to 6 days", "7 to 13 days", "14 to 29 days", "30 to 61 days", "62 days and older")
_AGE_LIMITS = (6, 13, 29, 61)

# How a stage stands: one of these, and who says so or why nobody knows; null before that stage.
YES, MOVING, UNKNOWN, NO = "1234"
ENDS = pl.Schema(  # what the service or a report says of a link; null: it does not say
    {
        "opened": pl.Boolean(),
        "authenticated": pl.Boolean(),
        "running": pl.Boolean(),  # null: nothing is known of its jobs, so neither of their ends
        "termination_type": pl.String(),
        "merchant_site": pl.String(),
    }
)
# why the service does not know the stages of a link
CAUSES = pl.Schema(
    dict.fromkeys(("opened_cause", "authenticated_cause", "ended_cause"), pl.String())
)
STANDING = pl.Schema(
    {
        "holder": pl.UInt64(),
        "sent": pl.Boolean(),
        **dict.fromkeys(BEYOND, pl.String()),
        "failed": pl.String(),
        "site": pl.String(),
        "age": pl.UInt8(),
    }
)
_BY_REPORT: Final = "_report"  # suffix of the columns of ENDS that transaction reports say
_CELL = list(STANDING)[1:]  # what cardholders are counted by


def causes() -> list[pl.Expr]:
    """Return why the stages of a row of the table `placement` are not known (CAUSES)."""
    has_missed = pl.sum_horizontal("lost", "unread") > 0
    lost = pl.when(has_missed).then(pl.lit(LOST_MESSAGES))
    jobs = pl.coalesce("jobs_trouble", lost, pl.lit(NEVER_ASKED))
    silent = pl.when(pl.col("running").is_not_null()).then(pl.lit(NO_AUTHENTICATION))
    return [
        pl.coalesce("trouble", pl.lit(NEVER_ASKED)).alias("opened_cause"),
        pl.coalesce(silent, jobs).alias("authenticated_cause"),
        jobs.alias("ended_cause"),
    ]


def standing(
    rows: pl.DataFrame, by_row: pl.DataFrame, by_cuid: pl.DataFrame, age: int
) -> pl.DataFrame:
    """Return how the rows of a ledger stand (STANDING).

    `rows`: run, row, cuid, fate, state, which is null where nothing was sent. `by_row` and
    `by_cuid`: ENDS of linked rows as the service says them, with CAUSES, and as transaction reports
    do, with `status`; either may be empty.
    """
    by_service = by_row.select("row", *ENDS, *CAUSES)
    by_report = by_cuid.select("cuid", *ENDS, report_status="status")
    known = rows.join(by_service, on="row", how="left").join(
        by_report, on="cuid", how="left", suffix="_report"
    )
    linked = pl.col("state") == LINKED
    # where the service knows of an end, it is later than what a report says
    runs_by_report = pl.col("running_report") & pl.col("termination_type").is_null()
    known = known.with_columns(running_report=runs_by_report)
    has_link = pl.when(linked).then(pl.lit(YES + RESULTS))
    awaits = pl.when(pl.col("state") == AWAITING).then(pl.lit(UNKNOWN + NO_RESULT))
    has_none = pl.when(pl.col("state").is_not_null()).then(pl.lit(NO + RESULTS))
    columns = {
        "sent": (linked | (pl.col("fate") == ledger.SUBMITTED)).fill_null(value=False),
        "linked": pl.coalesce(has_link, awaits, has_none),
        **{name: pl.when(linked).then(stage) for name, stage in _stages().items()},
        "failed": pl.when(linked).then(_either("termination_type")),
        "site": pl.when(linked).then(_either("merchant_site")),
        "age": pl.lit(age),
    }
    return known.select(_holder().alias("holder"), **columns).cast(STANDING)


def _stages() -> dict[str, pl.Expr]:
    """Return how the stages of a linked row stand."""
    is_reported = pl.col("opened_report").is_not_null()
    word = pl.format(f"{REPORT_WORD}.{{}}", pl.col("report_status"))
    silent = pl.when(is_reported).then(pl.lit(NO_AUTHENTICATION))
    unread = pl.when(is_reported).then(pl.coalesce(word, pl.lit(UNREADABLE)))
    never = pl.lit(NEVER_ASKED)
    opened = _stage(["opened"], _has_opened, "opened_cause", never)
    signed_in = _stage(["authenticated"], _has_signed_in, "authenticated_cause", silent)
    moving = pl.lit(MOVING) + _who_says(["running"])
    placed = _stage(["running", "termination_type"], _has_placed, "ended_cause", unread)
    is_moving = ~placed.str.starts_with(YES) & (pl.col("running") | pl.col("running_report"))
    return {
        "opened": opened,
        "authenticated": signed_in,
        "placed": pl.when(is_moving).then(moving).otherwise(placed),
    }


def _has_placed(suffix: str) -> pl.Expr:
    return pl.col(f"termination_type{suffix}").eq_missing(BILLABLE)


def _has_signed_in(suffix: str) -> pl.Expr:
    return _has_placed(suffix) | pl.col(f"authenticated{suffix}").fill_null(value=False)


def _has_opened(suffix: str) -> pl.Expr:
    return _has_signed_in(suffix) | pl.col(f"opened{suffix}").fill_null(value=False)


def _stage(
    columns: Sequence[str], reached: Callable[[str], pl.Expr], cause: str, by_report: pl.Expr
) -> pl.Expr:
    """Return how a stage stands: reached, by whom; not, by whom; else why nobody knows.

    `columns`: in any of which something is said of it. `by_report`: why reports do not say, which
    counts where the service was never asked.
    """
    in_vain = pl.when(pl.col(cause) != NEVER_ASKED).then(cause)
    return (
        pl.when(reached(""))
        .then(pl.lit(YES + SERVICE))
        .when(reached(_BY_REPORT))
        .then(pl.lit(YES + REPORTS))
        .otherwise(
            pl.coalesce(
                pl.lit(NO) + _who_says(columns),
                pl.lit(UNKNOWN) + pl.coalesce(in_vain, by_report, pl.lit(NEVER_ASKED)),
            )
        )
    )


def _who_says(columns: Sequence[str]) -> pl.Expr:
    """Return who says anything in some columns: the service, else transaction reports; null."""
    by_service = pl.any_horizontal(pl.col(name).is_not_null() for name in columns)
    by_report = pl.any_horizontal(pl.col(f"{name}{_BY_REPORT}").is_not_null() for name in columns)
    return pl.when(by_service).then(pl.lit(SERVICE)).when(by_report).then(pl.lit(REPORTS))


def _either(column: str) -> pl.Expr:
    return pl.coalesce(column, f"{column}{_BY_REPORT}")


def _holder() -> pl.Expr:
    """Mark a cardholder by cuid; a row whose cuid nobody could read is one of its own."""
    own = pl.struct("run", "row").hash(seed=1)
    return pl.when(pl.col("cuid").is_null()).then(own).otherwise(pl.col("cuid").hash())


def age_of(as_of: date, today: date) -> int:
    """Return which of LINK_AGES the links of a run of that business date have."""
    return sum((today - as_of).days > limit for limit in _AGE_LIMITS)


def cells(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Count cardholders by everything the funnel shows (STANDING): each once, by its best state.

    Cells of different cardholders add up as rows of one frame.
    """
    rows = pl.concat([pl.DataFrame(schema=STANDING), *frames])
    repeated = pl.col("holder").is_duplicated()
    holders = pl.concat([rows.filter(~repeated), _best(rows.filter(repeated))])
    has_failed = pl.col("placed").str.starts_with(NO)
    counted = holders.with_columns(failed=pl.when(has_failed).then("failed"))
    return counted.group_by(_CELL).agg(cardholders=pl.len().cast(pl.UInt64))


def _best(rows: pl.DataFrame) -> pl.DataFrame:
    """Combine the rows of each cardholder: of each stage what comes first in order."""
    ordered = rows.sort(*reversed(BEYOND), "failed", "site", "age", nulls_last=True)
    return (
        ordered.group_by("holder", maintain_order=True)
        .agg(
            pl.col("sent").any(),
            pl.col(BEYOND).min(),
            pl.col("failed", "site").drop_nulls().first(),
            pl.col("age").first(),
        )
        .select(*STANDING)
    )


class Coverage(NamedTuple):
    """How many cardholders reached a stage, of how many that is known by whom, and why not."""

    number: int
    known_by: dict[str, int]
    unknown: dict[str, int]

    @property
    def known(self) -> int:
        """Of how many it is known."""
        return sum(self.known_by.values())

    def shown(self, number: int) -> int | None:
        """Return a number of these, None where nothing is known of them."""
        return None if self.unknown and not self.known else number


def facts(counted: pl.DataFrame) -> dict[str, Any]:
    """Return the funnel of cells.

    Stages, failures by kind, jobs under way, by merchant site and by age of link. A stage has those
    who reached it (`cardholders`, None where it is known of nobody), of how many it is `known`, by
    whom, and the others (`unknown`) by cause; shares are of those known. `failed` and `under_way`
    are known of those of whom it is known whether they are placed.
    """
    total = _sum(counted)
    ends = _coverage(counted, "placed")
    kinds = _sums_by(counted, "failed")
    moving = _sum(counted.filter(_is("placed", MOVING)))
    ages = enumerate(LINK_AGES)
    return {
        "stages": [
            _own_stage("cardholders", total, total),
            _own_stage("sent", _sum(counted.filter("sent")), total),
            *(_stage_facts(name, _coverage(counted, name)) for name in BEYOND),
        ],
        "failed": [
            {"kind": kind, "cardholders": number, "share": number / ends.known}
            for kind, number in kinds
        ],
        "under_way": ends.shown(moving),
        "sites": _sites(counted),
        "ages": [{"age": name, **_line(counted.filter(age=age))} for age, name in ages],
    }


def _own_stage(name: str, number: int, known: int) -> dict[str, Any]:
    """Return a stage that our own ledger knows of everybody."""
    share = number / known if known else None
    return {
        **{"stage": name, "cardholders": number, "share": share},
        **{"known": known, "known_by": {}, "unknown": []},
    }


def _stage_facts(name: str, coverage: Coverage) -> dict[str, Any]:
    causes = coverage.unknown.items()
    return {
        "stage": name,
        "cardholders": coverage.shown(coverage.number),
        "share": coverage.number / coverage.known if coverage.known else None,
        "known": coverage.known,
        "known_by": coverage.known_by,
        "unknown": [{"cause": cause, "cardholders": number} for cause, number in causes],
    }


def _coverage(counted: pl.DataFrame, stage: str) -> Coverage:
    reached = 0
    known_by = Counter[str]()
    unknown = Counter[str]()
    for text, number in _sums_by(counted, stage):
        basis = text[1:]
        if text.startswith(UNKNOWN):
            unknown[basis] += number
        else:
            known_by[basis] += number
        if text.startswith(YES):
            reached += number
    return Coverage(reached, dict(known_by.most_common()), dict(unknown.most_common()))


def _is(stage: str, state: str) -> pl.Expr:
    return pl.col(stage).str.starts_with(state).fill_null(value=False)


def _sums_by(counted: pl.DataFrame, column: str) -> list[tuple[str, int]]:
    """Return how many cardholders have each value, most first."""
    sums = counted.drop_nulls(column).group_by(column).agg(pl.col("cardholders").sum())
    return sums.sort("cardholders", column, descending=[True, False]).rows()


def _sites(counted: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the funnel's end by merchant site, most cardholders first."""
    is_on_its_way = _is("authenticated", YES) | _is("placed", MOVING)
    named = counted.filter(is_on_its_way | pl.col("failed").is_not_null())
    named = named.with_columns(pl.col("site").fill_null(UNKNOWN_SITE))
    names = [site for site, _ in _sums_by(named, "site")]
    shown = names[:SITES]
    is_shown = pl.col("site").is_in(shown)
    folded = named.with_columns(pl.when(is_shown).then("site").otherwise(pl.lit(OTHERS)))
    if len(names) > SITES:
        shown.append(OTHERS)
    return [{"site": name, **_line(folded.filter(site=name))} for name in shown]


def _line(counted: pl.DataFrame) -> dict[str, Any]:
    """Return how many of some cardholders reached each stage, and of how many that is known."""
    coverages = {name: _coverage(counted, name) for name in BEYOND}
    numbers = {name: coverage.number for name, coverage in coverages.items()}
    coverages["failed"] = coverages["placed"]
    numbers["failed"] = _sum(counted.drop_nulls("failed"))
    return {
        **{name: coverages[name].shown(number) for name, number in numbers.items()},
        "known": {name: coverage.known for name, coverage in coverages.items()},
    }


def _sum(counted: pl.DataFrame) -> int:
    return int(counted["cardholders"].sum())
