"""Four of the twenty nights, and the oracle's own controls: it must find what is planted."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lives.findings import Findings
from tests.lives.place import Place, Plan
from tests.lives.twenty import Story, lived
from tests.lives.twenty_recount import recount

pytestmark = pytest.mark.slow  # a life takes its time in any size
SMALL = Plan(nights=4, rows=8, per_chunk=4)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with lived(Place(tmp_path_factory.mktemp("twenty"), SMALL)) as done:
        yield done


@pytest.fixture(scope="module")
def findings(story: Story) -> Findings:
    return recount(story)


def test_nobody_is_without_a_link_or_a_reason(findings: Findings) -> None:
    assert [] == findings.forgotten
    assert [] == findings.hopeful


def test_no_card_is_sent_again_without_an_error_an_end_or_a_decision(
    story: Story, findings: Findings
) -> None:
    assert [] == findings.twice
    assert story.operator.closed


def test_the_living_links_are_delivered_each_once_and_no_other(findings: Findings) -> None:
    assert [] == findings.misdelivered
    assert [] == findings.doubled


def test_every_break_is_closed_by_the_commands_of_the_worklist_alone(
    story: Story, findings: Findings
) -> None:
    assert [] == findings.open
    assert [] == findings.stuck
    assert [] == findings.odd
    assert story.operator.given["mend close"] > 0
    assert story.operator.given["resubmit"] > 0


def test_the_portal_answered_in_many_ways(story: Story) -> None:
    ways = {way for bank in story.banks for way, times in bank.portal.did.items() if times}

    assert len(ways) > 10


def test_the_oracle_finds_a_card_sent_again_without_a_decision(story: Story) -> None:
    operator = replace(story.operator, closed=[])

    assert recount(replace(story, operator=operator)).twice


def test_the_oracle_finds_a_cardholder_who_got_nothing(story: Story) -> None:
    north = _north(story)
    _, row = north.banks[0].delivered.popitem()

    assert f"north: {row['cuid']}" in recount(north).forgotten


def test_the_oracle_finds_a_link_that_went_to_somebody_else(story: Story) -> None:
    north = _north(story)
    (one, first), (other, second) = list(north.banks[0].delivered.items())[:2]
    north.banks[0].delivered |= {one: second, other: first}

    assert len(recount(north).misdelivered) == 2


def test_the_oracle_finds_a_link_that_does_not_count_and_one_too_many(story: Story) -> None:
    north = _north(story)
    (one, first), (other, _) = list(north.banks[0].delivered.items())[:2]
    north.banks[0].portal.void.add(other)
    extra = north.banks[0].portal.linked(north.banks[0].portal.links[one])
    north.banks[0].delivered[extra.url] = first

    recounted = recount(north)

    assert len(recounted.misdelivered) == len(recounted.doubled) == 1


def test_the_oracle_finds_a_break_that_is_left(story: Story) -> None:
    north = _north(story)
    north.banks[0].left.append(
        {"kind": "break RESULT_SHORT", "run": "north-1", "command": "cardlink mend close"}
    )

    assert ["north: break RESULT_SHORT, north-1, cardlink mend close"] == recount(north).open


def _north(story: Story) -> Story:
    """Return the story of one issuer, of which what was delivered and booked may be changed."""
    bank = story.banks[0]
    portal = replace(bank.portal, void=set(bank.portal.void), links=dict(bank.portal.links))
    delivered = deepcopy(bank.delivered)
    north = replace(bank, portal=portal, delivered=delivered, left=[*bank.left])
    return replace(story, banks=[north])


@pytest.mark.parametrize("seed", range(2, 6))
def test_other_nights_end_as_well(tmp_path: Path, seed: int) -> None:
    with lived(Place(tmp_path, SMALL._replace(nights=8, rows=30, seed=seed))) as other:
        assert {} == recount(other).wrong
