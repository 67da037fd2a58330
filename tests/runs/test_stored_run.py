"""A stored run: each document is read once, when it is asked for, and stays as it was read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.operations.remediation import abandon
from flows.runs.errors import AbandonedError, LedgerPurgedError, UnknownRunError
from flows.runs.events import record_event
from flows.runs.journal import enter
from flows.runs.keys import RunId, keys_of
from flows.runs.outbox import move
from flows.runs.purges import add_purge
from flows.runs.store import ConflictError
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from schemas.manifest import Manifest
from schemas.records import Purged
from tests.again import again, night
from tests.night import BANK, NOON, Bench, edges, local_bench, uncommit
from tests.storms import FailingStore

RUN = RunId(BANK, NOON.date(), "0123abcd")


def counted(bench: Bench) -> tuple[FailingStore, Counter[str]]:
    """Return the bench's store, and how often each object was opened and each prefix listed."""
    requests = Counter[str]()

    def count(operation: str, key: str) -> None:
        requests[f"{operation} {key}"] += 1

    return FailingStore(bench.store, count), requests


def purge_ledger(bench: Bench, run: str) -> None:
    """Write the record that the ledger of a run was purged."""
    record = Purged(
        run=run, part="ledger", at=NOON, by="tester", since=NOON, setting="ledger_days = 1",
        objects={}, bytes=0, verdict="balanced", rows={"read": 30, "linked": 30},
    )  # fmt: skip
    enter(bench.adapters, BANK, "purged", lambda act: add_purge(act, record), run=run)


def everything(run: StoredRun) -> list[Any]:
    """Ask a run for all that it can say."""
    return [
        *(run.plan, run.planned(), run.end, run.is_ended, run.manifest, run.committed()),
        *(run.with_ledger(), run.purged("chunks"), run.purged("ledger"), run.summary),
        *(run.history, run.events("committed"), run.repeats, run.refusal, run.is_replaced),
        *(run.outcomes.chunks(), run.closed_breaks, run.reseals, run.single_link_attempts),
        *(run.single_links, run.sealed_chunks, run.manifest_as_sealed, run.chunk_states),
        *(run.cancelled_chunks, run.answered_chunks, run.outbox, run.status),
    ]


def test_each_document_is_read_once_however_often_it_is_asked_for(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    store, requests = counted(bench)
    stored = StoredRun.by_id(edges(store), run)
    everything(stored)
    once = requests.copy()

    everything(stored)

    assert once == requests
    opened_twice = [
        request for request, count in once.items() if count > 1 and request.startswith("open ")
    ]
    assert [] == opened_twice


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    store, requests = counted(bench)

    stored = StoredRun.by_id(edges(store), run)
    assert not requests
    stored.committed()

    assert not requests


def test_what_is_written_later_shows_in_a_fresh_run_only(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    manifest = bench.submit(bench.drop(5)).manifest
    uncommit(tmp_path, manifest.run)
    keys = keys_of(manifest.run)
    before = StoredRun(bench.adapters, keys)
    assert (None, []) == (before.end, before.events("opened"))

    again = bench.submit("bank-20261120.csv").manifest
    record_event(bench.context.adapters, keys, "opened", gates=["x"])

    assert (None, []) == (before.manifest, before.events("opened"))
    assert again == before.fresh().manifest
    assert 1 == len(before.fresh().events("opened"))


def test_ledger_and_rows_come_part_by_part_with_the_columns_and_rows_asked_for(
    tmp_path: Path,
) -> None:
    bench, run = night(tmp_path)
    stored = bench.stored(run)

    ledger = pl.concat(stored.ledger(["row", "fate"], pl.col("row") > 20))
    linked = pl.concat(stored.rows(["row"], pl.col("state") == "linked"))

    assert (["row", "fate"], 10) == (ledger.columns, ledger.height)
    assert bench.ledger(run).equals(pl.concat(stored.ledger()).sort("row"))
    assert stored.status.linked == linked.height > 0


def test_a_ledger_part_that_is_not_what_was_written_is_refused(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    stored = bench.stored(run)
    [part] = stored.committed().ledger
    bench.store.replace(stored.keys.ledger + part.name, [b"other"])

    with pytest.raises(ConflictError, match=part.name):
        stored.ledger_part(part)


def test_a_run_that_is_unknown_abandoned_or_purged_says_so(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    run = bench.submit(bench.drop(5)).manifest.run
    uncommit(tmp_path, run)
    with pytest.raises(UnknownRunError):
        bench.stored("no run")
    with pytest.raises(UnknownRunError):
        StoredRun(bench.adapters, keys_of(str(RUN))).planned()
    with pytest.raises(UnknownRunError):
        bench.stored(run).committed()

    abandon(bench.context.adapters, run, "never to be sent")

    stored = bench.stored(run)
    assert (None, True, "abandoned") == (stored.manifest, stored.is_ended, stored.status.state)
    with pytest.raises(AbandonedError, match="never to be sent"):
        stored.finished()


def test_a_purged_ledger_is_named_also_where_it_goes_meanwhile(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    stored = bench.stored(run)
    [part] = stored.with_ledger().ledger
    purge_ledger(bench, run)
    (tmp_path / "store" / stored.keys.ledger / part.name).unlink()
    (tmp_path / "store" / stored.keys.report("summary.json")).unlink()

    with pytest.raises(LedgerPurgedError):
        stored.ledger_part(part)
    with pytest.raises(LedgerPurgedError):
        stored.fresh().with_ledger()

    assert "balanced (purged)" == stored.fresh().status.state


def test_the_outbox_of_a_run_is_what_its_events_and_results_say(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 5})
    run = bench.submit(bench.drop(20)).manifest.run
    move(bench.context.adapters, run, "uploaded", [1])
    move(bench.context.adapters, run, "cancelled", [3], "not to be sent")

    stored = bench.stored(run)

    states = ["uploaded", "waiting", "cancelled", "waiting"]
    assert states == [chunk.state for chunk in stored.outbox]
    assert (frozenset({3}), frozenset[int]()) == (stored.cancelled_chunks, stored.answered_chunks)


def test_the_runs_of_an_issuer_are_listed_once_by_business_date(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    repeat = again(bench, run).manifest
    store, requests = counted(bench)
    runs = StoredRuns(edges(store), BANK)

    committed = [stored.id for stored in runs.committed()]

    assert [run, repeat.run] == committed == [str(one) for one in runs.ids]
    assert ["committed, to be uploaded", "balanced"] == [
        status.state.partition(";")[0] for status in runs.statuses()
    ]
    manifests = list(runs.manifests())
    whole = [manifest.source.key for manifest in manifests if manifest.selection is None]
    assert {} == runs.refused([manifest.run for manifest in manifests], whole)
    assert 0 == requests[f"keys {BANK}/runs/"]
    purge_ledger(bench, run)
    assert [repeat.run] == [stored.id for stored in bench.runs.with_ledger()]


def test_a_run_holds_the_manifest_that_was_committed(tmp_path: Path) -> None:
    bench, run = night(tmp_path)

    stored = bench.stored(run)

    assert isinstance(stored.end, Manifest)
    assert stored.as_planned().manifest == stored.committed().model_dump(mode="json")
