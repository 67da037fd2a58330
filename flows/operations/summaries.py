"""Summaries: what came of a night, and of the answers in the morning, said once.

They are level-triggered, as acknowledgements are: each record of the chain `summaries/` names what
was said of every run, and a watch says what stands now and was not said, once nothing has moved for
a while. The record is written before anything is sent, so a killed watch loses none, and of two
watches one writes it. What was never said within a day is no news any more.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from flows.book.stored_book import known_runs
from flows.operations.alert_history import open_alerts
from flows.operations.alert_kinds import alert_kinds
from flows.redaction import redact
from flows.reports.business_result import issuer_balance, result_sentence
from flows.runs.adapters import Adapters
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.documents import read_facts
from flows.runs.events import ANSWERED
from flows.runs.identity import canonical, digest
from flows.runs.notices import Notice
from flows.runs.store import Store
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import FOLDER, Step, counted

NIGHT = "night"
MORNING = "morning"
LOOK_BACK = timedelta(days=31)  # of older runs nothing is said
SETTLED = timedelta(minutes=10)  # what moves within it is said together
NEWS = timedelta(days=1)
SENT = "told"  # the ending of the object beside a record that says that it is with everybody


class Summary(NamedTuple):
    """One record of the chain: of what, when, its title and text, and what was said of each run."""

    number: int
    kind: str
    at: datetime
    title: str
    text: str
    said: dict[str, str]

    @property
    def notice(self) -> Notice:
        """What people are told."""
        return Notice(f"summaries/{self.number:06d}", self.title, self.text)


class _News(NamedTuple):
    """What is to be said of a run: its sentence, by which it is known, and since when it is so."""

    run: str
    says: str
    sentence: str
    since: datetime


def write_summaries(context: IssuerContext) -> list[Summary]:
    """Write what is to be said now; return every summary that is not with everybody yet."""
    settings = context.issuer.channels
    runs = StoredRuns(context.adapters, context.issuer.issuer)
    for kind, channels in ((NIGHT, settings.nights), (MORNING, settings.mornings)):
        if channels:
            _write(context, runs, kind)
    return list(_unsent(context.adapters.store, context.issuer.issuer))


def record_sent(context: IssuerContext, summary: Summary) -> None:
    """Record that a summary is with everybody who wants it."""
    key = f"{_prefix(context.issuer.issuer)}{summary.number:06d}.{SENT}"
    context.adapters.store.create(key, b"")


def _write(context: IssuerContext, runs: StoredRuns, kind: str) -> None:
    """Write the next summary of a kind, where there is something to say and nothing moves."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    last = _last_number(store, issuer)
    before = _read(store, issuer, last).said if last else {}
    now = context.adapters.now()
    standing = list(_standing(context, runs, kind))
    news = [each for each in standing if before.get(f"{kind} {each.run}") != each.says]
    news = [each for each in news if now - each.since <= NEWS]
    if not news or now - max(each.since for each in news) < SETTLED:
        return
    others = {name: says for name, says in before.items() if not name.startswith(f"{kind} ")}
    facts = {
        "kind": kind,
        "at": now.isoformat(),
        "title": redact(_title(context, kind, news)),
        "text": redact(_text(context, news)),
        "said": others | {f"{kind} {each.run}": each.says for each in standing},
    }
    # False: another watch was first
    store.create(f"{_prefix(issuer)}{last + 1:06d}.json", canonical(facts))


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
    committed = known_runs(adapters, runs).committed
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
    for alert in open_alerts(context.adapters.store, issuer):
        kind = alert_kinds().get(alert.kind)
        yield f"Open: {alert.text}. {kind.then if kind else ''}".rstrip()
    yield f"All that is to be done: {Step('worklist', issuer)}"


# The chain
# --------------------------------------------------------------------------------------------------


def _prefix(issuer: str) -> str:
    return f"{issuer}/summaries/"


def _numbers(store: Store, issuer: str, ending: str) -> set[int]:
    names = (entry.key.removeprefix(_prefix(issuer)) for entry in store.keys(_prefix(issuer)))
    named = (name.removesuffix(f".{ending}") for name in names if name.endswith(f".{ending}"))
    return {int(number) for number in named if number.isdigit()}


def _last_number(store: Store, issuer: str) -> int:
    return max(_numbers(store, issuer, "json"), default=0)


def _unsent(store: Store, issuer: str) -> Iterator[Summary]:
    numbers = _numbers(store, issuer, "json") - _numbers(store, issuer, SENT)
    return (_read(store, issuer, number) for number in sorted(numbers))


def _read(store: Store, issuer: str, number: int) -> Summary:
    facts: dict[str, Any] = read_facts(store, f"{_prefix(issuer)}{number:06d}.json") or {}
    return Summary(
        number,
        facts["kind"],
        datetime.fromisoformat(facts["at"]),
        facts["title"],
        facts["text"],
        facts["said"],
    )
