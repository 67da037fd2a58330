"""Metrics as a scraper reads them: names, kinds, and numbers that only grow where they should."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from flows.extensions.alerts.metrics import COUNTERS, TEXT, merged, metric_families, write_metrics
from flows.operations.purge import purge
from flows.runs.outbox import move
from tests.night import BANK, Bench, local_bench
from tests.operations.retention import YEAR, answered, cleaner, later
from tests.reports.test_hours import linked

Numbers = dict[tuple[str, frozenset[tuple[str, str]]], float]
ISSUER = ("issuer", BANK)


def numbers(families: Iterable[Metric]) -> Numbers:
    """Return every sample by its name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def named(name: str, *labels: tuple[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    return f"cardlink_{name}", frozenset([ISSUER, *labels])


def of(bench: Bench) -> Numbers:
    return numbers(metric_families(bench.context))


def counted(samples: Numbers) -> Numbers:
    """Return the samples that may only grow."""
    endings = ("_total", "_bucket", "_count", "_sum")
    return {key: value for key, value in samples.items() if key[0].endswith(endings)}


def test_both_formats_say_the_same_of_a_night(tmp_path: Path) -> None:
    bench, _ = linked(tmp_path, 2)

    text = write_metrics(bench.context)

    stored = bench.content(f"{BANK}/metrics/{TEXT}").decode()
    read = openmetrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # it has no types
    prometheus = text_string_to_metric_families(stored)
    assert numbers(read) == numbers(prometheus)
    assert bench.content(f"{BANK}/metrics/openmetrics.txt") == text.encode()


def test_counters_have_what_the_committed_runs_have(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    counts = bench.submit(bench.drop(50, bad=0.1)).manifest.counts

    samples = of(bench)

    fates = ("submitted", "rejected", "duplicate", "suppressed")
    assert [getattr(counts, fate) for fate in fates] == [
        samples[named("committed_rows_total", ("fate", fate))] for fate in fates
    ]
    assert 1 == samples[named("committed_runs_total")] == samples[named("sealed_chunks_total")]
    assert counts.rejected <= samples[named("reasons_total", ("action", "fix at source"))]


def test_the_stages_of_a_run_last_from_event_to_event(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    run = bench.submit(bench.drop(3)).manifest.run
    start = bench.now()
    bench.now = lambda: start + timedelta(hours=2)
    move(bench.context.adapters, run, "uploaded")

    samples = of(bench)

    stage = ("stage", "upload")
    assert 7200 == samples[named("stage_seconds_sum", stage)]
    counts = {
        limit: samples[named("stage_seconds_bucket", stage, ("le", limit))]
        for limit in ("3600.0", "14400.0", "+Inf")
    }
    assert {"3600.0": 0, "14400.0": 1, "+Inf": 1} == counts


def test_what_is_counted_only_grows_also_where_a_run_is_purged(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    first = counted(of(bench))
    old = later(bench, YEAR)

    purge(old.context, cleaner(bench))
    last = counted(of(old))

    assert bench.stored(run).purged_ledger
    assert first[named("drop_to_link_hours_count")] > 0
    assert {key: value for key, value in first.items() if last.get(key, 0) < value} == {}


def test_the_portals_key_has_its_days_and_open_breaks_are_counted(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    bench.submit(bench.drop(3))

    samples = of(bench)

    assert 0 == samples[named("breaks_open")]
    assert bench.now().timestamp() == samples[named("metrics_timestamp_seconds")]
    assert named("key_days") not in samples  # it ends later than in thirty days


def test_several_issuers_are_one_family_with_the_samples_of_each() -> None:
    text = '# HELP cardlink_runs Runs.\n# TYPE cardlink_runs gauge\ncardlink_runs{issuer="%s"} 1\n'

    [family] = merged([text % "a", text % "b"])

    assert [("a", 1), ("b", 1)] == [
        (sample.labels["issuer"], sample.value) for sample in family.samples
    ]


def test_no_counter_has_the_name_of_a_gauge() -> None:
    assert all(counter.kind == "counter" for counter in COUNTERS)
