"""The order of an issuer's commits: one turn at a time, and no card in two of them unseen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from flows.runs.chains import add_next
from flows.runs.commits import (
    RECENT,
    OvertakenError,
    last_registered,
    recently_registered,
    register_run,
    registered_runs,
)
from flows.runs.keys import commits, keys_of, link
from flows.runs.store import ConflictError
from schemas.manifest import Manifest
from tests.memory import MemoryStore
from tests.memory_bench import MemoryBench, memory_bench
from tests.night import edges
from tests.storms import FailingStore, LateStore

CHAIN = commits("bank")


@cache
def _nights() -> tuple[MemoryBench, list[Manifest]]:
    bench = memory_bench(resend={"seen_before": "send"})
    extracts = [bench.drop(5 + night, f"bank-202611{20 + night}.csv") for night in range(2)]
    others = bench.drop(4, "bank-20261122.csv", seed=9)
    return bench, [bench.submit(extract).manifest for extract in (*extracts, others)]


def nights() -> tuple[MemoryBench, list[Manifest]]:
    """Return three committed runs: of 5 cardholders, of 6 that hold those, and of 4 others."""
    bench, runs = _nights()
    return replace(bench, store=bench.store.copy()), runs


def with_same_cards(bench: MemoryBench, manifest: Manifest, **otherwise: Any) -> Manifest:
    """Return another run of the same cards, about to be committed."""
    again = manifest.model_copy(update={"run": f"{manifest.run}-r2", **otherwise})
    for part in manifest.ledger:
        bench.store.create(
            keys_of(again.run).ledger + part.name,
            bench.content(keys_of(manifest.run).ledger + part.name),
        )
    return again


def of_another_extract(manifest: Manifest) -> dict[str, Any]:
    return {"source": manifest.source.model_copy(update={"sha256": "0" * 64})}


def test_every_commit_takes_the_next_link_which_holds_its_manifest() -> None:
    bench, runs = nights()

    assert runs == list(registered_runs(bench.store, "bank"))
    assert runs[1:] == list(registered_runs(bench.store, "bank", 1))
    assert [link(CHAIN, number) for number in (1, 2, 3)] == [
        entry.key for entry in bench.store.keys(CHAIN)
    ]


def test_a_store_that_lists_late_hides_no_commit() -> None:
    bench = memory_bench()
    late = replace(bench, store=LateStore(bench.store))  # type: ignore[arg-type]  # as good a store
    dropped = [bench.drop(5 + night, f"bank-202611{20 + night}.csv") for night in range(3)]

    runs = [late.submit(extract).manifest for extract in dropped]

    assert (3, runs) == (
        last_registered(late.store, "bank"),
        list(registered_runs(late.store, "bank")),
    )


@pytest.mark.parametrize("length", [0, 1, RECENT, RECENT + 1, RECENT + 2])
def test_the_recent_runs_are_the_last_ones_up_to_a_number(length: int) -> None:
    store = MemoryStore()
    first = nights()[1][0]
    runs = [first.model_copy(update={"run": f"{first.run}-r{at}"}) for at in range(2, length + 2)]
    for number, run in enumerate(runs, 1):
        add_next(store, CHAIN, number, run)

    recent = list(recently_registered(store, "bank"))

    assert (runs[-RECENT:], length) == (recent, last_registered(store, "bank"))


@pytest.mark.parametrize("since", [0, 1, 2])
def test_taking_a_turn_again_is_the_same_turn(since: int) -> None:
    bench, runs = nights()
    own = runs[since]

    register_run(bench.adapters, "bank", own, since, guarded=True)

    assert 3 == last_registered(bench.store, "bank")


@pytest.mark.parametrize(("since", "guarded"), [(3, True), (2, True), (0, False)])
def test_what_was_known_before_the_look_or_shares_no_card_stands_in_nobodys_way(
    since: int, guarded: bool
) -> None:
    bench, runs = nights()
    own = with_same_cards(bench, runs[1], **of_another_extract(runs[1]))

    register_run(bench.adapters, "bank", own, since, guarded=guarded)

    assert [*runs, own] == list(registered_runs(bench.store, "bank"))


@pytest.mark.parametrize(
    ("since", "guarded", "is_same_extract", "other", "cards"),
    [
        (0, True, False, 0, 5),
        (1, True, False, 1, 6),
        (1, True, True, 1, 6),
        (0, False, True, 1, 6),
    ],
)
def test_a_card_that_was_sent_since_the_look_stops_a_commit(
    since: int, guarded: bool, is_same_extract: bool, other: int, cards: int
) -> None:
    bench, runs = nights()
    otherwise = {} if is_same_extract else of_another_extract(runs[1])
    own = with_same_cards(bench, runs[1], **otherwise)

    with pytest.raises(OvertakenError) as overtaken:
        register_run(bench.adapters, "bank", own, since, guarded=guarded)

    facts = {"run": own.run, "other": runs[other].run, "what": f"{cards} of its cards"}
    assert facts == overtaken.value.fields
    assert 3 == last_registered(bench.store, "bank")


def test_a_card_that_was_in_a_file_and_not_sent_stops_no_commit() -> None:
    bench = memory_bench()
    whole = bench.content("bank/extracts/" + bench.drop(6, "bank-20261121.csv"))
    bench.drop_bytes(b"".join(whole.splitlines(keepends=True)[:6]), "bank-20261120.csv")
    first = bench.submit("bank-20261120.csv").manifest
    second = bench.submit("bank-20261121.csv").manifest
    own = with_same_cards(bench, first, **of_another_extract(first))

    register_run(bench.adapters, "bank", own, 1, guarded=True)

    assert (5, 1, 3) == (
        first.counts.submitted,
        second.counts.submitted,
        last_registered(bench.store, "bank"),
    )


@pytest.mark.parametrize(
    ("own_number", "other_number", "is_same_extract", "is_refused"),
    [
        (7, 7, False, True),
        (7, 6, False, False),
        (7, None, False, False),
        (None, None, False, False),
        (7, 7, True, False),
    ],
)
def test_the_sequence_number_of_another_extract_is_committed_once(
    own_number: int | None, other_number: int | None, is_same_extract: bool, is_refused: bool
) -> None:
    store = MemoryStore()
    other = nights()[1][0].model_copy(update={"sequence": other_number, "ledger": ()})
    add_next(store, CHAIN, 1, other)
    otherwise = {} if is_same_extract else of_another_extract(other)
    own = other.model_copy(update={"run": f"{other.run}-r2", "sequence": own_number, **otherwise})

    refused = None
    try:
        register_run(edges(store), "bank", own, 0, guarded=True)
    except OvertakenError as overtaken:
        refused = overtaken.fields

    facts = {"run": own.run, "other": other.run, "what": "the same sequence number"}
    assert (facts if is_refused else None) == refused
    assert 2 - is_refused == last_registered(store, "bank")


def test_of_many_at_once_each_gets_a_turn_of_its_own() -> None:
    adapters = edges(MemoryStore())
    first = nights()[1][0].model_copy(update={"ledger": ()})
    rivals = [first.model_copy(update={"run": f"{first.run}-r{number}"}) for number in range(2, 12)]

    with ThreadPoolExecutor(5) as threads:
        list(
            threads.map(
                lambda rival: register_run(adapters, "bank", rival, 0, guarded=True), rivals
            )
        )

    assert sorted(rival.run for rival in rivals) == sorted(
        run.run for run in registered_runs(adapters.store, "bank")
    )


def test_something_else_under_a_links_key_is_told_and_not_taken_for_one() -> None:
    bench, runs = nights()
    bench.store.create(link(CHAIN, 4), b"{}")

    with pytest.raises(ConflictError, match="000004"):
        list(registered_runs(bench.store, "bank"))
    with pytest.raises(ConflictError, match="000004"):
        register_run(bench.adapters, "bank", with_same_cards(bench, runs[0]), 3, guarded=True)


def test_a_link_that_cannot_be_created_and_is_not_there_is_told() -> None:
    own = nights()[1][0]
    store = FailingStore(MemoryStore(), lambda operation, key: None)
    store.create = lambda key, data: False  # type: ignore[method-assign]  # says it is there

    with pytest.raises(ConflictError) as conflict:
        register_run(edges(store), "bank", own, 4, guarded=True)

    assert {"key": link(CHAIN, 5)} == conflict.value.fields
