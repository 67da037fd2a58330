"""Renew links that are about to end: a run for who is still in the latest extract."""

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import NamedTuple

import polars as pl

from flows.resend.selected_run import reopen_source, rows_digest, selection_job
from flows.resend.selection import CARD
from flows.runs.attempts import attempts
from flows.runs.business_date import local_day
from flows.runs.commits import commits_since
from flows.runs.context import IssuerContext, overlaid
from flows.runs.errors import NotFoundError
from flows.runs.prior_state import ATTEMPT, AWAITED, REFUSED
from flows.runs.probe import ensure_store_safe
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import Step
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
    """Which cards are renewed."""

    of: Manifest
    until: date
    rows: pl.DataFrame  # cuid, last_4, ends, row of the run `of`
    left_out: dict[str, int]  # cards by reason
    commit: int  # number of the last known one


def expiring(
    attempts: Iterable[pl.DataFrame], extract: pl.DataFrame, today: date, until: date
) -> pl.DataFrame:
    """Return cuid, last_4, ends, row, why of every card whose link ends by `until`.

    `why` is null where it is due. A link that ended before `today` is renewed as well. `attempts`:
    frames with the columns HAD, oldest first; `extract`: row, cuid, last_4, expiration, fate of
    every row.
    """
    cards = _last_attempts(attempts, today, until)
    concerned = cards.filter((pl.col("ends") <= until) | pl.col("alive"))
    # one row per card: one that was fit to be sent, where there is one
    fit = pl.col("fate").is_in([ledger.SUBMITTED, ledger.SUPPRESSED])
    named = extract.drop_nulls(CARD).select(*CARD, "row", "expiration", fit.alias("fit"))
    rows = named.sort("fit", "row", descending=[True, False]).unique(CARD, keep="first")
    beside = concerned.join(rows, on=CARD, how="left", maintain_order="left", validate="1:1")
    listed = beside.select(*CARD, "ends", "row", _why_left_out(today, until).alias("why"))
    return listed.sort("row", *CARD, nulls_last=True)


def _last_attempts(attempts: Iterable[pl.DataFrame], today: date, until: date) -> pl.DataFrame:
    """Return of every card its last state, when its last link `ends`, and whether one is `alive`.

    Alive: it ends between the two days. A link that was replaced long ago is no news.
    """
    ends = pl.when(pl.col("state") == "linked").then("expires_on")
    none = pl.DataFrame(schema={name: ATTEMPT[name] for name in HAD})
    of_card = pl.concat([none, *attempts]).group_by(CARD)
    return of_card.agg(
        pl.col("state").last(),
        ends.max().alias("ends"),
        ends.is_between(today, until).any().alias("alive"),
    )


def _why_left_out(today: date, until: date) -> pl.Expr:
    year = 2000 + pl.col("expiration").str.slice(0, 2).cast(pl.Int32)
    month = pl.col("expiration").str.slice(2, 2).cast(pl.Int32)
    last_day = pl.date(year, month, 1).dt.month_end()
    ends = pl.col("ends")
    return (
        pl.when(pl.col("state") == "awaiting")
        .then(pl.lit(AWAITED))
        .when(ends > until)
        .then(pl.lit(RENEWED))
        .when(pl.col("state") == "error")
        .then(pl.lit(REFUSED))
        .when(pl.col("row").is_null())
        .then(pl.lit(ABSENT))
        .when(~pl.col("fit"))
        .then(pl.lit(UNFIT))
        .when((last_day <= ends) | (last_day < today))
        .then(pl.lit(DYING))
    )


def renewals(context: IssuerContext, within_days: int) -> RenewalPlan:
    """Return the cards of the latest extract whose link ends in so many days; nothing is written.

    Raises NotFoundError where there is no such extract.
    """
    store = context.adapters.store
    runs = StoredRuns(store, context.issuer.issuer)
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    until = today + timedelta(days=within_days)
    commits = list(commits_since(store, context.issuer.issuer))
    latest = _latest_extract(runs, commits)
    records = pl.concat(StoredRun.by_id(store, latest.run).ledger(RECORD))
    earlier = (attempt.rows.select(HAD) for attempt in attempts(runs, today, commits))
    cards = expiring(earlier, records, today, until)
    reasons = cards.drop_nulls("why").group_by("why").len()
    left_out = reasons.sort("len", "why", descending=[True, False])
    due = cards.filter(pl.col("why").is_null())
    return RenewalPlan(latest, until, due, dict(left_out.iter_rows()), len(commits))


def _latest_extract(runs: StoredRuns, commits: Sequence[Manifest]) -> Manifest:
    """Return the run of the latest whole extract; NotFoundError."""
    places = {commit.run: place for place, commit in enumerate(commits)}
    whole = [manifest for manifest in runs.manifests() if manifest.selection is None]
    if not whole:
        raise NotFoundError(
            place=runs.issuer, what="committed run of a whole extract", command=Step("status")
        )
    return max(whole, key=lambda manifest: (manifest.as_of, places.get(manifest.run, -1)))


def renew(
    context: IssuerContext, within_days: int, on_progress: OnProgress = lambda _: None
) -> tuple[RenewalPlan, Submitted | None]:
    """Commit the run that renews what is due, if anything.

    Repeated after a crash it finishes the same run.
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
    rows = due.rows.select("row", origin="row")
    selection = Selection(
        kind="renew",
        of=due.of.run,
        rows=rows.height,
        sha256=rows_digest(rows),
        reason=f"links that end by {due.until}",
    )
    retry_command = Step("renew", context.issuer.issuer, within=f"{within_days}d")
    return selection_job(context, source, SelectedRows(rows), selection, retry_command, due.commit)
