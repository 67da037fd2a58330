"""Measure an issuer from its small documents, and keep the numbers as OpenMetrics text in the store.

Labels are issuer, state and kind: nothing personal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, get_args

from flows.operations.alerts import open_alerts
from flows.runs.chunks import Item, State, outboxes
from flows.runs.context import Adapters, IssuerContext
from flows.runs.documents import RunStatus, read_manifest, run_ids, run_statuses
from flows.runs.keys import RunKeys
from flows.runs.store import Store
from flows.submissions.plan import pending

FATES = ("read", "linked", "error", "awaiting", "rejected", "duplicate", "suppressed")


class Sample(NamedTuple):
    """One number of a family, with its labels."""

    value: float
    labels: Mapping[str, str]


class Family(NamedTuple):
    """One gauge: name, what it says, its samples."""

    name: str
    help: str
    samples: tuple[Sample, ...]


def openmetrics(families: Iterable[Family]) -> str:
    """Return the families as OpenMetrics 1.0 text."""
    lines = [line for family in families if family.samples for line in _family(family)]
    return "\n".join([*lines, "# EOF", ""])


def _family(family: Family) -> list[str]:
    head = [f"# TYPE {family.name} gauge", f"# HELP {family.name} {family.help}"]
    return head + [f"{family.name}{_labels(sample.labels)} {sample.value:.15g}" for sample in family.samples]


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def metrics_key(issuer: str) -> str:
    """Return where the metrics of an issuer lie."""
    return f"{issuer}/metrics/openmetrics.txt"


def write_metrics(context: IssuerContext) -> str:
    """Write an issuer's metrics anew and return them: OpenMetrics 1.0."""
    name, store = context.issuer.issuer, context.adapters.store
    runs = list(run_statuses(store, name))
    found = list(outboxes(context.adapters, name, get_args(State)))
    families = [
        _rows(name, runs),
        _states(name, "cardlink_runs", "Runs by state.", Counter(one.state for one in runs)),
        _states(name, "cardlink_chunks", "Chunks by state.", Counter(item.state for item in found)),
        _ages(context.adapters, name, found),
        _gauge("cardlink_extracts_waiting", "Extracts that are not submitted yet.", name, len(pending(context))),
        _alerts(store, name),
        *_last_run(store, name),
    ]
    text = openmetrics(families)
    store.replace(metrics_key(name), [text.encode()])
    return text


def _gauge(name: str, text: str, issuer: str, value: float) -> Family:
    return Family(name, text, (Sample(value, {"issuer": issuer}),))


def _states(issuer: str, name: str, text: str, counts: Counter[str]) -> Family:
    samples = (Sample(number, {"issuer": issuer, "state": state}) for state, number in sorted(counts.items()))
    return Family(name, text, tuple(samples))


def _rows(issuer: str, runs: list[RunStatus]) -> Family:
    totals = {fate: sum(getattr(one, fate) for one in runs) for fate in FATES}
    samples = (Sample(number, {"issuer": issuer, "fate": fate}) for fate, number in totals.items())
    return Family("cardlink_rows", "Rows of all runs by fate.", tuple(samples))


def _ages(adapters: Adapters, issuer: str, found: list[Item]) -> Family:
    moment = adapters.now()
    ages = {
        state: max((moment - item.clock).total_seconds() for item in found if item.state == state)
        for state in ("waiting", "held", "uploaded")
        if any(item.state == state for item in found)
    }
    samples = (Sample(age, {"issuer": issuer, "state": state}) for state, age in ages.items())
    return Family("cardlink_oldest_chunk_seconds", "Age of the oldest chunk that has no result.", tuple(samples))


def _alerts(store: Store, issuer: str) -> Family:
    kinds = Counter(alert.kind for alert in open_alerts(store, issuer))
    samples = (Sample(number, {"issuer": issuer, "kind": kind}) for kind, number in sorted(kinds.items()))
    return Family("cardlink_alerts_open", "Open alerts by kind.", tuple(samples))


def _last_run(store: Store, issuer: str) -> list[Family]:
    """Tell when the newest committed run was committed and how long it took from its plan on."""
    for run in reversed(run_ids(store, issuer)):
        keys = RunKeys(run)
        written = {entry.key: entry.modified for entry in store.keys(keys.base, shallow=True)}
        if keys.manifest in written and keys.plan in written and read_manifest(store, keys) is not None:
            took = (written[keys.manifest] - written[keys.plan]).total_seconds()
            when = written[keys.manifest].timestamp()
            return [
                _gauge("cardlink_last_commit_timestamp_seconds", "When the newest run was committed.", issuer, when),
                _gauge("cardlink_last_run_seconds", "From plan to commit of the newest run.", issuer, took),
            ]
    return []
