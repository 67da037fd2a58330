"""Four of the twenty nights, and the oracle's own controls: it must find what is planted."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lives.findings import Findings
from tests.lives.life import Life
from tests.lives.oracle import lived, recount
from tests.lives.place import Place
from tests.lives.profile import PROFILES, Plan

pytestmark = pytest.mark.slow  # a life takes its time in any size
TWENTY = PROFILES["twenty"]
SMALL = Plan(nights=4, rows=8, per_chunk=4)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    with lived(Place(tmp_path_factory.mktemp("twenty"), SMALL), TWENTY) as life:
        yield life


@pytest.fixture(scope="module")
def findings(life: Life) -> Findings:
    return recount(life)


def test_nobody_is_without_a_link_or_a_reason(findings: Findings) -> None:
    assert [] == findings.forgotten
    assert [] == findings.hopeful


def test_no_card_is_sent_again_without_an_error_an_end_or_a_decision(
    life: Life, findings: Findings
) -> None:
    assert [] == findings.twice
    assert life.operator.closed


def test_the_living_links_are_delivered_each_once_and_no_other(findings: Findings) -> None:
    assert [] == findings.misdelivered
    assert [] == findings.doubled


def test_every_break_is_closed_by_the_commands_of_the_worklist_alone(
    life: Life, findings: Findings
) -> None:
    assert [] == findings.open
    assert [] == findings.stuck
    assert [] == findings.odd
    assert life.operator.given["mend close"] > 0
    assert life.operator.given["resubmit"] > 0


def test_the_portal_answered_in_many_ways(life: Life) -> None:
    ways = {way for bank in life.banks for way, times in bank.portal.did.items() if times}

    assert len(ways) > 10


def test_the_oracle_finds_a_card_sent_again_without_a_decision(life: Life) -> None:
    operator = replace(life.operator, closed=[])

    assert recount(replace(life, operator=operator)).twice


def test_the_oracle_finds_a_cardholder_who_got_nothing(life: Life) -> None:
    north = _north(life)
    _, row = north.banks[0].delivered.popitem()

    assert f"north: {row['cuid']}" in recount(north).forgotten


def test_the_oracle_finds_a_link_that_went_to_somebody_else(life: Life) -> None:
    north = _north(life)
    (one, first), (other, second) = list(north.banks[0].delivered.items())[:2]
    north.banks[0].delivered |= {one: second, other: first}

    assert len(recount(north).misdelivered) == 2


def test_the_oracle_finds_a_link_that_does_not_count_and_one_too_many(life: Life) -> None:
    north = _north(life)
    (one, first), (other, _) = list(north.banks[0].delivered.items())[:2]
    north.banks[0].portal.void.add(other)
    extra = north.banks[0].portal.linked(north.banks[0].portal.links[one])
    north.banks[0].delivered[extra.url] = first

    recounted = recount(north)

    assert len(recounted.misdelivered) == len(recounted.doubled) == 1


def test_the_oracle_finds_a_break_that_is_left(life: Life) -> None:
    north = _north(life)
    north.banks[0].left.append(
        {"kind": "break RESULT_SHORT", "run": "north-1", "command": "cardlink mend close"}
    )

    assert ["north: break RESULT_SHORT, north-1, cardlink mend close"] == recount(north).open


def _north(life: Life) -> Life:
    """Return the life of one issuer, of which what was delivered and booked may be changed."""
    bank = life.banks[0]
    portal = replace(bank.portal, void=set(bank.portal.void), links=dict(bank.portal.links))
    delivered = deepcopy(bank.delivered)
    north = replace(bank, portal=portal, delivered=delivered, left=[*bank.left])
    return replace(life, banks=[north])


@pytest.mark.parametrize("seed", range(2, 6))
def test_other_nights_end_as_well(tmp_path: Path, seed: int) -> None:
    with lived(Place(tmp_path, SMALL._replace(nights=8, rows=30, seed=seed)), TWENTY) as other:
        assert {} == recount(other).wrong
