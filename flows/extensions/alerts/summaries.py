"""Summaries: what came of a night, and of the answers in the morning, said once.

They are level-triggered, as acknowledgements are: each summary names what was said of every run,
and a watch says what stands now and was not said, once nothing has moved for a while. It is a
notice before anything is sent, so a killed watch loses none, and of two watches one writes it. What
was never said within a day is no news any more.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import NamedTuple

from sqlalchemy import Connection, select

from flows.book.stored_book import known_plans
from flows.extensions.alerts.notices import write_notice
from flows.extensions.alerts.settings import channels_of
from flows.extensions.alerts.tables import NOTICE
from flows.operations.matters import IS_LATE, IS_OPEN, matters
from flows.reports.business_result import issuer_balance, result_sentence
from flows.reports.work_kinds import is_known, kind_named
from flows.runs.adapters import Adapters
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.events import ANSWERED
from flows.runs.identity import canonical, digest
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import FOLDER, Step, counted

NIGHT = "night"
MORNING = "morning"
LOOK_BACK = timedelta(days=31)  # of older runs nothing is said
SETTLED = timedelta(minutes=10)  # what moves within it is said together
NEWS = timedelta(days=1)


class _News(NamedTuple):
    """What is to be said of a run: its sentence, by which it is known, and since when it is so."""

    run: str
    says: str
    sentence: str
    since: datetime


def write_summaries(context: IssuerContext) -> None:
    """Write what is to be said now."""
    settings = channels_of(context.issuer)
    runs = StoredRuns(context.adapters, context.issuer.issuer)
    for kind, channels in ((NIGHT, settings.nights), (MORNING, settings.mornings)):
        if channels:
            _write(context, runs, kind)


def _write(context: IssuerContext, runs: StoredRuns, kind: str) -> None:
    """Write the next summary of a kind, where there is something to say and nothing moves."""
    adapters = context.adapters
    issuer = context.issuer.issuer
    with adapters.database.snapshot() as connection:
        before = _said(connection, issuer, kind)
    now = adapters.now()
    standing = list(_standing(context, runs, kind))
    news = [each for each in standing if before.get(each.run) != each.says]
    news = [each for each in news if now - each.since <= NEWS]
    if not news or now - max(each.since for each in news) < SETTLED:
        return
    title = _title(context, kind, news)
    text = _text(context, news)
    says_by_run = {each.run: each.says for each in standing}

    def write(connection: Connection) -> None:
        if _said(connection, issuer, kind) == before:  # else another watch was first
            write_notice(connection, issuer, kind, now, title, text, said=says_by_run)

    adapters.database.act(issuer, write)


def _said(connection: Connection, issuer: str, kind: str) -> dict[str, str]:
    """Return what the last summary of a kind said of each run."""
    of_kind = select(NOTICE.c.said).where(NOTICE.c.issuer == issuer, NOTICE.c.kind == kind)
    last = of_kind.order_by(NOTICE.c.number.desc()).limit(1)
    return connection.execute(last).scalar() or {}


def _standing(context: IssuerContext, runs: StoredRuns, kind: str) -> Iterator[_News]:
    """Yield what stands of each recent run that a summary of this kind says something about."""
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    recent = [run for run in runs.ids if today - run.day <= LOOK_BACK]
    if kind == MORNING:
        for run in map(runs.run, recent):
            yield from _answers(run)
        return
    refused = _refused(context.adapters, runs)
    for run in map(runs.run, recent):
        yield from _end_of(run, refused.get(run.id))


def _answers(run: StoredRun) -> Iterator[_News]:
    """Yield what a run's results have brought, as its report has it."""
    answers = run.events(ANSWERED) if run.manifest is not None else []
    if not answers:
        return
    named = chain.from_iterable(event.facts.get("results", ()) for event in answers)
    files = sorted(set(named))
    sentence = result_sentence(run) or "it was answered"
    since = max(event.at for event in answers)
    yield _News(run.id, digest(canonical({"results": files})), f"{run.id}: {sentence}", since)


def _end_of(run: StoredRun, refused: datetime | None) -> Iterator[_News]:
    """Yield how the run of a whole extract ended: committed, or refused."""
    manifest = run.manifest
    if manifest is not None and manifest.selection is None:
        counts = manifest.counts
        sentence = (
            f"{run.id}: {counted(counts.read, 'row')} read, {counts.submitted:,} in "
            f"{counted(len(manifest.chunks), 'chunk')} to upload, {counts.rejected:,} rejected"
        )
        yield _News(run.id, "committed", sentence, run.committed_at)
    elif refused and run.refusal is not None:
        sentence = f"{run.id} was refused: {run.refusal.sentence}"
        yield _News(run.id, f"refused {refused.isoformat()}", sentence, refused)


def _refused(adapters: Adapters, runs: StoredRuns) -> Mapping[str, datetime]:
    committed = [plan for plan in known_plans(adapters, runs) if plan.end == "committed"]
    extracts = {plan.key for plan in committed if plan.is_whole}
    return runs.refused({plan.run for plan in committed}, extracts)


# Words
# --------------------------------------------------------------------------------------------------


def _title(context: IssuerContext, kind: str, news: Sequence[_News]) -> str:
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    refused = sum(each.says.startswith("refused") for each in news)
    outcome = counted(len(news), "run")
    if refused:
        outcome += f", {refused} refused"
    elif kind == MORNING:
        outcome += " answered"
    return f"cardlink {context.issuer.issuer}: {kind} of {today}: {outcome}"


def _text(context: IssuerContext, news: Sequence[_News]) -> str:
    """Return who has a link, what came of each run, and what is to be done."""
    issuer = context.issuer.issuer
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    lines = [issuer_balance(context.adapters, issuer, today).sentence, ""]
    lines += [each.sentence for each in news]
    lines += ["", *_to_do(context, [each.run for each in news])]
    return "\n".join(lines)


def _to_do(context: IssuerContext, runs: Sequence[str]) -> Iterator[str]:
    issuer = context.issuer.issuer
    chunks: list[str] = []
    for run in map(partial(StoredRun.by_id, context.adapters), runs):
        if run.manifest is not None:
            chunks += [chunk.state for chunk in run.outbox]
    waiting = chunks.count("waiting")
    if waiting:
        yield f"To upload: {counted(waiting, 'chunk')}. {Step('upload', issuer, to=FOLDER)}"
    uploaded = chunks.count("uploaded")
    if uploaded:
        yield f"Uploaded, results to fetch: {counted(uploaded, 'chunk')}. {Step('ingest', issuer)}"
    for matter in matters(context.adapters, issuer, IS_OPEN, IS_LATE):
        then = kind_named(matter.kind).then if is_known(matter.kind) else ""
        yield f"Open: {matter.text} {then}".rstrip()
    yield f"All that is to be done: {Step('worklist', issuer)}"
