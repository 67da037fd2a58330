"""News: what people are told and the worklist has not, since it ends by itself, or outside.

A matter holds while its cause does. Here is why each holds, and what is said about its kind.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from flows.errors import CardlinkError, TryAgainError
from flows.extensions.alerts.notices import failing_channels
from flows.extracts.delivery import companions
from flows.operations.conditions import conditions
from flows.operations.matters import Failure
from flows.operations.undecided_work import is_of_day
from flows.reports.work import Work
from flows.reports.work_kinds import ISSUER, OPERATOR, PARTNER, Kind
from flows.runs.arrival_hour import with_expected_hour
from flows.runs.business_date import day_off, due, local_day
from flows.runs.context import IssuerContext
from flows.runs.keys import RunId
from flows.runs.public_holidays import UnknownCalendarError, require_calendar
from flows.runs.stored_runs import StoredRuns
from flows.steps import Slot, Step
from flows.submissions.column_changes import column_changes
from flows.submissions.drift import drift_of
from flows.submissions.extract_states import UNSUBMITTED, ExtractState, extract_states
from schemas.manifest import Manifest

LOOK_BACK = timedelta(days=60)  # older runs are no news: their links have expired
_CHECK = Step("check", Slot("issuer"))


def _news(name: str, who: str, then: str) -> Kind:
    return Kind(name, who, name, _CHECK, then, is_alert=True, is_news=True)


INCOMPLETE_EXTRACT = _news(
    "incomplete extracts",
    ISSUER,
    "Ask the issuer for the file it waits for; the next run submits it.",
)
UNCLEAN = _news(
    "unclean extracts",
    ISSUER,
    "Do not open it: tell security, have it removed, and ask the issuer for a clean one.",
)
CALENDAR = _news(
    "unknown calendars",
    OPERATOR,
    "Correct [schedule] country and subdivision; until then, holidays are business days.",
)
SKIPPED = _news("skipped nights", OPERATOR, "Nothing; the next business day submits what is there.")
FAILED = _news(
    "failed flows",
    OPERATOR,
    "Read the flow's message; after a temporary failure, run it again.",
)
INELIGIBLE = _news(
    "ineligible rows",
    ISSUER,
    "Ask the issuer whether these cards belong in its extracts; see [eligible].",
)
DRIFT = _news("unusual extracts", ISSUER, "Ask the issuer what it changed, and why.")
COLUMNS = _news("changed columns", ISSUER, "Ask the issuer what they are; see [columns].")
CHANNEL = _news(
    "failing channels",
    OPERATOR,
    "Check the issuer, which tries each channel; correct its address, or its server.",
)
KEY_ENDS = _news(
    "expiring keys", PARTNER, "Get the next key and pin it, or this one with a new subkey."
)
KEY_UNUSABLE = _news(
    "unusable keys", PARTNER, "Nothing can be sealed: get a valid key from the portal."
)
DOWN = _news(
    "processes down",
    OPERATOR,
    "Check the issuer, which says what stands in the way; what the process does waits meanwhile.",
)
KINDS = (
    *(INCOMPLETE_EXTRACT, UNCLEAN, CALENDAR, SKIPPED, FAILED, INELIGIBLE, DRIFT),
    *(COLUMNS, CHANNEL, KEY_ENDS, KEY_UNUSABLE, DOWN),
)


def work_kinds() -> Iterable[Kind]:
    """Return the kinds of news."""
    return KINDS


def news(context: IssuerContext, failures: Collection[Failure] = ()) -> Iterator[Work]:
    """Yield what people are to know now of an issuer."""
    issuer = context.issuer
    now = context.adapters.now()
    runs = StoredRuns(context.adapters, issuer.issuer)
    today = local_day(now, issuer.time_zone)
    recent = [run for run in runs.ids if today - run.day <= LOOK_BACK]
    news = [
        *_of_calendar(context, today),
        *_of_extracts(context, runs),
        *_of_keys(context),
        *_of_what_runs(context, failures),
        *_of_drift(context, runs, recent),
        *_of_columns(runs, recent),
        *_of_ineligible_rows(context, runs, recent),
    ]
    for kind, subject, text in news:
        yield Work(
            due=now,
            kind=kind.name,
            issuer=issuer.issuer,
            since=now,
            fields=(("name", subject),),
            note=f"{text.removesuffix('.')}.",
        )


Said = Iterator[tuple[Kind, str, str]]  # kind, subject, and a sentence


def _of_calendar(context: IssuerContext, today: date) -> Said:
    schedule = context.issuer.schedule
    try:
        require_calendar(schedule)
    except UnknownCalendarError as error:
        place = error.fields["place"]
        yield CALENDAR, place, f"No public holidays are known of {place}, which [schedule] names"
    why = day_off(schedule, today)
    if why:
        yield SKIPPED, today.isoformat(), f"No nightly run on {today}: {why}"


def _of_extracts(context: IssuerContext, runs: StoredRuns) -> Said:
    """Yield the extracts that are not clean, and those that are incomplete after their hour."""
    stored = extract_states(context, remember=True)
    for extract in stored:
        if extract.state == "unclean":
            yield UNCLEAN, _name(extract), extract.waits
    for extract in _incomplete(context, runs, stored):
        text = f"{_name(extract)} is not taken yet: {extract.waits}"
        yield INCOMPLETE_EXTRACT, _name(extract), text


def _incomplete(
    context: IssuerContext, runs: StoredRuns, stored: Sequence[ExtractState]
) -> Iterator[ExtractState]:
    """Yield the extracts that are incomplete after their hour."""
    now = context.adapters.now()
    schedule = with_expected_hour(runs, context.issuer, now).schedule
    expected = due(schedule, now, context.issuer.time_zone)
    may_lack = companions(context.issuer.source) or context.issuer.store.verdict_tag
    if expected is None or not may_lack:
        return
    day, since = expected
    zone = ZoneInfo(context.issuer.time_zone)
    hour = datetime.combine(day, schedule.extract_by or time(), zone)
    has_complete = any(
        extract.state != "ignored" and not extract.waits and is_of_day(extract, day, since)
        for extract in stored
    )
    for extract in stored:
        is_incomplete = extract.state in UNSUBMITTED and bool(extract.waits)
        if is_incomplete and (not has_complete or came_by(extract, hour)):
            yield extract


def came_by(extract: ExtractState, moment: datetime) -> bool:
    """Return whether an extract was dropped by a moment."""
    return extract.entry is not None and extract.entry.modified <= moment


def _name(extract: ExtractState) -> str:
    return extract.key.partition("/extracts/")[2]


def _of_keys(context: IssuerContext) -> Said:
    try:
        with context.sealer() as sealer:
            for warning in sealer.warnings:
                if warning.ending:
                    yield KEY_ENDS, warning.ending, warning.text
    except TryAgainError:  # left to the next watch
        return
    except CardlinkError as error:
        yield KEY_UNUSABLE, "portal", str(error)


def _of_what_runs(context: IssuerContext, failures: Iterable[Failure]) -> Said:
    """Yield what runs beside the flows and does not do its work, and flows that failed."""
    adapters = context.adapters
    for deployment, state in failures:
        yield FAILED, deployment, f"{deployment} ended {state}"
    for name, trouble in failing_channels(adapters, context.issuer.issuer).items():
        yield CHANNEL, name, f"The channel {name} does not accept messages: {trouble}"
    for condition in conditions(context.issuer, adapters.store, adapters.now()):
        if condition.trouble is not None:
            yield DOWN, condition.name, f"{condition.name}: {condition.text}"


def _of_drift(context: IssuerContext, runs: StoredRuns, recent: Sequence[RunId]) -> Said:
    """Yield how the last extracts depart from those before them, back to one that is as usual."""
    limits = context.issuer.limits
    if limits.drift != "alert":
        return
    for run in reversed(recent):
        manifest = runs.run(run).manifest
        if manifest is None or manifest.profile is None:
            continue
        changes = drift_of(manifest, runs.nights_before(run), limits.max_drift)
        if not changes:
            return
        yield (
            DRIFT,
            str(run),
            f"{run} departs from the extracts before it: {'; '.join(changes)}",
        )


def _of_columns(runs: StoredRuns, recent: Sequence[RunId]) -> Said:
    """Yield which columns came or went with the last whole extract."""
    last = _last_whole(runs, recent)
    if last is None:
        return
    run, manifest = last
    changes = column_changes(manifest.layout, runs.nights_before(run))
    if changes:
        yield COLUMNS, str(run), f"{run} has {'; '.join(changes)}"


def _of_ineligible_rows(context: IssuerContext, runs: StoredRuns, recent: Sequence[RunId]) -> Said:
    """Yield that many rows of the last whole extract were not eligible."""
    limit = context.issuer.alerts.ineligible_rate
    last = _last_whole(runs, recent)
    if last is None:
        return
    run, manifest = last
    counts = manifest.counts
    if counts.ineligible > limit * counts.read:
        text = f"{run}: {counts.ineligible:,} of {counts.read:,} rows are not eligible for a link"
        yield INELIGIBLE, str(run), text


def _last_whole(runs: StoredRuns, recent: Sequence[RunId]) -> tuple[RunId, Manifest] | None:
    for run in reversed(recent):
        manifest = runs.run(run).manifest
        if manifest is not None and manifest.selection is None:
            return run, manifest
    return None
