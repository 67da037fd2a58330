"""The metrics of an issuer: gauges of what the store shows, as OpenMetrics 1.0."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple, get_args

from flows.book.book import read_book
from flows.book.people import balance
from flows.operations.alert_history import open_alerts
from flows.reports.funnel_words import stored_funnel
from flows.reports.summary import FIGURES
from flows.runs.business_date import local_day
from flows.runs.chunks import OPEN, OutboxChunk, State
from flows.runs.context import IssuerContext
from flows.runs.keys import reconciliation
from flows.runs.outbox import outboxes
from flows.runs.store import Store
from flows.runs.stored_runs import StoredRuns
from flows.runs.versions import read_facts
from flows.submissions.extract_states import extracts_to_submit

ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Sample(NamedTuple):
    """A number with its labels."""

    value: float
    labels: Mapping[str, str]


class Gauge(NamedTuple):
    """A gauge: its name, help text and samples."""

    name: str
    text: str
    samples: Sequence[Sample]


def openmetrics(gauges: Iterable[Gauge]) -> str:
    """Return the gauges as OpenMetrics 1.0 text, those without samples left out."""
    lines: list[str] = []
    for gauge in gauges:
        if gauge.samples:
            lines += [f"# TYPE {gauge.name} gauge", f"# HELP {gauge.name} {gauge.text}"]
        for sample in gauge.samples:
            labels = ",".join(
                f'{name}="{value.translate(ESCAPES)}"' for name, value in sample.labels.items()
            )
            lines.append(f"{gauge.name}{{{labels}}} {sample.value:.15g}")
    return "\n".join([*lines, "# EOF", ""])


def write_metrics(context: IssuerContext) -> str:
    """Write an issuer's metrics and return them: OpenMetrics 1.0."""
    text = openmetrics(_gauges(context))
    key = f"{context.issuer.issuer}/metrics/openmetrics.txt"
    context.adapters.store.replace(key, [text.encode()])
    return text


def _gauges(context: IssuerContext) -> list[Gauge]:
    issuer = context.issuer.issuer
    store = context.adapters.store
    runs = StoredRuns(store, issuer)
    book = read_book(store, issuer)
    statuses = book.runs.statuses(runs)
    closed = book.runs.closed
    chunks = list(outboxes(runs, get_args(State), closed))
    fates = {fate: sum(getattr(status, fate) for status in statuses) for fate in FIGURES}
    run_states = Counter(status.state for status in statuses)
    chunk_states = Counter(str(item.state) for item in chunks)
    chunk_states["answered"] += sum(run.chunks for run in closed.values())
    ages = _oldest_chunks(chunks, context.adapters.now())
    alerts = Counter(alert.kind for alert in open_alerts(store, issuer))
    link_hours, in_time = _link_hours(store, issuer)
    reached, unknown = _funnel(store, issuer)
    committed, took = _last_run(runs)
    waiting = len(extracts_to_submit(context, remember=True))
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    cardholders = balance(book.cards(today))
    gauge = partial(_gauge, issuer)
    return [
        gauge("cardholders", "Cardholders by where they stand.", cardholders.people, "standing"),
        gauge("cardholders_waiting", "Cardholders by who acts.", cardholders.waits, "who"),
        gauge("rows", "Rows of all runs by fate.", fates, "fate"),
        gauge("runs", "Runs by state.", run_states, "state"),
        gauge("chunks", "Chunks by state.", chunk_states, "state"),
        gauge("oldest_chunk_seconds", "Age of the oldest chunk without a result.", ages, "state"),
        gauge("extracts_waiting", "Extracts not submitted yet.", {"": waiting}),
        gauge("alerts_open", "Open alerts by kind.", alerts, "kind"),
        gauge("last_commit_timestamp_seconds", "Commit time of the newest run.", committed),
        gauge("last_run_seconds", "Time from plan to commit of the newest run.", took),
        gauge("link_hours", "Hours from an extract's drop to its links.", link_hours, "kind"),
        gauge("links_in_time_ratio", "Share of links within the agreed hours.", in_time),
        gauge("cardholders_reached", "Cardholders who reached a stage.", reached, "stage"),
        gauge("cardholders_unknown", "Cardholders of whom nobody knows.", unknown, "stage"),
    ]


# The numbers of a gauge by the value of its label; "" where it has none.
_Values = Mapping[str, float]


def _gauge(issuer: str, name: str, text: str, values: _Values, label: str = "") -> Gauge:
    samples = []
    for labelled, value in sorted(values.items()):
        labels = {"issuer": issuer}
        if labelled:
            labels[label] = labelled
        samples.append(Sample(value, labels))
    return Gauge(f"cardlink_{name}", text, samples)


def _oldest_chunks(chunks: Iterable[OutboxChunk], now: datetime) -> dict[str, float]:
    """Return the age in seconds of the oldest chunk by state, of those without a result."""
    ages: dict[str, float] = {}
    for item in chunks:
        if item.state in OPEN:
            age = (now - item.clock).total_seconds()
            ages[item.state] = max(age, ages.get(item.state, 0.0))
    return ages


def _link_hours(store: Store, issuer: str) -> tuple[_Values, _Values]:
    """Return the hours from drop to link, and the share in time, as the last report has them."""
    summary = read_facts(store, f"{reconciliation(issuer)}summary.json") or {}
    hours = summary.get("hours")
    if not hours or not hours["links"]:
        return {}, {}
    return {name: hours[name] for name in ("median", "slowest")}, {"": hours["share"]}


def _funnel(store: Store, issuer: str) -> tuple[_Values, _Values]:
    """Return how many cardholders reached each stage, and of how many that is not known.

    A stage of which nothing is known has no number.
    """
    funnel = stored_funnel(store, issuer) or {"stages": []}
    reached: dict[str, float] = {}
    unknown: dict[str, float] = {}
    for line in funnel["stages"]:
        unknown[line["stage"]] = sum(cause["cardholders"] for cause in line["unknown"])
        if line["cardholders"] is not None:
            reached[line["stage"]] = line["cardholders"]
    return reached, unknown


def _last_run(runs: StoredRuns) -> tuple[_Values, _Values]:
    """Return the newest commit's time (epoch), and how many seconds that run took from its plan."""
    for run_id in reversed(runs.ids):
        run = runs.run(run_id)
        entries = runs.store.keys(run.keys.base, shallow=True)
        written = {entry.key: entry.modified for entry in entries}
        planned_at = written.get(run.keys.plan)
        committed_at = written.get(run.keys.manifest)
        if planned_at and committed_at and run.manifest is not None:
            took = committed_at - planned_at
            return {"": committed_at.timestamp()}, {"": took.total_seconds()}
    return {}, {}
