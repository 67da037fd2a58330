"""Nights that die, come late or overtake each other, of an issuer that repeats everybody: no card
goes out twice.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from flows.runs.commits import OvertakenError, read_last_turn
from flows.runs.store import StoreBusyError
from flows.submissions.publisher import PartialRunError
from schemas.portal import ADDRESS1, FIRST_NAME
from schemas.reasons import AWAITED, STANDING
from tests.extensions.partner_api.town import town
from tests.night import Bench
from tests.storms import FailingStore


def test_a_plan_that_died_before_its_commit_is_made_anew_once_results_came(tmp_path: Path) -> None:
    place = town(tmp_path)
    place.settle("a", "b")
    place.bench.submit(place.drop())
    place.day += timedelta(days=1)
    place.people["a"] |= {FIRST_NAME: "Augusta"}  # awaiting still, so it is held back
    place.settle("c")
    extract = place.drop()
    with pytest.raises(PartialRunError):
        dying(place.bench, "create", ".csv.pgp").submit(extract)
    place.answer()

    done = place.bench.submit(extract)

    assert done.manifest.run.endswith("-r2")
    assert {"a", "c"} == place.sent(done)


def test_a_rerun_without_news_goes_on_with_the_same_plan(tmp_path: Path) -> None:
    place = town(tmp_path, "a")
    place.settle("b")
    place.day += timedelta(days=1)
    extract = place.drop()
    with pytest.raises(PartialRunError):
        dying(place.bench, "create", ".csv.pgp").submit(extract)

    done = place.bench.submit(extract)

    assert not done.manifest.run.endswith("-r2")
    assert {"b"} == place.sent(done)


def test_of_two_nights_at_once_the_second_is_told_and_then_leaves_out_what_the_first_sent(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, "a")
    place.settle("b")
    first = place.drop("bank-20261121.csv")
    place.settle("c")
    second = place.drop("bank-20261122.csv")
    overtaking = overtaken(place.bench, lambda: place.bench.submit(first))

    with pytest.raises(OvertakenError, match="has 1 of its cards"):
        overtaking.submit(second)
    done = place.bench.submit(second)

    assert ({"c"}, AWAITED) == (place.sent(done), place.held_back(done)["b"])


@pytest.mark.slow
def test_two_nights_at_once_that_share_no_card_both_stand(tmp_path: Path) -> None:
    place = town(tmp_path, "a")
    place.settle("b")
    first = place.drop("bank-20261121.csv")
    del place.people["b"]
    place.settle("c")
    second = place.drop("bank-20261122.csv")

    done = overtaken(place.bench, lambda: place.bench.submit(first)).submit(second)

    assert {"c"} == place.sent(done)
    assert 3 == read_last_turn(place.bench.adapters, "bank")


@pytest.mark.slow
def test_a_night_that_comes_late_sends_its_newcomers_and_no_outdated_change(tmp_path: Path) -> None:
    place = town(tmp_path, "a")
    place.people["a"] |= {ADDRESS1: "2 Main St"}
    late = place.drop("bank-20261121.csv")
    place.people["a"] |= {ADDRESS1: "1 Main St"}
    place.settle("b")
    place.night(2)
    place.answer()

    done = place.bench.submit(late)

    assert (set(), {"a": STANDING}) == (place.sent(done), place.held_back(done))


@pytest.mark.slow
def test_an_extract_that_is_committed_is_not_planned_again_when_more_is_known(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, "a")
    place.settle("b")
    place.day += timedelta(days=1)
    extract = place.drop()
    done = place.bench.submit(extract)
    place.answer()

    again = place.bench.submit(extract)

    assert (True, done.manifest.run) == (again.already, again.manifest.run)


def dying(bench: Bench, operation: str, ending: str) -> Bench:
    """Return the bench with a store that fails at keys of that ending."""
    trouble = StoreBusyError(place="x", code="503")
    store = FailingStore(
        bench.store,
        lambda does, key: trouble if does == operation and key.endswith(ending) else None,
    )
    return replace(bench, store=store)


def overtaken(bench: Bench, meanwhile: Any) -> Bench:
    """Return the bench whose run is overtaken: `meanwhile` happens, once, when its pass is over."""
    waiting = [meanwhile]

    def trouble(operation: str, key: str) -> None:
        if operation == "create" and "/ledger/" in key and waiting:
            waiting.pop()()

    return replace(bench, store=FailingStore(bench.store, trouble))
