"""Rules and dashboard in deploy/: each asks for metrics that exist, and each fault fires its alert."""

from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.core import Metric

from flows.extensions.alerts.metrics import HISTOGRAMS, PREFIX, metric_families, numbers
from flows.extensions.arrivals.beat import Beat, write_beat
from flows.operations.matters import watch
from flows.reports.across import reconcile_runs
from flows.runs.keys import extracts
from tests.extensions.alerts.test_watch import STORIES
from tests.night import BANK, Bench, local_bench

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
# what the rules consist of: a number now, or its age, compared with a limit
EXPRESSION = re.compile(
    r"(?P<age>time\(\) - )?(?P<name>cardlink_\w+)(?:\{(?P<label>\w+)=\"(?P<value>\w+)\"\})? "
    r"(?P<compared>[<>]) (?P<limit>[\d.]+)"
)
COMPARED = {"<": operator.lt, ">": operator.gt}


def rules() -> dict[str, dict[str, Any]]:
    document = yaml.safe_load((DEPLOY / "prometheus-rules.yaml").read_text())
    return {rule["alert"]: rule for group in document["groups"] for rule in group["rules"]}


def panels() -> list[dict[str, Any]]:
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    listed: list[dict[str, Any]] = board["panels"]
    return listed


def exposed_names() -> set[str]:
    """Return every name that a sample can have."""
    names = {
        f"{PREFIX}{number.name}_total" if number.kind == "counter" else PREFIX + number.name
        for number in numbers()
    }
    for histogram in HISTOGRAMS:
        names |= {f"{PREFIX}{histogram.name}_{part}" for part in ("bucket", "count", "sum")}
    return names


def used_names(expression: str) -> set[str]:
    return set(re.findall(r"\bcardlink_\w+", expression))


def fired(families: list[Metric], now: float) -> set[str]:
    """Return the alerts whose expression holds for these metrics, `for` aside."""
    samples = [sample for family in families for sample in family.samples]
    if not samples:
        return {"CardlinkNoMetrics"}
    return {alert for alert, rule in rules().items() if _holds(rule["expr"], samples, now)}


def _holds(expression: str, samples: list[Any], now: float) -> bool:
    match = EXPRESSION.fullmatch(expression)
    if match is None:
        return expression == "vector(1)"
    numbers = [
        now - sample.value if match["age"] else sample.value
        for sample in samples
        if sample.name == match["name"] and sample.labels.get(match["label"]) == match["value"]
    ]
    compared = COMPARED[match["compared"]]
    return any(compared(number, float(match["limit"])) for number in numbers)


def test_every_rule_and_panel_asks_for_metrics_that_exist() -> None:
    expressions = [rule["expr"] for rule in rules().values()]
    expressions += [target["expr"] for panel in panels() for target in panel["targets"]]

    used = set().union(*map(used_names, expressions))

    assert used - exposed_names() == set()
    assert len(used) > 15


def test_every_rule_is_one_that_is_evaluated_here_and_stands_in_the_runbook() -> None:
    runbook = (DEPLOY / "RUNBOOK.md").read_text()
    special = {"vector(1)", "absent(cardlink_metrics_timestamp_seconds)"}

    others = [rule["expr"] for rule in rules().values() if rule["expr"] not in special]

    assert [] == [expression for expression in others if not EXPRESSION.fullmatch(expression)]
    assert [] == [alert for alert in rules() if f"`{alert}`" not in runbook]


def night(folder: Path) -> Bench:
    bench = local_bench(folder)
    extract = bench.drop(3)
    dated(folder / "store" / extracts(BANK) / extract, bench.now())
    bench.submit(extract)
    return bench


def dated(file: Path, moment: datetime) -> None:
    os.utime(file, (moment.timestamp(), moment.timestamp()))


def sound(folder: Path) -> Iterator[tuple[Bench, float]]:
    bench = night(folder)
    yield bench, bench.now().timestamp()


def much_later(folder: Path) -> Iterator[tuple[Bench, float]]:
    bench = night(folder)
    start = bench.now()
    bench.now = lambda: start + timedelta(days=10)
    yield bench, bench.now().timestamp()


def silent(folder: Path) -> Iterator[tuple[Bench, float]]:
    bench = night(folder)
    yield bench, bench.now().timestamp() + 3601


def nothing_starts(folder: Path) -> Iterator[tuple[Bench, float]]:
    bench = local_bench(folder, arrivals={})
    bench.submit(bench.drop(3))
    write_beat(bench.store, BANK, Beat(at=bench.now() - timedelta(minutes=21)))
    yield bench, bench.now().timestamp()


def late_links(folder: Path) -> Iterator[tuple[Bench, float]]:
    bench = night(folder)
    later = bench.now() + timedelta(days=4)
    bench.now = lambda: later
    bench.answer()
    for result in folder.rglob("results/*"):
        dated(result, later)
    bench.ingest()
    reconcile_runs(bench.context)
    yield bench, later.timestamp()


def seen(kind: str, folder: Path) -> Iterator[tuple[Bench, float]]:
    """Yield the bench of a story of the watch in which an alert is open."""
    bench = next(iter(STORIES[kind](folder)))
    assert isinstance(bench, Bench)
    watch(bench.context)
    yield bench, bench.now().timestamp()


FAULTS = {
    "nothing": (sound, set[str]()),
    "nobody uploads for ten days": (
        much_later,
        {"CardlinkNotUploaded", "CardlinkOverdue", "CardlinkNoCommit"},
    ),
    "the watch is silent": (silent, {"CardlinkWatchSilent"}),
    "nothing starts when a file arrives": (nothing_starts, {"CardlinkArrivalsSilent"}),
    "links come days after the extract": (late_links, {"CardlinkLinksLate"}),
}
FOUND = {"break UNKNOWN_CUID": "CardlinkBreaksOpen", "expiring keys": "CardlinkKeyEnding"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fires_its_alerts_and_no_others(fault: str, tmp_path: Path) -> None:
    plant, expected = FAULTS[fault]
    [(bench, now)] = plant(tmp_path)

    alerts = fired(metric_families(bench.context), now)

    assert expected | {"CardlinkWatchdog"} == alerts


def test_every_rule_has_a_fault_that_fires_it() -> None:
    by_faults = set[str]().union(*(alerts for _, alerts in FAULTS.values()))

    elsewhere = {"CardlinkAlertOpen", "CardlinkNoMetrics", "CardlinkWatchdog"}

    assert by_faults | {*FOUND.values()} | elsewhere == rules().keys()


@pytest.mark.parametrize(("kind", "alert"), FOUND.items())
def test_what_the_watch_finds_is_an_open_alert_here_and_a_number(
    kind: str, alert: str, tmp_path: Path
) -> None:
    [(bench, now)] = seen(kind, tmp_path)

    alerts = fired(metric_families(bench.context), now)

    assert {"CardlinkAlertOpen", alert} <= alerts


def test_no_metrics_at_all_are_an_alert() -> None:
    assert {"CardlinkNoMetrics"} == fired([], 0)
