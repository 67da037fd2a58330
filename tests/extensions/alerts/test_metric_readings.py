"""Which of several moments, keys and runs a metric is of."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

from flows.extensions.alerts import metric_readings
from flows.extensions.alerts.metric_readings import Figures, Reading, RunReading
from flows.extensions.alerts.metrics import _upto
from flows.extensions.arrivals import hooks
from flows.extensions.arrivals.beat import Beat, write_beat
from flows.runs.events import ANSWERED
from tests.memory_bench import MemoryBench, memory_bench
from tests.night import BANK, NOON
from tests.planted import a_manifest, a_plan, entered, plant, plant_commit

HOURS = [NOON + timedelta(hours=hours) for hours in (2, 3, 1)]
FIRST, _, NEWEST = sorted(moment.timestamp() for moment in HOURS)
FIGURES = Figures({}, {}, 0, {}, 0, 0.0, {})


def reading(bench: MemoryBench, **facts: Any) -> Reading:
    """Return what is read of an issuer without any run."""
    return Reading(bench.context, NOON, (), cast(Any, None), {})._replace(**facts)


def test_a_run_was_answered_when_its_last_answer_came_and_a_stage_ends_with_the_first() -> None:
    events = [entered(ANSWERED, moment) for moment in HOURS]
    run = cast(Any, SimpleNamespace(summary=None, events=lambda *_: events))
    run.committed_at, run.dropped_at = min(HOURS), None
    counts = SimpleNamespace(**dict.fromkeys(metric_readings.FATES, 0))
    manifest = cast(Any, SimpleNamespace(counts=counts, reasons={}, chunks=(), selection=None))

    figures = metric_readings._figures(run, manifest, None)

    assert NEWEST == figures.answered_at
    assert FIRST == metric_readings._first(events)


def test_of_all_runs_the_newest_answer_counts_and_none_of_a_run_without_one() -> None:
    bench = memory_bench()
    answers = [0.0, *(moment.timestamp() for moment in HOURS)]
    runs = [RunReading("", cast(Any, None), FIGURES._replace(answered_at=at)) for at in answers]

    assert {"": NEWEST} == metric_readings.answered_at(reading(bench, runs=runs))
    assert {} == metric_readings.answered_at(reading(bench, runs=runs[:1]))


def test_the_newest_run_is_the_last_that_was_committed() -> None:
    bench = memory_bench()
    runs = [f"bank-2026112{day}-{day:08d}" for day in (1, 2)]
    for number, run in enumerate(runs):
        plan = a_plan(run)
        plant(bench.adapters, plan, at=HOURS[number])
        plant_commit(bench.adapters, a_manifest(plan), HOURS[number] + timedelta(seconds=60))
    committed = [RunReading(run, cast(Any, None), FIGURES) for run in runs]
    planned = RunReading("bank-20261123-00000003", cast(Any, None))

    known = reading(bench, runs=[*committed, planned])

    assert {"": NEWEST + 60} == metric_readings.committed_at(known)
    assert {"": 60} == metric_readings.took(known)


def test_of_several_keys_the_first_that_ends_and_the_beat_of_arrivals() -> None:
    bench = memory_bench(arrivals={})
    write_beat(bench.store, BANK, Beat(at=min(HOURS)))
    warnings = [SimpleNamespace(days=days) for days in (9, None, 7, 8)]
    sealer = SimpleNamespace(warnings=warnings)
    context = bench.context._replace(sealer=cast(Any, lambda: nullcontext(sealer)))

    known = reading(bench, context=context)

    assert {"": FIRST} == hooks.beaten_at(known.context)
    assert {"": 7} == metric_readings.key_days(known)


def test_a_bucket_has_what_is_at_its_limit() -> None:
    assert [1, 3, 3] == [_upto({1.0: 1, 2.0: 2, 3.1: 4}, limit) for limit in (1.9, 2.0, 3.0)]
