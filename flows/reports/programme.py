"""The programme: all issuers together, by the week in which cardholders were first named.

Frames in, tables out; `programme_report` reads the issuers and writes the report. A week has the
cardholders whom an issuer first named in it, and says where they stand today: the book keeps no
earlier day, so a past week changes with every answer that comes, and the weeks add up to everybody.
Reasons and hours are those of the runs whose business date is in the week.

Whether a card was ever placed is counted among those of whom it is known (`placed_known`), and null
where it is known of nobody.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

import polars as pl

from flows.book.people import WAITING_FOR, Balance, counted_cards, people
from flows.book.standing import EXPIRED, SERVED, STATES
from flows.reports.hours import hours_of
from flows.reports.run_facts import RunFacts
from schemas.reasons import reason

STATE_NAMES = [state.name for state in STATES]
_SERVED = [state.name for state in SERVED]
# how many: named by an issuer, sent to the partner, ever had a link, have a link or a placed card
# now, ever had a card placed, and whose link expired unused; the last two among those
# of whom it is known
MEASURES = (
    "named",
    "sent",
    "had_link",
    "have_link",
    "ever_placed",
    "placed_known",
    "expired_unused",
    "expired_known",
)
COUNTS = pl.Schema(dict.fromkeys((*MEASURES, *STATE_NAMES), pl.UInt32()))
HOURS = pl.Schema(
    {
        "week": pl.Date(),
        "issuer": pl.String(),
        "links": pl.UInt32(),
        "median_hours": pl.Float64(),
        "slowest_hours": pl.Float64(),
        "share_in_time": pl.Float64(),
        "placed": pl.UInt32(),
        "median_days": pl.Float64(),
        "slowest_days": pl.Int64(),
    }
)
REASONS = pl.Schema(
    {
        "week": pl.Date(),
        "issuer": pl.String(),
        "stage": pl.String(),
        "code": pl.String(),
        "action": pl.String(),
        "rows": pl.UInt32(),
    }
)


EVERY_WEEK = date.min  # the week of a line over all weeks
EVERY_ISSUER = ""


class IssuerFacts(NamedTuple):
    """What the programme's report knows of one issuer."""

    issuer: str
    cardholders: pl.DataFrame  # as of `cardholders`
    balance: Balance
    runs: Sequence[RunFacts]
    within: int  # the hours within which a link is agreed to arrive


class WeekOfIssuer(NamedTuple):
    """What a line of a table is about."""

    week: date  # its Monday
    issuer: str


def cardholders(cards: pl.DataFrame) -> pl.DataFrame:
    """Return one line a cardholder: week, sent, had_link, standing, and what is known of the end.

    `cards`: as of `flows.book.book.Book.cards`. `placed`: whether any of the cardholder's cards is,
    null where that is not known of all that had a link; `placed_week`: of the run whose link it
    was, and `days` from the link to the placed card, where both are known.
    """
    had_link = pl.col("until").is_not_null()
    is_placed = pl.col("placed").any()
    is_known = (pl.col("placed").is_not_null() | ~had_link).all()
    days = (pl.col("placed_on") - pl.col("linked_at").dt.date()).dt.total_days()
    dated = cards.with_columns(days=days.clip(lower_bound=0)).sort("linked_at", maintain_order=True)
    is_dated = pl.col("days").is_not_null()
    history = (
        dated.drop_nulls("holder")
        .group_by("holder")
        .agg(
            week=_week("first").min(),
            sent=pl.col("sendings").sum() > 0,
            had_link=had_link.any(),
            placed=pl.when(is_placed).then(True).when(is_known).then(False),
            placed_week=_week("as_of").filter(is_dated).first(),
            days=pl.col("days").filter(is_dated).first(),
        )
    )
    stand = people(counted_cards(cards)).select("holder", "standing")
    return history.join(stand, on="holder").drop("holder")


def by_week(issuers: Iterable[IssuerFacts]) -> pl.DataFrame:
    """Return how many cardholders of each week and issuer stand where: week, issuer, COUNTS."""
    key = pl.Schema({"week": pl.Date(), "issuer": pl.String()})
    frames = [
        known.cardholders.group_by("week")
        .agg(**_counts())
        .with_columns(issuer=pl.lit(known.issuer))
        for known in issuers
    ]
    shape = pl.Schema({**key, **COUNTS})
    counted = (frame.select(*shape).cast(shape) for frame in frames)
    return pl.concat([pl.DataFrame(schema=shape), *counted]).sort(*key)


def _counts() -> dict[str, pl.Expr]:
    is_placed = pl.col("placed")
    is_known = is_placed.is_not_null()
    had_link = pl.col("had_link")
    expired = pl.col("standing") == EXPIRED.name
    measures = {
        "named": pl.len(),
        "sent": pl.col("sent").sum(),
        "had_link": had_link.sum(),
        "have_link": pl.col("standing").cast(pl.String).is_in(_SERVED).sum(),
        "ever_placed": (had_link & is_placed).sum(),
        "placed_known": (had_link & is_known).sum(),
        "expired_unused": (expired & ~is_placed).sum(),
        "expired_known": (expired & is_known).sum(),
    }
    states = {name: (pl.col("standing") == name).sum() for name in STATE_NAMES}
    return {**measures, **states}


def added_up(counts: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Return counts added up: a line each week, each issuer, or one for all."""
    sums = [pl.col(name).sum() for name in COUNTS]
    if by:
        return counts.group_by(by).agg(sums).sort(by)
    return counts.select(sums)


def without_unknown(counts: pl.DataFrame) -> pl.DataFrame:
    """Return counts with null where nothing is known of anybody they could count."""
    is_known = (pl.col("placed_known") > 0) | (pl.col("had_link") == 0)
    is_known_of_expired = (pl.col("expired_known") > 0) | (pl.col(EXPIRED.name) == 0)
    return counts.with_columns(
        ever_placed=pl.when(is_known).then("ever_placed"),
        expired_unused=pl.when(is_known_of_expired).then("expired_unused"),
    )


def recent(table: pl.DataFrame, today: date, weeks: int) -> pl.DataFrame:
    """Return a table with null as the week of all rows before the last so many weeks."""
    first = _monday(today) - timedelta(weeks=weeks - 1)
    return table.with_columns(week=pl.when(pl.col("week") >= first).then("week"))


def reasons(issuers: Iterable[IssuerFacts]) -> pl.DataFrame:
    """Return the reasons of both stages by week and issuer (REASONS), most rows first."""
    rows = Counter[tuple[WeekOfIssuer, str, str]]()
    for known in issuers:
        for run in known.runs:
            week = WeekOfIssuer(_monday(run.as_of), known.issuer)
            for stage, code, number in _reasons_of(run):
                rows[week, stage, code] += number
    lines = [
        (*week, stage, code, reason(code).action, number)
        for (week, stage, code), number in rows.items()
    ]
    order = ["week", "rows", "issuer", "code", "stage"]
    table = pl.DataFrame(lines, REASONS, orient="row")
    return table.sort(order, descending=[False, True, False, False, False])


def _reasons_of(run: RunFacts) -> Iterator[tuple[str, str, int]]:
    for stage, codes in run.reasons.items():
        for code, number in codes:
            yield stage, code, number


def hours(issuers: Sequence[IssuerFacts]) -> pl.DataFrame:
    """Return by week and issuer how long links and placed cards took (HOURS)."""
    return _hours(issuers, lambda week: week)


def hours_by_week(issuers: Sequence[IssuerFacts]) -> pl.DataFrame:
    """Return HOURS by week, over all issuers (EVERY_ISSUER)."""
    return _hours(issuers, lambda week: week._replace(issuer=EVERY_ISSUER))


def hours_by_issuer(issuers: Sequence[IssuerFacts]) -> pl.DataFrame:
    """Return HOURS by issuer, over all weeks (EVERY_WEEK)."""
    return _hours(issuers, lambda week: week._replace(week=EVERY_WEEK))


def hours_over_all(issuers: Sequence[IssuerFacts]) -> dict[str, Any]:
    """Return HOURS over all weeks and issuers."""
    table = _hours(issuers, lambda _: WeekOfIssuer(EVERY_WEEK, EVERY_ISSUER))
    none = {**dict.fromkeys(HOURS), "links": 0, "placed": 0}
    figures = table.row(0, named=True) if table.height else none
    return {name: figures[name] for name in HOURS if name not in ("week", "issuer")}


class _TimedRun(NamedTuple):
    run: RunFacts
    within: int


def _hours(
    issuers: Sequence[IssuerFacts], line_of: Callable[[WeekOfIssuer], WeekOfIssuer]
) -> pl.DataFrame:
    """Return HOURS with the weeks of issuers brought together by the line that they belong to."""
    runs: dict[WeekOfIssuer, list[_TimedRun]] = defaultdict(list)
    days: dict[WeekOfIssuer, list[int]] = defaultdict(list)
    for known in issuers:
        for run in known.runs:
            line = line_of(WeekOfIssuer(_monday(run.as_of), known.issuer))
            runs[line].append(_TimedRun(run, known.within))
        dated = known.cardholders.drop_nulls("days").select("placed_week", "days")
        for week, number in dated.iter_rows():
            days[line_of(WeekOfIssuer(week, known.issuer))].append(number)
    lines = sorted(runs.keys() | days.keys())
    table = [(*line, *_spans(runs[line]), *_days(days[line])) for line in lines]
    return pl.DataFrame(table, HOURS, orient="row")


def _spans(runs: Sequence[_TimedRun]) -> tuple[int, float | None, float | None, float | None]:
    """Return links, median and slowest hours, and the share that came within those agreed."""
    figures = hours_of((timed.run.hours for timed in runs), 0)
    links = figures["links"]
    share = sum(map(_links_in_time, runs)) / links if links else None
    return links, figures["median"], figures["slowest"], share


def _links_in_time(timed: _TimedRun) -> int:
    return sum(links for span, links in timed.run.hours.items() if float(span) <= timed.within)


def _days(days: Sequence[int]) -> tuple[int, float | None, int | None]:
    """Return how many cards are placed on a known day, and the median and most days from link."""
    spans = pl.Series(days, dtype=pl.Int64)
    return spans.len(), spans.median(), max(days, default=None)  # type: ignore[return-value]


def waiting(issuers: Iterable[IssuerFacts]) -> pl.DataFrame:
    """Return for whom the cardholders of each issuer wait."""
    columns = {"issuer": pl.String, **{f"wait_for_{who}": pl.UInt32 for who in WAITING_FOR}}
    lines = [[known.issuer, *known.balance.waits.values()] for known in issuers]
    return pl.DataFrame(lines, columns, orient="row")


def _week(column: str) -> pl.Expr:
    return pl.col(column).dt.truncate("1w")


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())
