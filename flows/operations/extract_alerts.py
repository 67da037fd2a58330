"""What is wrong with the extracts of an issuer and its calendar, as causes of alerts."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time
from zoneinfo import ZoneInfo

from flows.extracts.delivery import companions
from flows.operations.alert_kinds import Cause
from flows.runs.arrival_hour import with_expected_hour
from flows.runs.business_date import date_in_name, day_off, due
from flows.runs.context import IssuerContext
from flows.runs.dismissed_days import is_dismissed
from flows.runs.public_holidays import (
    UnknownCalendarError,
    require_calendar,
)
from flows.runs.stored_runs import StoredRuns
from flows.submissions.extract_states import UNSUBMITTED, ExtractState
from schemas.settings import Schedule


def calendar_causes(
    context: IssuerContext, runs: StoredRuns, today: date, extracts: Sequence[ExtractState]
) -> Iterator[Cause]:
    """Yield that there is no run today, and that an extract is missing or incomplete."""
    now = context.adapters.now()
    context = context._replace(issuer=with_expected_hour(runs, context.issuer, now))
    schedule = context.issuer.schedule
    yield from _unknown_calendar(schedule)
    why = day_off(schedule, today)
    if why:
        yield Cause("night-skipped", today.isoformat(), f"No nightly run on {today}: {why}")
    expected = due(schedule, now, context.issuer.time_zone)
    if expected is not None:
        day, since = expected
        yield from _late_extract_causes(context, extracts, day, since)


def _unknown_calendar(schedule: Schedule) -> Iterator[Cause]:
    try:
        require_calendar(schedule)
    except UnknownCalendarError as error:
        text = f"No public holidays are known of {error.fields['place']}, which [schedule] names"
        yield Cause("calendar-unknown", error.fields["place"], text)


def _late_extract_causes(
    context: IssuerContext, extracts: Sequence[ExtractState], day: date, since: datetime
) -> Iterator[Cause]:
    """Yield the extracts that are incomplete after their hour, or that the one of `day` is missing.

    Due is what was dropped `since` the business day before, or is named by this day or a later one.
    """
    time_zone = context.issuer.time_zone
    hour = datetime.combine(day, context.issuer.schedule.extract_by or time(), ZoneInfo(time_zone))
    due_now = [extract for extract in extracts if _is_due(extract, day, since)]
    has_complete = any(not extract.waits for extract in due_now)
    late = _incomplete_extracts(context, extracts, hour if has_complete else None)
    for extract in late:
        name = _name(extract)
        yield Cause("extract-waiting", name, f"{name} is not taken yet: {extract.waits}")
    is_missing = not has_complete and not any(extract in due_now for extract in late)
    if is_missing and not is_dismissed(context.adapters, context.issuer.issuer, day):
        text = f"No extract for {day} by {hour:%H:%M} ({time_zone})"
        yield Cause("extract-missing", day.isoformat(), text)


def _is_due(extract: ExtractState, day: date, since: datetime) -> bool:
    if extract.entry is None or extract.state == "ignored":
        return False
    named_day = date_in_name(extract.entry.key)
    return extract.entry.modified > since or (named_day is not None and named_day >= day)


def _incomplete_extracts(
    context: IssuerContext, extracts: Iterable[ExtractState], came_by: datetime | None
) -> list[ExtractState]:
    """Return the stored extracts that lack a file beside them, or their malware verdict.

    `came_by`: only those that were dropped by then.
    """
    if not companions(context.issuer.source) and not context.issuer.store.verdict_tag:
        return []
    return [
        extract
        for extract in extracts
        if extract.state in UNSUBMITTED and extract.waits and _came_by(extract, came_by)
    ]


def _came_by(extract: ExtractState, moment: datetime | None) -> bool:
    return extract.entry is not None and (moment is None or extract.entry.modified <= moment)


def extract_causes(extracts: Iterable[ExtractState]) -> Iterator[Cause]:
    """Yield the extracts that wait for an operator's decision."""
    for extract in extracts:
        name = _name(extract)
        subject = f"{name}-{extract.sha256[:8]}"
        if extract.state == "held back":
            text = (
                f"{name} was committed with other content, as run {extract.other}: it is held back"
            )
            yield Cause("extract-changed", subject, text)
        elif extract.state == "repeated":
            text = (
                f"{name} has the same bytes as another extract, "
                f"run {extract.other}: it is not submitted"
            )
            yield Cause("extract-repeated", subject, text)
        elif extract.state == "unclean":
            yield Cause("extract-unclean", name, extract.waits)


def _name(extract: ExtractState) -> str:
    return extract.key.partition("/extracts/")[2]
