"""The alerts of an issuer: what is wrong now.

A cause yields an alert while its condition holds; `alert_history.py` opens and closes them.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import chain
from typing import NamedTuple

from flows.book.book import read_book
from flows.book.stored_book import known_plans
from flows.errors import CardlinkError, TryAgainError
from flows.extensions import hooks
from flows.operations.alert_kinds import Alert, Cause
from flows.operations.conditions import conditions
from flows.operations.extract_alerts import calendar_causes, extract_causes
from flows.reports.ages import duration
from flows.reports.business_result import result_sentence
from flows.reports.verdicts import OUT_OF_BALANCE
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.keys import RunId
from flows.runs.notices import failing_channels
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import counted
from flows.submissions.column_changes import column_changes
from flows.submissions.drift import drift_of
from flows.submissions.extract_states import UNSUBMITTED, ExtractState, extract_states
from schemas.manifest import Manifest

LOOK_BACK = timedelta(days=60)  # older runs raise no alerts: their links have expired
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")  # in the key of an alert

# A deployment whose last run failed or crashed, and the state that the orchestrator reports.
Failure = tuple[str, str]


def current_alerts(context: IssuerContext, failures: Collection[Failure] = ()) -> list[Alert]:
    """Return the alerts whose cause exists now."""
    issuer = context.issuer
    today = local_day(context.adapters.now(), issuer.time_zone)
    runs = StoredRuns(context.adapters, issuer.issuer)
    recent = [run for run in runs.ids if today - run.day <= LOOK_BACK]
    extracts = extract_states(context, known_plans(context.adapters, runs), remember=True)
    causes = [
        *calendar_causes(context, runs, today, extracts),
        *extract_causes(extracts),
        *_key_causes(context),
        *_channel_causes(context),
        *_condition_causes(context),
        *chain.from_iterable(alerts(context) for alerts in hooks("alerts")),
        *_failure_causes(failures),
        *_run_causes(context, map(runs.run, recent), extracts),
        *_drift_causes(context, runs, recent),
        *_column_causes(runs, recent),
        *_ineligible_causes(context, runs, recent),
    ]
    return [
        Alert(cause.kind, issuer.issuer, _UNSAFE.sub("-", cause.subject), cause.text)
        for cause in causes
    ]


def _failure_causes(failures: Iterable[Failure]) -> Iterator[Cause]:
    for deployment, state in failures:
        yield Cause("flow-failed", deployment, f"{deployment} ended {state}")


def _key_causes(context: IssuerContext) -> Iterator[Cause]:
    try:
        with context.sealer() as sealer:
            for warning in sealer.warnings:
                if warning.ending:
                    yield Cause("key-ending", warning.ending, warning.text)
    except TryAgainError:  # left to the next watch
        return
    except CardlinkError as error:
        yield Cause("key-unusable", "portal", str(error))


def _channel_causes(context: IssuerContext) -> Iterator[Cause]:
    for name, trouble in failing_channels(context).items():
        yield Cause("channel-failing", name, f"The channel {name} takes nothing: {trouble}")


def _condition_causes(context: IssuerContext) -> Iterator[Cause]:
    """Yield what runs beside the flows and does not do its work."""
    adapters = context.adapters
    for state in conditions(context.issuer, adapters.store, adapters.now()):
        if state.trouble is not None:
            yield Cause(f"{state.name}-down", state.name, f"{state.name}: {state.text}")


def _run_causes(
    context: IssuerContext, runs: Iterable[StoredRun], extracts: Sequence[ExtractState]
) -> Iterator[Cause]:
    """Yield what is wrong with these runs, except those that an operator abandoned."""
    waiting = _runs_waiting(extracts)
    drops = _committed_drops(extracts)
    for run in runs:
        if run.manifest is not None:
            yield from _committed_causes(context, run, run.manifest)
        elif run.end is None:
            same_day = [drop.modified for drop in drops if drop.day == run.keys.run.day]
            yield from _refusal_causes(context, run, run.id in waiting, same_day)


def _runs_waiting(extracts: Sequence[ExtractState]) -> set[str]:
    """Return the runs whose extract is not submitted yet, or is gone without having been."""
    committed = {
        extract.key
        for extract in extracts
        if extract.entry is not None and extract.state == "committed"
    }
    return {
        extract.run
        for extract in extracts
        if extract.state in (*UNSUBMITTED, "gone")
        or (extract.state == "replaced" and extract.key not in committed)
    }


class _Drop(NamedTuple):
    """The business date of an extract that was committed, and when it was dropped."""

    day: date
    modified: datetime


def _committed_drops(extracts: Iterable[ExtractState]) -> list[_Drop]:
    drops = []
    for extract in extracts:
        if extract.entry is None or extract.state != "committed":
            continue
        run = RunId.parse(extract.run)
        if run is not None:
            drops.append(_Drop(run.day, extract.entry.modified))
    return drops


def _refusal_causes(
    context: IssuerContext, run: StoredRun, is_waiting: bool, drops: Iterable[datetime]
) -> Iterator[Cause]:
    """Yield why a run was refused before its commit; of a whole extract only while it `is_waiting`.

    That is over when an extract is committed for the same business date that was dropped after the
    run was first refused.
    """
    refused = run.refusal
    if refused is None:
        return
    is_over = not is_waiting or any(moment > refused.first for moment in drops)
    if is_over and run.plan is not None and run.plan.selection is None:
        return
    if refused.error == "EmptyExtractError":
        yield from _empty_extract_causes(context, run)
    else:
        yield Cause("run-refused", run.id, f"{run.id} was refused: {refused.sentence}")


def _empty_extract_causes(context: IssuerContext, run: StoredRun) -> Iterator[Cause]:
    if context.issuer.alerts.empty_extract == "alert":
        yield Cause("empty-extract", run.id, f"{run.id}: the extract has no rows")


def _committed_causes(
    context: IssuerContext, run: StoredRun, manifest: Manifest
) -> Iterator[Cause]:
    if manifest.counts.read == 0:
        yield from _empty_extract_causes(context, run)
    if run.status.state == OUT_OF_BALANCE:
        text = f"{run.id} is out of balance"
        yield Cause("out-of-balance", run.id, _with_result(text, run))
    if run.status.awaiting:
        yield from _overdue_causes(context, run)


def _overdue_causes(context: IssuerContext, run: StoredRun) -> Iterator[Cause]:
    within = timedelta(hours=context.issuer.portal.answer_within_hours)
    now = context.adapters.now()
    overdue = [chunk for chunk in run.outbox if chunk.overdue(now, within)]
    if overdue:
        over = read_book(context.adapters, context.issuer.issuer).given_up_chunks
        overdue = [chunk for chunk in overdue if (run.id, chunk.chunk.number) not in over]
    if overdue:
        age = duration(now - min(chunk.clock for chunk in overdue))
        text = f"{run.id}: {counted(len(overdue), 'chunk')} without a result, the oldest for {age}"
        yield Cause("result-overdue", run.id, _with_result(text, run))


def _with_result(text: str, run: StoredRun) -> str:
    """Return what is wrong with a run, and what came of its cards."""
    sentence = result_sentence(run)
    return f"{text}: {sentence.removesuffix('.')}" if sentence else text


def _drift_causes(
    context: IssuerContext, runs: StoredRuns, recent: Sequence[RunId]
) -> Iterator[Cause]:
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
        text = f"{run} departs from the extracts before it: {'; '.join(changes)}"
        yield Cause("drift", str(run), text)


def _column_causes(runs: StoredRuns, recent: Sequence[RunId]) -> Iterator[Cause]:
    """Yield which columns came or went with the last whole extract."""
    for run in reversed(recent):
        manifest = runs.run(run).manifest
        if manifest is None or manifest.selection is not None:
            continue
        changes = column_changes(manifest.layout, runs.nights_before(run))
        if changes:
            yield Cause("columns-changed", str(run), f"{run} has {'; '.join(changes)}")
        return


def _ineligible_causes(
    context: IssuerContext, runs: StoredRuns, recent: Sequence[RunId]
) -> Iterator[Cause]:
    """Yield that many rows of the last whole extract were not eligible."""
    limit = context.issuer.alerts.ineligible_rate
    manifests = (runs.run(run).manifest for run in reversed(recent))
    whole = (manifest for manifest in manifests if manifest and manifest.selection is None)
    last = next(whole, None)
    if last is None or last.counts.ineligible <= limit * last.counts.read:
        return
    counts = last.counts
    text = f"{last.run}: {counts.ineligible:,} of {counts.read:,} rows are not eligible for a link"
    yield Cause("ineligible-rows", last.run, text)
