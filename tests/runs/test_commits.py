"""The order of an issuer's commits: one turn at a time, and no card in two of them unseen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from flows.runs.commits import OvertakenError, last_registered, register_run, registered_runs
from flows.runs.keys import commits, keys_of
from flows.runs.store import ConflictError
from schemas.manifest import Manifest
from tests.builders import quick
from tests.night import Bench, local_bench
from tests.storms import LateStore


def committed(bench: Bench, nights: int = 3) -> list[Manifest]:
    """Commit nights of 5, 6, 7 … cardholders, each holding those of the one before."""
    return [
        bench.submit(bench.drop(5 + night, f"bank-202611{20 + night}.csv")).manifest
        for night in range(nights)
    ]


def with_same_cards(bench: Bench, manifest: Manifest) -> Manifest:
    """Return another run of the same cards, about to be committed."""
    again = manifest.model_copy(update={"run": f"{manifest.run}-r2"})
    for part in manifest.ledger:
        bench.store.create(
            keys_of(again.run).ledger + part.name,
            bench.content(keys_of(manifest.run).ledger + part.name),
        )
    return again


def test_every_commit_takes_the_next_link_which_holds_its_manifest(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    runs = committed(bench)

    links = list(registered_runs(bench.store, "bank"))

    assert runs == links
    assert [f"{commits('bank')}{number:06d}.json" for number in (1, 2, 3)] == [
        entry.key for entry in bench.store.keys(commits("bank"))
    ]


def test_a_store_that_lists_late_hides_no_commit(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    late = replace(bench, store=LateStore(bench.store))
    dropped = [bench.drop(5 + night, f"bank-202611{20 + night}.csv") for night in range(3)]

    runs = [late.submit(extract).manifest for extract in dropped]

    assert (3, runs) == (
        last_registered(late.store, "bank"),
        list(registered_runs(late.store, "bank")),
    )


def test_taking_a_turn_again_is_the_same_turn(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    runs = committed(bench)

    register_run(bench.store, "bank", runs[-1], since=2)

    assert 3 == last_registered(bench.store, "bank")


@pytest.mark.slow
@pytest.mark.parametrize("since", quick(1, [3, None, 2]))
def test_what_was_known_before_the_look_or_shares_no_card_stands_in_nobodys_way(
    tmp_path: Path, since: int | None
) -> None:
    bench = local_bench(tmp_path)
    mine = committed(bench, 2)[1]
    bench.submit(bench.drop(4, "bank-20261122.csv", seed=9))  # others' cards

    register_run(bench.store, "bank", with_same_cards(bench, mine), since)

    assert 4 == last_registered(bench.store, "bank")


@pytest.mark.parametrize(("since", "cards"), [(0, 5), (1, 6)])
def test_a_card_that_was_sent_since_the_look_stops_a_commit(
    tmp_path: Path, since: int, cards: int
) -> None:
    bench = local_bench(tmp_path)
    mine = committed(bench, 2)[1]

    with pytest.raises(OvertakenError, match=f"has {cards} of its cards"):
        register_run(bench.store, "bank", with_same_cards(bench, mine), since)

    assert 2 == last_registered(bench.store, "bank")


def test_of_many_at_once_each_gets_a_turn_of_its_own(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    first = committed(bench, 1)[0]
    rivals = [first.model_copy(update={"run": f"{first.run}-r{number}"}) for number in range(2, 12)]

    with ThreadPoolExecutor(5) as threads:
        list(threads.map(lambda rival: register_run(bench.store, "bank", rival), rivals))

    assert {first.run, *(rival.run for rival in rivals)} == {
        link.run for link in registered_runs(bench.store, "bank")
    }


def test_something_else_under_a_links_key_is_told_and_not_taken_for_one(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    committed(bench, 1)
    bench.store.create(f"{commits('bank')}000002.json", b"{}")

    with pytest.raises(ConflictError, match="000002"):
        list(registered_runs(bench.store, "bank"))

    assert not bench.store.create(f"{commits('bank')}000002.json", b"")
