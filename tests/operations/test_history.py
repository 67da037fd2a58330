"""The audit trail: everything that happened to a run, with who, when, which object, how many rows
and what outcome.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from flows.errors import CardlinkError
from flows.operations.history import history
from flows.runs.errors import UnknownRunError
from flows.runs.events import record_event
from flows.runs.keys import keys_of
from schemas.expressions import PUBLISHED
from tests.night import Bench, local_bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = local_bench(tmp_path)
    bench.now = lambda: datetime.now(UTC)  # objects are dated by the store's clock
    return bench


def test_a_night_can_be_told_from_its_objects(bench: Bench) -> None:
    run = bench.submit(bench.drop(20)).manifest.run
    bench.answer()
    bench.ingest()

    found = history(bench.adapters, run)

    by = {one.what: one for one in found}
    assert {
        "planned",
        "committed",
        "answered",
    } == set(by)
    assert bench.manifest(run).source.sha256 == by["planned"].facts["sha256"]
    assert (20, 20, 1) == tuple(
        by["committed"].facts[name] for name in ("read", "submitted", "chunks")
    )
    assert 20 == by["answered"].facts["rows"]
    assert {"tester:1"} == {by[what].by for what in ("planned", "committed", "answered")}
    assert all(datetime.fromisoformat(one.at).tzinfo for one in found)


def test_a_refused_run_says_what_refused_it(bench: Bench) -> None:
    name = bench.drop_bytes(b"a,b\n1,2\n")
    with pytest.raises(CardlinkError):
        bench.submit(name)
    [run] = map(str, bench.runs.ids)

    found = history(bench.adapters, run)

    assert ["planned", "refused"] == [
        one.what for one in found if one.what in ("planned", "refused", "committed")
    ]


def test_a_run_that_was_never_planned_is_unknown(bench: Bench) -> None:
    with pytest.raises(UnknownRunError):
        history(bench.adapters, "bank-20261120-00000000")


def test_a_card_number_in_a_typed_reason_is_masked(bench: Bench) -> None:
    run = bench.submit(bench.drop(20)).manifest.run

    record_event(bench.context.adapters, keys_of(run), "held", f"ask about {PUBLISHED[0]}", rows=1)

    assert "ask about [masked]" == history(bench.adapters, run)[-1].facts["reason"]
