"""A hundred days in a small size: every day the book says of every card what the oracle says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.lives.census import Census
from tests.lives.findings import Findings
from tests.lives.life import Life
from tests.lives.oracle import lived, recount
from tests.lives.place import Place
from tests.lives.profile import PROFILES, Event, Plan

HUNDRED = PROFILES["hundred"]
MIXED = tuple(feed._replace(unwanted=0.3) for feed in HUNDRED.feeds)
FEW = Plan(nights=2, rows=6, per_chunk=1000, deaths=0.2)
MANY = Plan(nights=25, rows=20, per_chunk=10, stride=4, deaths=0.1)
SOON = (Event("back_up", 1, is_late=True), Event("restore", 1), Event("hold", 1))


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    place = Place(tmp_path_factory.mktemp("hundred"), FEW)
    profile = HUNDRED._replace(feeds=MIXED, events=SOON, settling=2, once_more=1)
    with lived(place, profile) as life:
        yield life


@pytest.fixture(scope="module")
def findings(life: Life) -> Findings:
    return recount(life)


def test_every_day_the_book_says_of_every_card_where_it_is(findings: Findings) -> None:
    assert [] == findings.misplaced


def test_a_store_that_was_put_back_sends_nothing_twice(findings: Findings) -> None:
    assert findings.figures["stores restored"] >= 2
    assert [] == findings.twice
    assert [] == findings.lost


def test_the_oracle_finds_a_card_that_vanished_and_one_that_stands_elsewhere(life: Life) -> None:
    bank = replace(life.banks[0], census=Census())
    answered = bank.portal.plain
    others = (
        {place: moment for place, moment in answered.items() if place != forgotten}
        for forgotten in answered
    )
    elsewhere = [replace(bank, portal=replace(bank.portal, plain=plain)) for plain in others]

    assert [] == [*bank.census.differing(life, bank)]
    assert 1 == max(len([*Census().differing(life, other)]) for other in elsewhere)
    bank.census.rows[0].append(bank.census.rows[0][0]._replace(cuid="nobody"))
    [vanished] = bank.census.differing(life, bank)
    assert "nobody" in vanished
    assert "vanished" in vanished


def test_the_oracle_finds_a_link_that_counts_as_delivered_and_is_not(life: Life) -> None:
    bank = replace(life.banks[0], census=Census(), delivered={})

    [first, *_] = bank.census.differing(life, bank)

    assert first.endswith("delivered, where it is linked")


def test_the_oracle_finds_a_card_that_is_not_eligible_and_does_not_count_as_that(
    life: Life,
) -> None:
    bank = replace(life.banks[0], census=Census())
    assert [] == [*bank.census.differing(life, bank)]
    [first, *_] = [row for row in bank.census.rows[0] if not row.eligible]

    at = bank.census.rows[0].index(first)
    bank.census.rows[0][at] = first._replace(eligible=True)

    [finding] = bank.census.differing(life, bank)
    assert finding.endswith("not eligible, where it is not sent")


@pytest.mark.slow
def test_a_hundred_days_end_with_nothing_to_do_and_nobody_vanished(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with lived(Place(tmp_path_factory.mktemp("days"), MANY), HUNDRED) as days:
        assert {} == recount(days).wrong
