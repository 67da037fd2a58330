"""Follow links to "card placed": query links, ingest transaction reports, count funnels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import chain
from typing import Any

import polars as pl
from sqlalchemy import func, select

from flows.errors import OperatorError
from flows.extensions.partner_api.funnel import (
    CAUSES,
    ENDS,
    age_of,
    causes,
    cells,
    facts,
    standing,
)
from flows.extensions.partner_api.job_records import Job, jobs_of
from flows.extensions.partner_api.link_check import LinkCheck, check_links
from flows.extensions.partner_api.link_stages import has_reports, reported
from flows.extensions.partner_api.placements import (
    has_placements,
    linked_rows,
    read_placements,
    store_funnel,
    stored_funnel,
)
from flows.extensions.partner_api.profile import INTERFACE
from flows.extensions.partner_api.service import Placing
from flows.extensions.partner_api.service_objects import (
    AUTHENTICATED,
    AUTHENTICATING,
    ENDS_WITH_DAY,
    PENDING,
    PLACED,
)
from flows.extensions.partner_api.service_objects import ENDS as ENDS_OF_JOBS
from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.partner_api.tables import PLACEMENT
from flows.extensions.partner_api.transaction_reports import ingest_transactions
from flows.extensions.partner_api.words import coverage
from flows.reports.rebuild import rebuild
from flows.runs.adapters import Adapters
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import Sentence, Slot, Step
from schemas.result import LIFE

_UNCHECKED = LinkCheck(0, 0, 0, 0, 0, Counter(), "")


class NoLinksError(OperatorError):
    """A run without a report has no known links."""

    message = "{run} has no report yet, so its links are unknown."
    next_step = Sentence(
        "Have it made first: {report}.",
        report=Step("report", Slot("run")),
    )


def follow_links(
    context: IssuerContext, service: Placing | None, run: str = "", *, recheck: bool = False
) -> dict[str, Any]:
    """Check the links of a run, or of every run with active links.

    Return the funnel and what was done. Reports of runs whose funnel changed are rebuilt.
    `recheck`: query also links that were queried recently. Without a service only transaction
    reports are ingested. Raises NoLinksError; see also `check_links`.
    """
    issuer = context.issuer.issuer
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    stored = list(StoredRuns(context.adapters, issuer).with_ledger())
    settings = context.issuer.table(ServiceSettings)
    profile = settings or INTERFACE
    transactions = ingest_transactions(context.adapters, issuer, reversed(stored), profile)
    runs = _followed_runs(context.adapters, stored, run, today)
    check = _UNCHECKED
    if service is not None and settings is not None:
        check = check_links(context, service, settings, runs, recheck=recheck)
    rebuilt = [followed.id for followed in runs if _renewed(context, followed)]
    funnel = funnel_of(context.adapters, issuer, runs, today)
    if not run:
        store_funnel(context.adapters, issuer, funnel)
    numbers = ("links", "asked", "unanswered", "messages", "waiting")
    return {
        "issuer": issuer,
        "at": context.adapters.now().isoformat(timespec="seconds"),
        "runs": [followed.id for followed in runs],
        "looked": {name: getattr(check, name) for name in numbers},
        "coverage": coverage(check.questions),
        "stopped": check.stopped,
        "rebuilt": rebuilt,
        "transactions": {"files": transactions.files, "rows": transactions.rows},
        "breaks": [break_._asdict() for break_ in transactions.breaks],
        "doubts": unknown_words(runs),
        "funnel": funnel,
    }


def _followed_runs(
    adapters: Adapters, stored: Sequence[StoredRun], run: str, today: date
) -> list[StoredRun]:
    """Return the run that is named, else those whose links are still current."""
    if run:
        return [_with_links(adapters, run)]
    return [candidate for candidate in stored if _is_followed(candidate, today)]


def _with_links(adapters: Adapters, run_id: str) -> StoredRun:
    """Return a committed run that has a ledger and a report."""
    run = StoredRun.by_id(adapters, run_id)
    run.refuse_purged()
    run.committed()
    if run.summary is None:
        raise NoLinksError(run=run_id)
    return run


def _is_followed(run: StoredRun, today: date) -> bool:
    """Return whether a run has links that are still current."""
    if run.summary is None or not _is_current(run, today):
        return False
    return bool(run.summary["rows"]["linked"]) or not run.single_links.is_empty()


def _is_current(run: StoredRun, today: date) -> bool:
    """Return whether a reported run still has links that can be opened, or waits for some."""
    summary = run.summary or {}
    if summary["rows"]["awaiting"]:
        return True
    last_days = (date.fromisoformat(day) for day in summary["expires"] if day)
    return run.committed().as_of + LIFE >= today or any(day >= today for day in last_days)


def _renewed(context: IssuerContext, run: StoredRun) -> bool:
    """Rebuild a run's report if its funnel changed."""
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    current = run.fresh()  # checks take long, and the report may be another since
    summary: Mapping[str, Any] = current.summary or {}
    before = summary.get("funnel") or {}
    after = run_funnel(current, today) or {}
    if {**before, "seen": ""} == {**after, "seen": ""}:
        return False
    rebuild(context, run)
    return True


def across_facts(context: IssuerContext) -> dict[str, Any]:
    """Return the funnel over an issuer's runs, as the last check found it."""
    return {"funnel": stored_funnel(context.adapters, context.issuer.issuer)}


def summary_facts(run: StoredRun, today: date) -> dict[str, Any]:
    """Return the funnel of a run; nothing where nobody has reported anything."""
    funnel = run_funnel(run, today)
    return {"funnel": funnel} if funnel is not None else {}


SHARE = 2_000_000  # rows counted at a time


def run_funnel(run: StoredRun, today: date) -> dict[str, Any] | None:
    """Return the funnel of a run whose rows are reconciled.

    None where neither the service nor a transaction report has reported anything.
    """
    is_known = has_placements(run.adapters, run.issuer, run.id)
    if not (is_known or has_reports(run.adapters, run.issuer)):
        return None
    return funnel_of(run.adapters, run.issuer, [run], today)


def funnel_of(
    adapters: Adapters, issuer: str, runs: Sequence[StoredRun], today: date
) -> dict[str, Any]:
    """Return the funnel over runs of an issuer that have a report, each cardholder counted once.

    Beside the facts of `funnel.py`, `seen` is when the service last answered (ISO,
    None: never), `unasked` of how many linked rows it was not queried, and `unanswered` by cause
    how many it did not answer when it was last queried.
    """
    shares = 1 + sum(run.committed().counts.read for run in runs) // SHARE
    parts = []
    for share in range(shares):
        is_in_share = pl.col("cuid").hash().fill_null(0) % shares == share
        by_cuid = reported(adapters, issuer, is_in_share)
        standings = [_standings(run, today, is_in_share, by_cuid) for run in runs]
        parts.append(cells(chain.from_iterable(standings)))
    return {**facts(pl.concat(parts)), **_queries(adapters, issuer, runs)}


def _standings(
    run: StoredRun, today: date, is_in_share: pl.Expr, by_cuid: pl.DataFrame
) -> Iterator[pl.DataFrame]:
    """Yield how far the rows of a run came (STANDING), part by part."""
    manifest = run.committed()
    placements = read_placements(run.adapters, run.issuer, [run.id])
    by_row = placements.with_columns(causes()).select("row", *ENDS, *CAUSES)
    for part in manifest.ledger:
        records = run.ledger_part(part, ["row", "cuid", "fate"]).filter(is_in_share)
        states = run.rows_part(part, ["row", "state"])
        rows = records.join(states, on="row", how="left").with_columns(run=pl.lit(run.id))
        yield standing(rows, by_row, by_cuid, age_of(manifest.as_of, today))


def _queries(adapters: Adapters, issuer: str, runs: Sequence[StoredRun]) -> dict[str, Any]:
    """Return when the service last answered, and which linked rows it did not answer, or was not
    queried for.
    """
    link = PLACEMENT.c
    cause = func.coalesce(link.trouble, link.jobs_trouble).label("cause")
    is_meant = (link.issuer == issuer) & link.run.in_([run.id for run in runs])
    query = select(cause, func.count().label("links"), func.max(link.seen_at).label("seen"))
    with adapters.database.snapshot() as connection:
        groups = connection.execute(query.where(is_meant).group_by(cause).order_by(cause)).all()
    answered = [group.seen for group in groups if group.seen is not None]
    linked = sum(linked_rows(run, "row").height for run in runs)
    return {
        "seen": max(answered).isoformat(timespec="seconds") if answered else None,
        "unasked": max(0, linked - sum(group.links for group in groups)),
        "unanswered": [
            {"cause": group.cause, "links": group.links} for group in groups if group.cause
        ],
    }


_STATUSES = AUTHENTICATED | AUTHENTICATING | ENDS_OF_JOBS | ENDS_WITH_DAY
_ENDS = PLACED | ENDS_OF_JOBS


def unknown_words(runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """Return the statuses of running jobs, and the ends of others, that the interface lacks.

    Each with its setting in `[service.words]` (`word_of`), its name, and how many jobs have it.
    """
    counts = Counter[tuple[str, str]]()
    jobs = {job.job_id: job for job in chain.from_iterable(map(_jobs, runs))}
    for job in jobs.values():
        if job.running and not (job.status in _STATUSES or job.status.startswith(PENDING)):
            counts["status", job.status] += 1
        if job.termination_type is not None and job.termination_type not in _ENDS:
            counts["termination_type", job.termination_type] += 1
    ordered = sorted(counts.items(), key=lambda count: (count[0][0], -count[1], count[0][1]))
    return [{"word_of": of, "word": word, "jobs": number} for (of, word), number in ordered]


def _jobs(run: StoredRun) -> Iterator[Job]:
    has_jobs = PLACEMENT.c.running.is_not(None)
    placements = read_placements(run.adapters, run.issuer, [run.id], has_jobs)
    return chain.from_iterable(map(jobs_of, placements["jobs"]))
