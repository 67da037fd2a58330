"""Follow links to "card placed": query links, ingest transaction reports, count funnels."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from flows.errors import OperatorError
from flows.partner_api.coverage import coverage
from flows.partner_api.due_links import Turn, least_urgency
from flows.partner_api.link_check import NO_LIMIT, Limit, LinkCheck, check_links, stop_of
from flows.partner_api.run_funnel import funnel_of, run_funnel
from flows.partner_api.service import Placing
from flows.partner_api.transactions import ingest_transactions
from flows.partner_api.unknown_words import unknown_words
from flows.reports.rebuild import rebuild
from flows.runs.adapters import Adapters
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.identity import canonical
from flows.runs.keys import placements
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import Sentence, Slot, Step
from schemas.partner_api.profile import INTERFACE
from schemas.result import LIFE


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
    reports are ingested. A check that is stopped is the last. Raises NoLinksError; see also
    `check_links`.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    stored = list(StoredRuns(context.adapters, issuer).with_ledger())
    profile = context.issuer.service or INTERFACE
    transactions = ingest_transactions(store, issuer, reversed(stored), profile)
    if run:
        runs = [_with_links(context.adapters, run)]
    else:
        runs = [candidate for candidate in stored if _is_followed(candidate, today)]
    checks = list(_check_runs(context, service, runs, recheck=recheck))
    rebuilt = [followed.id for followed in runs if _renewed(context, followed)]
    facts = {
        "issuer": issuer,
        "at": context.adapters.now().isoformat(timespec="seconds"),
        "runs": [followed.id for followed in runs],
        "looked": [_counts(check) for check in checks],
        "coverage": coverage(checks),
        "stopped": stop_of(checks),
        "rebuilt": rebuilt,
        "transactions": {"files": transactions.files, "rows": transactions.rows},
        "breaks": [break_._asdict() for break_ in transactions.breaks],
        "doubts": unknown_words(runs),
        "funnel": funnel_of(store, issuer, runs, today),
    }
    if not run:
        store.replace(f"{placements(issuer)}summary.json", [canonical(facts)])
    return facts


def _check_runs(
    context: IssuerContext, service: Placing | None, runs: Sequence[StoredRun], *, recheck: bool
) -> Iterator[LinkCheck]:
    settings = context.issuer.service
    if service is None or settings is None:
        return
    turn = Turn(settings, context.adapters.now(), recheck)
    limit = NO_LIMIT
    if not recheck:
        until = time.monotonic() + turn.planned_seconds
        limit = Limit(least_urgency(runs, turn), until, turn.planned_requests)
    # of two links of a cardholder the newer one is more likely to have led to a job
    for run in reversed(runs):
        check = check_links(context, service, settings, run, recheck=recheck, limit=limit)
        yield check
        if check.stopped:
            return
        limit = limit.after(check.questions)


def _counts(check: LinkCheck) -> dict[str, Any]:
    """Return the numbers of a check, apart from its questions."""
    names = ("run", "links", "asked", "unanswered", "messages", "waiting")
    return {name: getattr(check, name) for name in names}


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
