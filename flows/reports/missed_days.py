"""The business days on which an extract was due and none came."""

from collections.abc import Collection, Iterable
from datetime import date, datetime, timedelta

from flows.book.known_runs import KnownPlan
from flows.runs.arrival_hour import with_expected_hour
from flows.runs.business_date import day_off, due, local_day
from flows.runs.dismissed_days import dismissed_days
from flows.runs.stored_runs import StoredRuns
from schemas.issuer import Issuer

MISSED = timedelta(days=31)  # business days without an extract are looked for so far back


def missed_days(
    issuer: Issuer, runs: StoredRuns, committed: Collection[KnownPlan], now: datetime
) -> list[date]:
    """Return the business days since the first run that have none, as far back as MISSED.

    Without any run, the last one on which an extract was due. Without those for which an
    operator decided that none comes.
    """
    issuer = with_expected_hour(runs, issuer, now)
    last_due = due(issuer.schedule, now, issuer.time_zone)
    days = {plan.as_of for plan in committed if plan.is_whole}
    if last_due is None or (committed and not days):
        return []
    settled = days | _undecided_days(runs, committed) | dismissed_days(runs.adapters, runs.issuer)
    last, _ = last_due
    first = max(min(days, default=last), local_day(now - MISSED, issuer.time_zone))
    span = (first + timedelta(days=back) for back in range((last - first).days + 1))
    return [day for day in span if day not in settled and not day_off(issuer.schedule, day)]


def _undecided_days(runs: StoredRuns, committed: Iterable[KnownPlan]) -> set[date]:
    """Return the days of runs that were refused, or are not committed yet.

    These have a line or a process of their own.
    """
    committed_runs = {plan.run for plan in committed}
    return {run.day for run in runs.ids if str(run) not in committed_runs}
