"""Renew links that are about to end: a run for the cardholders who are still in the latest
extract.
"""

from collections.abc import Iterable
from datetime import date, timedelta
from typing import NamedTuple

import polars as pl

from flows.resend.selection import CARD, reopen_source, rows_digest, selection_job
from flows.runs.attempts import attempts
from flows.runs.business_date import local_day
from flows.runs.commits import commits_since
from flows.runs.context import IssuerContext, overlaid
from flows.runs.documents import manifests, read_ledger
from flows.runs.errors import NotFoundError
from flows.runs.keys import keys_of
from flows.runs.prior_state import ATTEMPT, AWAITED, REFUSED
from flows.runs.probe import ensure_store_safe
from flows.runs.stored_runs import StoredRuns
from flows.submissions.build import Job, OnProgress
from flows.submissions.commit import finish_commits
from flows.submissions.rehearsal import NO_ROWS, Checked, check_selection
from flows.submissions.row_scope import SelectedRows
from flows.submissions.submit import Submitted, execute
from schemas import ledger
from schemas.manifest import Manifest, Selection

RENEWED = "card.link.renewed"  # has a newer link, which ends later
ABSENT = "card.extract.absent"  # is not in the latest extract
UNFIT = "card.extract.refused"  # is there, in a row that we refused
DYING = "card.expiration.before_link"  # the card expires first: a new link would be of no use

HAD = ["cuid", "last_4", "state", "expires_on"]
RECORD = ["row", "cuid", "last_4", "expiration", "fate"]


class RenewalPlan(NamedTuple):
    """Which cards are renewed: `rows` has cuid, last_4, ends, row of the run `of`; `left_out`:
    cards by reason.
    """

    of: Manifest
    until: date
    rows: pl.DataFrame
    left_out: dict[str, int]
    commit: int


def expiring(
    attempts: Iterable[pl.DataFrame], extract: pl.DataFrame, today: date, until: date
) -> pl.DataFrame:
    """Return cuid, last_4, ends, row, why of every card whose link ends by `until`; why is null
    where due.

    A link that ended before `today` is renewed as well. `attempts`: frames with the columns HAD,
    oldest first;
    `extract`: row, cuid, last_4, expiration, fate of every row.
    """
    ends = pl.when(pl.col("state") == "linked").then("expires_on")
    every = pl.concat([pl.DataFrame(schema={name: ATTEMPT[name] for name in HAD}), *attempts])
    cards = every.group_by(CARD).agg(
        pl.col("state").last(),
        ends.max().alias("ends"),
        ends.is_between(today, until).any().alias("alive"),  # a link replaced long ago is no news
    )
    concerned = cards.filter((pl.col("ends") <= until) | pl.col("alive"))
    # one row per card: one that was fit to be sent, where there is one
    fit = pl.col("fate").is_in([ledger.SUBMITTED, ledger.SUPPRESSED])
    named = extract.drop_nulls(CARD).select(*CARD, "row", "expiration", fit.alias("fit"))
    rows = named.sort("fit", "row", descending=[True, False]).unique(CARD, keep="first")
    beside = concerned.join(rows, on=CARD, how="left", maintain_order="left", validate="1:1")
    return beside.select(*CARD, "ends", "row", _why(today, until).alias("why")).sort(
        "row", *CARD, nulls_last=True
    )


def _why(today: date, until: date) -> pl.Expr:
    year, month = (
        2000 + pl.col("expiration").str.slice(0, 2).cast(pl.Int32),
        pl.col("expiration").str.slice(2, 2),
    )
    last_day = pl.date(year, month.cast(pl.Int32), 1).dt.month_end()
    return (
        pl.when(pl.col("state") == "awaiting").then(pl.lit(AWAITED))
        .when(pl.col("ends") > until).then(pl.lit(RENEWED))
        .when(pl.col("state") == "error").then(pl.lit(REFUSED))
        .when(pl.col("row").is_null()).then(pl.lit(ABSENT))
        .when(~pl.col("fit")).then(pl.lit(UNFIT))
        .when((last_day <= pl.col("ends")) | (last_day < today)).then(pl.lit(DYING))
    )  # fmt: skip


def renewals(context: IssuerContext, within_days: int) -> RenewalPlan:
    """Return the cards of the latest extract whose link ends in so many days; nothing is written.
    NotFoundError.
    """
    store, issuer = context.adapters.store, context.issuer.issuer
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    links = list(commits_since(store, issuer))
    turns = {link.run: turn for turn, link in enumerate(links)}
    whole = [one for one in manifests(store, issuer) if one.selection is None]
    if not whole:
        raise NotFoundError(
            place=issuer, what="committed run of a whole extract", command="cardlink status"
        )
    latest = max(whole, key=lambda one: (one.as_of, turns.get(one.run, -1)))
    records = pl.concat(read_ledger(store, keys_of(latest.run), latest.ledger, RECORD))
    until = today + timedelta(days=within_days)
    found = expiring(
        (one.rows.select(HAD) for one in attempts(StoredRuns(store, issuer), today, links)),
        records,
        today,
        until,
    )
    left = (
        found.drop_nulls("why").group_by("why").len().sort("len", "why", descending=[True, False])
    )
    due = found.filter(pl.col("why").is_null())
    return RenewalPlan(latest, until, due, dict(left.iter_rows()), len(links))


def renew(
    context: IssuerContext, within_days: int, on_progress: OnProgress = lambda _: None
) -> tuple[RenewalPlan, Submitted | None]:
    """Commit the run that renews what is due, if anything; repeated after a crash it finishes the
    same run.
    """
    finish_commits(context)
    due = renewals(context, within_days)
    if due.rows.is_empty():
        return due, None
    with context.sealer() as sealer:
        ensure_store_safe(context)
        return due, execute(context, _job(context, within_days, due), sealer, on_progress)


def rehearse_renew(context: IssuerContext, within_days: int) -> tuple[RenewalPlan, Checked]:
    """Return what a renewal would do, and what its run would come to; nothing is written."""
    dry = overlaid(context)
    finish_commits(dry)
    due = renewals(dry, within_days)
    if due.rows.is_empty():
        return due, NO_ROWS
    return due, check_selection(dry, _job(dry, within_days, due))


def _job(context: IssuerContext, within_days: int, due: RenewalPlan) -> Job:
    """Plan the run of what is due."""
    source = reopen_source(context, due.of.run, due.of.source)
    rows, reason = due.rows.select("row", origin="row"), f"links that end by {due.until}"
    selection = Selection(
        kind="renew", of=due.of.run, rows=rows.height, sha256=rows_digest(rows), reason=reason
    )
    again = f"cardlink renew {context.issuer.issuer} --within {within_days}d"
    return selection_job(context, source, SelectedRows(rows), selection, again, due.commit)
