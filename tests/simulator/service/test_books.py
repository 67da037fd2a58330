"""The books by themselves: one clock, events in their order, and nothing that shows a card."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.extensions.simulator.service.books import Habits, ServiceState
from flows.extensions.simulator.service.links import Links
from flows.extensions.simulator.service.people_at_links import Shares, let_cardholders_act
from flows.extensions.simulator.service.recount import recount
from tests.service import NOON
from tests.simulator.uploads import PaperOpener, people, upload_csv


def started() -> ServiceState:
    books = ServiceState(PaperOpener(), NOON)
    books.upload("night.csv", upload_csv(people(7)))
    let_cardholders_act(books, lambda *_: 0.5, shares=Shares(open=1, second=1), until_ended=False)
    for job in books.jobs.values():
        if job.request:
            answers = {field.key_name: "known" for field in job.request.ask.fields}
            books.answer(job.id, job.request.envelope_id, answers)
    return books


@given(st.lists(st.integers(0, 200), max_size=12))
def test_many_small_steps_of_the_clock_do_what_one_long_one_does(steps: list[int]) -> None:
    one, many = started(), started()

    for step in steps:
        many.advance(many.now + timedelta(seconds=step))
    one.advance(NOON + timedelta(seconds=sum(steps)))

    assert one.now == many.now
    assert recount(one) == recount(many)
    assert [one.messages(job) for job in one.jobs] == [many.messages(job) for job in many.jobs]


def test_the_clock_never_goes_back() -> None:
    books = started()
    books.advance(NOON + timedelta(seconds=30))

    books.advance(NOON)

    assert NOON + timedelta(seconds=30) == books.now


def test_nothing_of_the_books_shows_a_card_or_what_it_is_known_by() -> None:
    books = started()

    shown = repr(
        [books.links.cards, books.links.cardholders, books.links.links, books.jobs, recount(books)]
    )

    hashes = {card.known["CVV"] for card in books.links.cards.values()}
    assert {44} == {len(one) for one in hashes}
    assert [] == [one for one in hashes if one in shown]
    assert [] == [row for row in people(7) if row["service_card.pan"] in shown]


@pytest.mark.parametrize("challenges", [(), ("Mother's name",)])
def test_challenges_nobody_knows_are_refused(challenges: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="CVV, ZIP Code"):
        Links(Habits(challenges=challenges).challenges)
