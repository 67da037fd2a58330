"""The metrics of an issuer, derived from what is stored each time, and kept beside its runs.

Counters and histograms count what is never changed or removed, so they only grow, however short the
processes live that derive them. The figures of a run are kept, also when its ledger is purged, and
not read again where nothing of it is open.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from flows.configuration import issuers, load_issuer
from flows.errors import CardlinkError
from flows.extensions import hooks
from flows.extensions.alerts import metric_readings as readings
from flows.extensions.alerts.metric_readings import Reading, Values
from flows.operations.conditions import Gauge
from flows.runs.context import IssuerContext
from flows.runs.keys import metrics
from flows.runs.store import read
from flows.wiring import open_store

PREFIX = "cardlink_"
TEXT = "cardlink.prom"  # as the node exporter reads it
# upper limits of histograms
HOURS = (1, 2, 4, 8, 12, 24, 36, 48, 72, 120, 240)
SECONDS = (60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86_400, 2 * 86_400, 5 * 86_400)


class Histogram(NamedTuple):
    """How often a measure was how large: by label, the number of times of each value."""

    name: str
    text: str
    label: str
    limits: tuple[float, ...]
    read: Callable[[Reading], Mapping[str, Mapping[float, int]]]


GAUGES = (
    Gauge("cardholders", "Cardholders by where they stand.", "standing", readings.people),
    Gauge("cardholders_waiting", "Cardholders by who acts.", "who", readings.waiting),
    Gauge("rows", "Rows of all runs by fate.", "fate", readings.rows),
    Gauge("rows_refused", "Rows the partner refused, by who acts.", "action", readings.refused),
    Gauge("runs", "Runs by state.", "state", readings.runs),
    Gauge("chunks", "Chunks by state.", "state", readings.chunks),
    Gauge("chunks_overdue", "Chunks whose result should have come.", "", readings.overdue),
    Gauge("oldest_chunk_seconds", "Age of the oldest open chunk.", "state", readings.oldest),
    Gauge("breaks_open", "Breaks that are open.", "", readings.breaks),
    Gauge("extracts_waiting", "Extracts not submitted yet.", "", readings.extracts),
    Gauge("alerts_open", "Open alerts by kind.", "kind", readings.alerts_open),
    Gauge("key_days", "Days until the portal's key ends, of 30.", "", readings.key_days),
    Gauge("last_commit_timestamp_seconds", "When a run was committed.", "", readings.committed_at),
    Gauge("last_result_timestamp_seconds", "When a result was taken in.", "", readings.answered_at),
    Gauge("last_run_seconds", "From plan to commit of the newest run.", "", readings.took),
    Gauge("metrics_timestamp_seconds", "When these were derived.", "", readings.derived_at),
    Gauge("link_hours", "Hours from an extract's drop to its links.", "kind", readings.link_hours),
    Gauge("links_in_time_ratio", "Share of links within the agreed hours.", "", readings.in_time),
)
COUNTERS = (
    Gauge("committed_runs", "Runs committed.", "", readings.committed_runs, "counter"),
    Gauge("committed_rows", "Rows of committed runs.", "fate", readings.committed_rows, "counter"),
    Gauge("reasons", "Rows with a reason, by who acts.", "action", readings.reasons, "counter"),
    Gauge("sealed_chunks", "Chunks sealed and committed.", "", readings.sealed_chunks, "counter"),
    Gauge("taken_results", "Result files taken in.", "", readings.taken_results, "counter"),
    Gauge("opened_alerts", "Alerts opened by kind.", "kind", readings.alerts_opened, "counter"),
)
HISTOGRAMS = (
    Histogram("drop_to_link_hours", "From an extract's drop to a link.", "", HOURS, readings.hours),
    Histogram("stage_seconds", "Stages of a run.", "stage", SECONDS, readings.stages),
)


class _Families(Collector):
    """Families that are already there, as a registry takes them."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def registry_of(families: list[Metric]) -> CollectorRegistry:
    """Return a registry of families, as the encoders of prometheus_client take one."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return registry


def metric_families(context: IssuerContext) -> list[Metric]:
    """Return the metrics of an issuer as it stands now; those of which nothing is known are left
    out.
    """
    reading = readings.read_issuer(context)
    issuer = context.issuer.issuer
    families = [
        *(_numbers(metric, issuer, metric.read(reading)) for metric in (*GAUGES, *COUNTERS)),
        *(_numbers(metric, issuer, metric.read(context)) for metric in _of_extensions()),
        *(_histogram(metric, issuer, reading) for metric in HISTOGRAMS),
    ]
    return [family for family in families if family.samples]


def numbers() -> list[Gauge]:
    """Return the metrics that are numbers, those of extensions too."""
    return [*GAUGES, *_of_extensions(), *COUNTERS]


def _of_extensions() -> Iterator[Gauge]:
    for gauges in hooks("gauges"):
        yield from gauges()


def write_metrics(context: IssuerContext) -> str:
    """Write an issuer's metrics as OpenMetrics 1.0 and as text for the node exporter.

    Returns the OpenMetrics.
    """
    registry = registry_of(metric_families(context))
    store = context.adapters.store
    folder = metrics(context.issuer.issuer)
    text: bytes = openmetrics(registry)  # type: ignore[no-untyped-call]  # it has no types
    store.replace(f"{folder}openmetrics.txt", [text])
    store.replace(f"{folder}{TEXT}", [generate_latest(registry)])
    return text.decode()


def _numbers(metric: Gauge, issuer: str, values: Values) -> Metric:
    family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    labels = ["issuer", metric.label] if metric.label else ["issuer"]
    numbers = family(PREFIX + metric.name, metric.text, labels=labels)
    for labelled, value in sorted(values.items()):
        numbers.add_metric([issuer, labelled] if metric.label else [issuer], value)
    return numbers


def _histogram(metric: Histogram, issuer: str, reading: Reading) -> Metric:
    labels = ["issuer", metric.label] if metric.label else ["issuer"]
    family = HistogramMetricFamily(PREFIX + metric.name, metric.text, labels=labels)
    for labelled, spread in sorted(metric.read(reading).items()):
        buckets = [(f"{limit:.1f}", _upto(spread, limit)) for limit in metric.limits]
        buckets.append(("+Inf", _upto(spread, float("inf"))))
        total = sum(value * times for value, times in spread.items())
        family.add_metric([issuer, labelled] if metric.label else [issuer], buckets, total)
    return family


def _upto(spread: Mapping[float, int], limit: float) -> int:
    return sum(times for value, times in spread.items() if value <= limit)


def exposed(folder: Path, accept: str) -> tuple[bytes, str]:
    """Return the metrics of a folder's issuers, and their media type: what a scraper accepts."""
    encode, media_type = choose_encoder(accept)
    return encode(registry_of(merged(_kept(folder)))), media_type


def merged(texts: Iterable[str]) -> list[Metric]:
    """Return the families of several texts, each once with the samples of all."""
    families: dict[str, Metric] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            families.setdefault(family.name, family)
            if families[family.name] is not family:
                families[family.name].samples += family.samples
    return list(families.values())


def _kept(folder: Path) -> Iterator[str]:
    for name in issuers(folder):
        with suppress(CardlinkError):  # not written yet, or its store is away: its age tells
            store = open_store(load_issuer(folder, name), folder)
            yield read(store, f"{metrics(name)}{TEXT}").decode()
