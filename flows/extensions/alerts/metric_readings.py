"""What the metrics of an issuer are read from: each run once, then the book, alerts and deliveries.

A function here turns a reading into the numbers of one metric, by the value of its label ("" where
it has none). It is one table of readings, and long for that reason alone.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, select

from flows.book.book import read_book
from flows.book.people import Balance, balance_of
from flows.errors import CardlinkError
from flows.operations.matters import IS_LATE, IS_OPEN
from flows.reports.summary import FIGURES
from flows.runs.business_date import local_day
from flows.runs.chunks import OPEN, OutboxChunk
from flows.runs.context import IssuerContext
from flows.runs.documents import read_facts
from flows.runs.events import ANSWERED
from flows.runs.identity import canonical
from flows.runs.journal import Entry
from flows.runs.keys import keys_of, metrics, reconciliation
from flows.runs.run_status import RunStatus
from flows.runs.store import Store
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from flows.submissions.extract_states import extracts_to_submit
from schemas.database import MATTER
from schemas.manifest import Manifest
from schemas.reasons import reason

Values = Mapping[str, float]
UPLOADED = "uploaded"
FATES = ("submitted", "rejected", "duplicate", "suppressed")


class Figures(NamedTuple):
    """The figures of a committed run that are kept, so that it need not be read again.

    `fates`: its rows by what became of them at the commit; `hours`: links by hours from the drop;
    `results`: files that answered it, the last one at `answered_at`; `stages`: seconds by stage.
    """

    fates: Mapping[str, int]
    reasons: Mapping[str, int]
    chunks: int
    hours: Mapping[str, int]
    results: int
    answered_at: float
    stages: Mapping[str, float]


class RunReading(NamedTuple):
    """What the metrics need of one run; nothing else of it is kept in memory.

    `figures`: None before the commit; `partner`: rows the partner refused, by reason.
    """

    run: str
    status: RunStatus
    figures: Figures | None = None
    partner: Mapping[str, int] = {}
    chunks: Sequence[OutboxChunk] = ()
    answered: int = 0
    breaks: int = 0


class Reading(NamedTuple):
    """All that an issuer's metrics are made of, as it is stored at one moment."""

    context: IssuerContext
    now: datetime
    runs: Sequence[RunReading]
    balance: Balance
    summary: Mapping[str, Any]

    @property
    def committed(self) -> list[Figures]:
        """The figures of the committed runs."""
        return [run.figures for run in self.runs if run.figures is not None]


def read_issuer(context: IssuerContext) -> Reading:
    """Read all that an issuer's metrics are made of, and keep the figures of its runs."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    now = context.adapters.now()
    stored = StoredRuns(context.adapters, issuer)
    book = read_book(context.adapters, issuer)
    key = f"{metrics(issuer)}runs.json"
    kept = _kept_figures(store, key)

    def read_run(run: StoredRun) -> RunReading:
        closed = book.runs.closed.get(run.id)
        figures = kept.get(run.id)
        if closed is not None and figures is not None:
            status = closed.status(run.id)
            return RunReading(run.id, status, figures, dict(closed.partner), (), closed.chunks)
        return _read_run(run, figures)

    runs_read = concurrently(lambda run: read_run(stored.run(run)), stored.ids)
    figures = {run.run: run.figures for run in runs_read if run.figures is not None}
    if figures != kept:
        facts = {run: kept_figures._asdict() for run, kept_figures in figures.items()}
        store.replace(key, [canonical({"runs": facts})])
    cardholders = balance_of(book, local_day(now, context.issuer.time_zone))
    summary = read_facts(store, f"{reconciliation(issuer)}summary.json") or {}
    return Reading(context, now, runs_read, cardholders, summary)


def _kept_figures(store: Store, key: str) -> dict[str, Figures]:
    facts = (read_facts(store, key) or {}).get("runs", {})
    return {run: Figures(**figures) for run, figures in facts.items()}


def _read_run(run: StoredRun, kept: Figures | None) -> RunReading:
    manifest = run.manifest
    if manifest is None:
        return RunReading(run.id, run.status)
    summary = run.summary or {}
    partner = (summary.get("reasons") or {}).get("partner", ())
    outbox = run.outbox
    return RunReading(
        run.id,
        run.status,
        _figures(run, manifest, kept),
        {fact["code"]: fact["rows"] for fact in partner},
        [chunk for chunk in outbox if chunk.state != "answered"],
        sum(chunk.state == "answered" for chunk in outbox),
        _open_breaks(summary),
    )


def _figures(run: StoredRun, manifest: Manifest, kept: Figures | None) -> Figures:
    """Return the figures of a run; the hours of one whose report was purged are as they were."""
    answers = run.events(ANSWERED)
    hours = ((run.summary or {}).get("hours") or {}).get("spread")
    return Figures(
        {fate: getattr(manifest.counts, fate) for fate in FATES},
        dict(manifest.reasons),
        len(manifest.chunks),
        hours or (kept.hours if kept else {}),
        sum(len(event.facts.get("results", ())) for event in answers),
        max((event.at.timestamp() for event in answers), default=0.0),
        _stage_seconds(run, manifest),
    )


def _open_breaks(summary: Mapping[str, Any]) -> int:
    listed = sum(not run_break["notice"] for run_break in summary.get("breaks", ()))
    more: int = summary.get("more_breaks", 0)
    return listed + more


def _stage_seconds(run: StoredRun, manifest: Manifest) -> dict[str, float]:
    """Return how long each stage took that is over, between events that never change.

    `submit` is from the extract's drop to the commit, `upload` from there to the first upload,
    `answer` from there to the first result.
    """
    committed = run.committed_at
    dropped = run.dropped_at.timestamp() if run.dropped_at is not None else None
    uploaded = _first(run.events(UPLOADED))
    answered = _first(run.events(ANSWERED))
    # others repeat rows of an extract of another day
    is_whole = manifest.selection is None
    times = {
        "submit": (dropped if is_whole else None, committed.timestamp()),
        "upload": (committed.timestamp(), uploaded),
        "answer": (uploaded, answered),
    }
    return {
        stage: max(0.0, end - start)
        for stage, (start, end) in times.items()
        if start is not None and end is not None
    }


def _first(events: Sequence[Entry]) -> float | None:
    return min((event.at.timestamp() for event in events), default=None)


# Gauges


def people(reading: Reading) -> Values:
    """Return the cardholders by where they stand."""
    return reading.balance.people


def waiting(reading: Reading) -> Values:
    """Return the cardholders by who acts."""
    return reading.balance.waits


def rows(reading: Reading) -> Values:
    """Return the rows of all runs by fate."""
    statuses = [run.status for run in reading.runs]
    return {fate: sum(getattr(status, fate) for status in statuses) for fate in FIGURES}


def refused(reading: Reading) -> Values:
    """Return the rows that the partner refused, by who has to act."""
    return _by_action(run.partner for run in reading.runs)


def _by_action(counts: Iterable[Mapping[str, int]]) -> Values:
    actions = Counter[str]()
    for code, rows_of_code in chain.from_iterable(count.items() for count in counts):
        actions[reason(code).action] += rows_of_code
    return actions


def runs(reading: Reading) -> Values:
    """Return the runs by state."""
    return Counter(run.status.state for run in reading.runs)


def chunks(reading: Reading) -> Values:
    """Return the chunks by state."""
    states = Counter(str(chunk.state) for chunk in _all_chunks(reading))
    states["answered"] = sum(run.answered for run in reading.runs)
    return +states


def overdue(reading: Reading) -> Values:
    """Return the chunks whose result should have come."""
    within = timedelta(hours=reading.context.issuer.portal.answer_within_hours)
    return {"": sum(chunk.overdue(reading.now, within) for chunk in _all_chunks(reading))}


def oldest(reading: Reading) -> Values:
    """Return the age in seconds of the oldest chunk by state, of those without a result."""
    ages = defaultdict[str, float](float)
    for chunk in _all_chunks(reading):
        if chunk.state in OPEN:
            age = (reading.now - chunk.clock).total_seconds()
            ages[chunk.state] = max(age, ages[chunk.state])
    return ages


def _all_chunks(reading: Reading) -> Iterator[OutboxChunk]:
    return chain.from_iterable(run.chunks for run in reading.runs)


def breaks(reading: Reading) -> Values:
    """Return the breaks that are open."""
    return {"": sum(run.breaks for run in reading.runs)}


def extracts(reading: Reading) -> Values:
    """Return the extracts that are not submitted yet."""
    return {"": len(extracts_to_submit(reading.context, remember=True))}


def alerts_open(reading: Reading) -> Values:
    """Return the open matters that are late, by kind."""
    return _late_by_kind(reading, IS_OPEN)


def key_days(reading: Reading) -> Values:
    """Return the days until the first key of the portal ends, where that is within thirty days."""
    try:
        with reading.context.sealer() as sealer:
            days = [warning.days for warning in sealer.warnings if warning.days is not None]
    except CardlinkError:  # the watch alerts to it
        return {}
    return {"": min(days)} if days else {}


def committed_at(reading: Reading) -> Values:
    """Return when the newest run was committed, as an epoch."""
    return _last_run(reading)[0]


def took(reading: Reading) -> Values:
    """Return how many seconds the newest run took from its plan to its commit."""
    return _last_run(reading)[1]


def _last_run(reading: Reading) -> tuple[Values, Values]:
    context = reading.context
    stored = StoredRuns(context.adapters, context.issuer.issuer)
    committed = [run.run for run in reading.runs if run.figures is not None]
    if not committed:
        return {}, {}
    newest = stored.run(keys_of(committed[-1]).run)
    seconds = (newest.committed_at - newest.as_planned().planned_at).total_seconds()
    return {"": newest.committed_at.timestamp()}, {"": seconds}


def answered_at(reading: Reading) -> Values:
    """Return when a result was taken in last, as an epoch."""
    last = max((run.answered_at for run in reading.committed), default=0.0)
    return {"": last} if last else {}


def derived_at(reading: Reading) -> Values:
    """Return when the metrics were derived, as an epoch."""
    return {"": reading.now.timestamp()}


def link_hours(reading: Reading) -> Values:
    """Return median and slowest hours from drop to link, by the last report across runs."""
    span = reading.summary.get("hours")
    return {name: span[name] for name in ("median", "slowest")} if span and span["links"] else {}


def in_time(reading: Reading) -> Values:
    """Return the share of links in time, by the last report across runs."""
    span = reading.summary.get("hours")
    return {"": span["share"]} if span and span["links"] else {}


# Counters: of records that are never changed or removed


def committed_runs(reading: Reading) -> Values:
    """Return how many runs were committed."""
    return {"": len(reading.committed)}


def committed_rows(reading: Reading) -> Values:
    """Return the rows of the committed runs, by what became of them then."""
    return {fate: sum(run.fates[fate] for run in reading.committed) for fate in FATES}


def reasons(reading: Reading) -> Values:
    """Return the rows for which the committed runs had a reason, by who has to act."""
    return _by_action(run.reasons for run in reading.committed)


def sealed_chunks(reading: Reading) -> Values:
    """Return how many chunks the committed runs have."""
    return {"": sum(run.chunks for run in reading.committed)}


def taken_results(reading: Reading) -> Values:
    """Return how many result files were taken in, a file of several runs once for each."""
    return {"": sum(run.results for run in reading.committed)}


def alerts_opened(reading: Reading) -> Values:
    """Return how many matters were late, by kind."""
    return _late_by_kind(reading)


def _late_by_kind(reading: Reading, *which: ColumnElement[bool]) -> Values:
    issuer = reading.context.issuer.issuer
    late = select(MATTER.c.kind, func.count()).where(MATTER.c.issuer == issuer, IS_LATE, *which)
    with reading.context.adapters.database.snapshot() as connection:
        return dict(connection.execute(late.group_by(MATTER.c.kind)).tuples().all())


# Histograms


def hours(reading: Reading) -> Mapping[str, Mapping[float, int]]:
    """Return how many links came within how many hours of their extract's drop."""
    spread = Counter[float]()
    for run in reading.committed:
        spread.update({float(span): links for span, links in run.hours.items()})
    return {"": spread} if spread else {}


def stages(reading: Reading) -> Mapping[str, Mapping[float, int]]:
    """Return how many runs took how many seconds, by stage."""
    spreads = defaultdict[str, Counter[float]](Counter)
    for run in reading.committed:
        for stage, seconds in run.stages.items():
            spreads[stage][seconds] += 1
    return spreads
