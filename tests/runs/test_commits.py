"""The order of an issuer's commits: one turn at a time, and no card in two of them unseen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from flows.database.connection import Database
from flows.runs.commits import OvertakenError, read_commits, read_last_turn, refuse_overtaken
from flows.runs.keys import keys_of
from schemas.manifest import Manifest
from tests.memory_bench import MemoryBench, memory_bench
from tests.storms import LateStore


@cache
def _nights() -> tuple[MemoryBench, list[Manifest]]:
    bench = memory_bench(resend={"seen_before": "send"})
    extracts = [bench.drop(5 + night, f"bank-202611{20 + night}.csv") for night in range(2)]
    others = bench.drop(4, "bank-20261122.csv", seed=9)
    return bench, [bench.submit(extract).manifest for extract in (*extracts, others)]


def nights() -> tuple[MemoryBench, list[Manifest]]:
    """Return three committed runs: of 5 cardholders, of 6 that hold those, and of 4 others."""
    bench, runs = _nights()
    return bench.copy(), runs


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


def test_every_run_has_the_next_turn_with_its_manifest() -> None:
    bench, runs = nights()

    commits = read_commits(bench.adapters, "bank")

    assert [*enumerate(runs, 1)] == [(commit.turn, commit.manifest) for commit in commits]
    assert commits[1:] == read_commits(bench.adapters, "bank", 1)
    assert 3 == read_last_turn(bench.adapters, "bank")


def test_a_store_that_lists_late_hides_no_commit() -> None:
    bench = memory_bench()
    late = replace(bench, store=LateStore(bench.store))  # type: ignore[arg-type]  # as good a store
    dropped = [bench.drop(5 + night, f"bank-202611{20 + night}.csv") for night in range(3)]

    runs = [late.submit(extract).manifest for extract in dropped]

    assert runs == [commit.manifest for commit in read_commits(late.adapters, "bank")]


def refuse_later(bench: MemoryBench, own: Manifest, since: int, *, guarded: bool) -> None:
    """Refuse a run that was planned after that turn, as its commit does."""
    for commit in read_commits(bench.adapters, "bank", since):
        refuse_overtaken(bench.adapters, own, commit.manifest, guarded=guarded)


@pytest.mark.parametrize(("since", "guarded"), [(3, True), (2, True), (0, False)])
def test_what_was_known_before_the_look_or_shares_no_card_stands_in_nobodys_way(
    since: int, guarded: bool
) -> None:
    bench, runs = nights()
    own = with_same_cards(bench, runs[1], **of_another_extract(runs[1]))

    refuse_later(bench, own, since, guarded=guarded)


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
        refuse_later(bench, own, since, guarded=guarded)

    facts = {"run": own.run, "other": runs[other].run, "what": f"{cards} of its cards"}
    assert facts == overtaken.value.fields


def test_a_card_that_was_in_a_file_and_not_sent_stops_no_commit() -> None:
    bench = memory_bench()
    whole = bench.content("bank/extracts/" + bench.drop(6, "bank-20261121.csv"))
    bench.drop_bytes(b"".join(whole.splitlines(keepends=True)[:6]), "bank-20261120.csv")
    first = bench.submit("bank-20261120.csv").manifest
    second = bench.submit("bank-20261121.csv").manifest
    own = with_same_cards(bench, first, **of_another_extract(first))

    refuse_later(bench, own, 1, guarded=True)

    assert (5, 1) == (first.counts.submitted, second.counts.submitted)


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
    bench, runs = nights()
    other = runs[0].model_copy(update={"sequence": other_number, "ledger": ()})
    otherwise = {} if is_same_extract else of_another_extract(other)
    own = other.model_copy(update={"run": f"{other.run}-r2", "sequence": own_number, **otherwise})

    refused = None
    try:
        refuse_overtaken(bench.adapters, own, other, guarded=True)
    except OvertakenError as overtaken:
        refused = overtaken.fields

    facts = {"run": own.run, "other": other.run, "what": "the same sequence number"}
    assert (facts if is_refused else None) == refused


def test_of_many_at_once_each_gets_a_turn_of_its_own(database: Database) -> None:
    bench = memory_bench(full_portfolio=True)
    several = replace(bench, database=database)
    whole = bench.content("bank/extracts/" + bench.drop(6)).splitlines(keepends=True)
    names = [
        bench.drop_bytes(whole[0] + line, f"bank-2026112{place}.csv")
        for place, line in enumerate(whole[1:])
    ]

    with ThreadPoolExecutor(6) as threads:
        done = list(threads.map(several.submit, names))

    commits = read_commits(several.adapters, "bank")
    assert [1, 2, 3, 4, 5, 6] == [commit.turn for commit in commits]
    assert {each.manifest.run for each in done} == {commit.manifest.run for commit in commits}
