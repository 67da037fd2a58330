"""Measure an issuer from its small documents, and store the numbers as OpenMetrics text.

Labels are issuer, state, fate and kind: nothing personal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, get_args

from flows.operations.alerts import open_alerts
from flows.reports.summary import FIGURES
from flows.runs.chunks import OPEN, State, outboxes
from flows.runs.context import IssuerContext
from flows.runs.documents import read_manifest, run_ids, run_statuses
from flows.runs.keys import RunKeys, reconciliation
from flows.runs.store import Store
from flows.runs.versions import read_facts
from flows.submissions.pending import pending


class Family(NamedTuple):
    """One gauge: name, help text, samples (each a number with its labels)."""

    name: str
    help: str
    samples: tuple[tuple[float, Mapping[str, str]], ...]


def openmetrics(families: Iterable[Family]) -> str:
    """Return the families as OpenMetrics 1.0 text, those without samples left out."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            lines += [f"# TYPE {family.name} gauge", f"# HELP {family.name} {family.help}"]
            lines += [f"{family.name}{{{_labels(labels)}}} {value:.15g}" for value, labels in family.samples]
    return "\n".join([*lines, "# EOF", ""])


def _labels(labels: Mapping[str, str]) -> str:
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return ",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels.items())


def metrics_key(issuer: str) -> str:
    """Return the key of an issuer's metrics."""
    return f"{issuer}/metrics/openmetrics.txt"


def write_metrics(context: IssuerContext) -> str:
    """Write an issuer's metrics and return them: OpenMetrics 1.0."""
    issuer, store, now = context.issuer.issuer, context.adapters.store, context.adapters.now()
    runs = list(run_statuses(store, issuer))
    chunks = list(outboxes(context.adapters, issuer, get_args(State)))
    rows = {fate: sum(getattr(one, fate) for one in runs) for fate in FIGURES}
    ages: dict[str, float] = {}
    for item in chunks:
        if item.state in OPEN:
            ages[item.state] = max((now - item.clock).total_seconds(), ages.get(item.state, 0.0))
    alerts = Counter(alert.kind for alert in open_alerts(store, issuer))
    waiting = len(pending(context, remember=True))

    def family(name: str, text: str, values: Mapping[str, float], label: str = "state") -> Family:
        samples = ((value, {"issuer": issuer, label: one}) for one, value in sorted(values.items()))
        return Family(name, text, tuple(samples))

    families = [
        family("cardlink_rows", "Rows of all runs by fate.", rows, "fate"),
        family("cardlink_runs", "Runs by state.", Counter(one.state for one in runs)),
        family("cardlink_chunks", "Chunks by state.", Counter(str(item.state) for item in chunks)),
        family("cardlink_oldest_chunk_seconds", "Age of the oldest chunk without a result.", ages),
        _gauge(issuer, "cardlink_extracts_waiting", "Extracts not submitted yet.", waiting),
        family("cardlink_alerts_open", "Open alerts by kind.", alerts, "kind"),
        *_last_run(store, issuer),
        *_hours(store, issuer),
    ]
    text = openmetrics(families)
    store.replace(metrics_key(issuer), [text.encode()])
    return text


def _gauge(issuer: str, name: str, text: str, value: float) -> Family:
    return Family(name, text, ((value, {"issuer": issuer}),))


def _hours(store: Store, issuer: str) -> Iterator[Family]:
    """Yield the hours from drop to link, as the last report across runs has them."""
    hours = (read_facts(store, f"{reconciliation(issuer)}summary.json") or {}).get("hours")
    if hours and hours["links"]:
        samples = tuple((hours[one], {"issuer": issuer, "kind": one}) for one in ("median", "slowest"))
        yield Family("cardlink_link_hours", "Hours from an extract's drop to its links.", samples)
        yield _gauge(issuer, "cardlink_links_in_time_ratio", "Share of links within the agreed hours.", hours["share"])


def _last_run(store: Store, issuer: str) -> Iterator[Family]:
    """Yield when the newest committed run was committed and how long it took from its plan."""
    for run in reversed(run_ids(store, issuer)):
        keys = RunKeys(run)
        written = {entry.key: entry.modified for entry in store.keys(keys.base, shallow=True)}
        if keys.manifest in written and keys.plan in written and read_manifest(store, keys) is not None:
            when, took = written[keys.manifest], written[keys.manifest] - written[keys.plan]
            committed = "Commit time of the newest run."
            yield _gauge(issuer, "cardlink_last_commit_timestamp_seconds", committed, when.timestamp())
            duration = "Time from plan to commit of the newest run."
            yield _gauge(issuer, "cardlink_last_run_seconds", duration, took.total_seconds())
            return
