"""Follow links to "card placed": query links, ingest transaction reports, count funnels."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import chain
from typing import Any

import polars as pl

from flows.errors import OperatorError
from flows.extensions.partner_api.coverage import coverage, unknown_words
from flows.extensions.partner_api.due_links import Turn, least_urgency
from flows.extensions.partner_api.funnel import add, age_of, cells, facts, funnel_stages
from flows.extensions.partner_api.link_check import NO_LIMIT, Limit, LinkCheck, check_links, stop_of
from flows.extensions.partner_api.placements import placements, placements_of, read_placements
from flows.extensions.partner_api.profile import INTERFACE
from flows.extensions.partner_api.run_links import linked_rows, service_stages
from flows.extensions.partner_api.service import Placing
from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.partner_api.transaction_reports import ingest_transactions
from flows.extensions.partner_api.transactions import has_reports, reported
from flows.reports.rebuild import rebuild
from flows.runs.adapters import Adapters
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.identity import canonical
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import Sentence, Slot, Step
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
    profile = context.issuer.table(ServiceSettings) or INTERFACE
    transactions = ingest_transactions(context.adapters, issuer, reversed(stored), profile)
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
        "funnel": funnel_of(context.adapters, issuer, runs, today),
    }
    if not run:
        store.replace(f"{placements(issuer)}summary.json", [canonical(facts)])
    return facts


def _check_runs(
    context: IssuerContext, service: Placing | None, runs: Sequence[StoredRun], *, recheck: bool
) -> Iterator[LinkCheck]:
    settings = context.issuer.table(ServiceSettings)
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


def summary_facts(run: StoredRun, today: date) -> dict[str, Any]:
    """Return the funnel of a run; nothing where nobody has reported anything."""
    funnel = run_funnel(run, today)
    return {"funnel": funnel} if funnel is not None else {}


SHARE = 2_000_000  # rows counted at a time


def run_funnel(run: StoredRun, today: date) -> dict[str, Any] | None:
    """Return the funnel of a run whose rows are reconciled.

    None where neither the service nor a transaction report has reported anything.
    """
    checks = run.store.keys(placements_of(run), shallow=True)
    has_placements = any(entry.key.endswith(".parquet") for entry in checks)
    if not (has_placements or has_reports(run.adapters, run.issuer)):
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
    return {**facts(add(parts)), **_queries(runs)}


def _standings(
    run: StoredRun, today: date, is_in_share: pl.Expr, by_cuid: pl.DataFrame
) -> Iterator[pl.DataFrame]:
    """Yield how far the rows of a run came (STANDING), part by part."""
    manifest = run.committed()
    age = pl.lit(age_of(manifest.as_of, today), pl.UInt8).alias("age")
    for part in manifest.ledger:
        records = run.ledger_part(part, ["row", "cuid", "fate"]).filter(is_in_share)
        records = records.with_columns(pl.lit(run.id).alias("run"))
        states = run.rows_part(part, ["row", "state"])
        by_row = service_stages(run, part)
        yield funnel_stages(records, states, by_row, by_cuid).with_columns(age)


def _queries(runs: Sequence[StoredRun]) -> dict[str, Any]:
    """Return when the service last answered, and which linked rows it did not answer, or was not
    queried for.
    """
    answered = []  # when it last did of each part
    unqueried = 0
    unanswered: Counter[str] = Counter()
    for run in runs:
        for part in run.committed().ledger:
            placements = read_placements(run, part, ["seen", "trouble", "jobs_trouble"])
            trouble = placements.select(pl.coalesce("trouble", "jobs_trouble"))["trouble"]
            queried = placements["seen"].is_not_null() | trouble.is_not_null()
            unqueried += linked_rows(run, part).height - int(queried.sum())
            unanswered.update(trouble.drop_nulls().to_list())
            newest = placements["seen"].max()
            if isinstance(newest, datetime):
                answered.append(newest)
    return {
        "seen": max(answered).isoformat(timespec="seconds") if answered else None,
        "unasked": unqueried,
        "unanswered": [
            {"cause": cause, "links": links} for cause, links in sorted(unanswered.items())
        ],
    }
