"""Measure an issuer from its small documents, and keep the numbers as OpenMetrics text in the store."""

from __future__ import annotations

from collections import Counter
from typing import get_args

from flows.core.names import RunKeys
from flows.core.ports import Store
from flows.core.run.metrics import Family, Sample, openmetrics
from flows.core.run.outbox import Item, State
from flows.steps.edges import Edges, IssuerEdges
from flows.steps.night.pending import pending
from flows.steps.operate.outbox import outboxes
from flows.steps.operate.status import Standing, standings
from flows.steps.operate.watch import open_alerts
from flows.steps.runs import read_manifest, run_ids

FATES = ("read", "linked", "error", "awaiting", "rejected", "duplicate", "suppressed")


def metrics_key(issuer: str) -> str:
    """Return where the metrics of an issuer lie."""
    return f"{issuer}/metrics/openmetrics.txt"


def measure(edges: IssuerEdges) -> str:
    """Write an issuer's metrics anew and return them: OpenMetrics 1.0."""
    name, store = edges.issuer.issuer, edges.edges.store
    runs = list(standings(store, name))
    found = list(outboxes(edges.edges, name, get_args(State)))
    families = [
        _rows(name, runs),
        _states(name, "cardlink_runs", "Runs by state.", Counter(one.state for one in runs)),
        _states(name, "cardlink_chunks", "Chunks by state.", Counter(item.state for item in found)),
        _ages(edges.edges, name, found),
        _gauge("cardlink_extracts_waiting", "Extracts that are not submitted yet.", name, len(pending(edges))),
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


def _rows(issuer: str, runs: list[Standing]) -> Family:
    totals = {fate: sum(getattr(one, fate) for one in runs) for fate in FATES}
    samples = (Sample(number, {"issuer": issuer, "fate": fate}) for fate, number in totals.items())
    return Family("cardlink_rows", "Rows of all runs by fate.", tuple(samples))


def _ages(edges: Edges, issuer: str, found: list[Item]) -> Family:
    moment = edges.now()
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
