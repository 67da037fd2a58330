"""What is to be done about links that end within a week, have ended, or are of what has changed.

Exactly what a renewal would do, and why it leaves the others out: `flows/resend/renewal.py` says
both, here it becomes lines of the worklist.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time

import polars as pl

from flows.book.known_runs import KnownPlan
from flows.book.standing import EXPIRED, USABLE
from flows.reports import work_kinds as kinds
from flows.reports.work import Work
from flows.runs.cards import CARD
from schemas.reasons import ABSENT, GONE, TYPED_IN, UNFIT

WITHIN = 7  # days
NAMED = 3  # reasons in a sentence


def link_work(issuer: str, ending: pl.DataFrame, now: datetime) -> Iterator[Work]:
    """Yield what is to be done about these links (`flows.reports.unlinked.ENDING`).

    Nothing about a card that expires before a new link would help, or that awaits its answer. One
    that was refused, or has left, is work only while its link counts.
    """
    is_ended = pl.col("standing") == EXPIRED.name
    counts = ending.filter(is_work())
    due = counts.filter(pl.col("why").is_null())
    if due.height:
        yield _work(issuer, kinds.TO_RENEW, due, now)
    for (run,), rows in counts.filter(why=UNFIT).group_by("run", maintain_order=True):
        yield _work(issuer, kinds.LINKS_UNFIT, rows, now, run=str(run))
    for (extract,), rows in counts.filter(why=GONE).group_by("extract", maintain_order=True):
        yield _work(issuer, kinds.LINKS_GONE, rows, now, name=str(extract))
    for why, kind in ((TYPED_IN, kinds.LINKS_TYPED_IN), (ABSENT, kinds.LINKS_ABSENT)):
        rows = counts.filter(is_ended if why == ABSENT else pl.lit(value=True), why=why)
        if rows.height:
            yield _work(issuer, kind, rows, now)


def is_work() -> pl.Expr:
    """Return whether a link (ENDING) that ends or has ended can be somebody's work."""
    states = [EXPIRED.name, *(state.name for state in USABLE)]
    return pl.col("standing").cast(pl.String).is_in(states)


def changed_work(
    issuer: str, committed: Iterable[KnownPlan], changes: pl.DataFrame
) -> Iterator[Work]:
    """Yield the cards that have changed since their link, by the run whose extract says so.

    `changes`: as of `flows.book.book.Book.changes`.
    """
    plans = {plan.run: plan for plan in committed}
    counts = changes.select(pl.col("is_name", "is_address").sum()).row(0)
    note = "In all, {:,} have another name, {:,} another address.".format(*counts)
    for run, number in changes.group_by("run", maintain_order=True).len().iter_rows():
        yield _run_work(issuer, kinds.CHANGED, run, number, plans[run].since, note)


def not_replaced_work(
    issuer: str, committed: Iterable[KnownPlan], refused: pl.DataFrame, now: datetime
) -> Iterator[Work]:
    """Yield the cards whose link was to be replaced, by the run whose row was refused.

    `refused`: as of `flows.book.book.Book.not_replaced`.
    """
    yield from _refused_work(issuer, kinds.NOT_REPLACED, committed, refused, now)


def not_updated_work(
    issuer: str,
    committed: Iterable[KnownPlan],
    refused: pl.DataFrame,
    ending: pl.DataFrame,
    now: datetime,
) -> Iterator[Work]:
    """Yield the cards with a link of which we refused a newer row, by its run.

    `refused`: as of `flows.book.book.Book.not_updated`. Without those whose links end (ENDING),
    which are other work (`link_work`).
    """
    others = refused.join(ending, on=CARD, how="anti", nulls_equal=True)
    yield from _refused_work(issuer, kinds.NOT_UPDATED, committed, others, now)


def nameless_work(
    issuer: str, committed: Iterable[KnownPlan], rows: pl.DataFrame, now: datetime
) -> Iterator[Work]:
    """Yield the rows that name no cardholder (`flows.book.book.Book.nameless`), by their run."""
    yield from _refused_work(issuer, kinds.NAMELESS, committed, rows, now)


def _refused_work(
    issuer: str, kind: str, committed: Iterable[KnownPlan], refused: pl.DataFrame, now: datetime
) -> Iterator[Work]:
    """Yield work about refused rows (ATTEMPT) by their run, with the most frequent reasons."""
    plans = {plan.run: plan for plan in committed}
    codes = refused["reason"].drop_nulls().value_counts(sort=True).head(NAMED)
    named = ", ".join(f"{code} ({number:,})" for code, number in codes.iter_rows())
    note = f"Why: {named}." if named else ""
    by_run = refused.group_by("run", maintain_order=True).agg(pl.len(), pl.col("since").min())
    for run, number, answered in by_run.iter_rows():
        plan = plans.get(run)  # none where the fields were typed in
        since = answered or (plan.since if plan else now)
        yield _run_work(issuer, kind, run, number, since, note)


def _run_work(issuer: str, kind: str, run: str, rows: int, since: datetime, note: str) -> Work:
    return Work(due=since, kind=kind, issuer=issuer, run=run, rows=rows, since=since, note=note)


def _work(
    issuer: str, kind: str, rows: pl.DataFrame, now: datetime, run: str = "", name: str = ""
) -> Work:
    first: date = rows["ends"].min()  # type: ignore[assignment]  # of dates
    due = _midnight(first)
    fields = (("name", name),) if name else ()
    ended = rows.filter(pl.col("standing") == EXPIRED.name).height
    since = min(due, now)
    return Work(
        due=due,
        kind=kind,
        issuer=issuer,
        run=run,
        rows=rows.height,
        since=since,
        fields=fields,
        is_late=ended > 0,
        late_rows=ended,
    )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
