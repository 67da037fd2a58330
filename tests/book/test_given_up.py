"""A card that is given up: nobody waits for it, it is not sent, and its link is withdrawn, until it is
taken up again.
"""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from flows.book.book import read_book
from flows.book.given_up import given_up_cards
from flows.book.people import balance
from flows.extensions.deliveries.delivered import delivery_folder
from flows.extensions.deliveries.delivery import deliver
from flows.extensions.deliveries.receivers import confirm
from flows.operations.giving_up import Decided, NoCardsNamedError, Which, give_up
from flows.reports.cardholder_trace import CardGivenError
from flows.reports.survey import survey
from flows.reports.unlinked import unlinked
from flows.resend.renewal import renewals
from flows.resend.resubmission import Request, StandingRowsError, plan_resubmit
from flows.resend.selection import GIVEN_UP, RowSelection
from flows.runs.decisions import CARDS, decide
from flows.runs.errors import NoSuchRowError, NotFoundError
from flows.runs.journal import Act, enter
from flows.runs.persons import by_person
from schemas.expressions import PUBLISHED
from schemas.portal import ADDRESS1, CITY, PAN
from schemas.records import GivingUp, NamedCard
from tests.builders import quick
from tests.extensions.partner_api.town import Population, town
from tests.memory import MemoryStore
from tests.night import NOON, edges

WHY = "the account is closed"


def stands(place: Population) -> dict[str, str]:
    """Return where each cardholder stands."""
    cards = read_book(place.bench.context.adapters, "bank").cards(place.day)
    return dict(cards.filter("current").select("cuid", "standing").iter_rows())


def given_up(place: Population, *cuids: str, undo: bool = False) -> Decided:
    """Give cardholders up, or take them up again."""
    return give_up(place.bench.context, Which(cuids=frozenset(cuids)), WHY, undo=undo)


def delta(tmp_path: Path, *cuids: str, errors: tuple[str, ...] = ()) -> Population:
    """Return an issuer that sends deltas, after a first night that is answered."""
    place = town(tmp_path, settings={"full_portfolio": False})
    place.settle(*cuids)
    place.night()
    place.answer(errors=errors)
    return place


def links(place: Population, number: int) -> list[tuple[str, str, str]]:
    """Return the changes of a delivery, by cuid."""
    rows = deliveries(place, number)
    return [(row["cuid"], row["change"], row["why"]) for row in rows]


def deliveries(place: Population, number: int) -> list[dict[str, str]]:
    """Deliver and confirm; return the rows of links.csv."""
    assert number == deliver(place.bench.context).number
    confirm(place.bench.context, number, "receipt")
    content = place.bench.content(delivery_folder("bank", number) + "links.csv").decode("utf-8-sig")
    return list(csv.DictReader(StringIO(content)))


def test_a_refused_card_that_is_given_up_is_nobodys_work_until_it_is_taken_up(
    tmp_path: Path,
) -> None:
    place = delta(tmp_path, "a", "b", errors=("b",))
    before = balance(read_book(place.bench.context.adapters, "bank").cards(place.day))

    decided = given_up(place, "b")
    book = read_book(place.bench.context.adapters, "bank")
    after = balance(book.cards(place.day))
    work = [work.kind for work in survey(place.bench.context).work]
    taken_up = given_up(place, "b", undo=True)

    assert ({"refused": 1}, {"refused": 1}) == (decided.standing, taken_up.standing)
    assert (False, True, 1) == (before.is_done, after.is_done, after.people["given up"])
    assert ([], 0) == (work, unlinked(book.cards(place.day)).height)
    assert {"a": "linked", "b": "refused"} == stands(place)


@pytest.mark.parametrize(
    "settings",
    quick(
        1,
        [
            {"full_portfolio": False},
            {"full_portfolio": True},
            {"full_portfolio": False, "resend": {"seen_before": "send"}},
        ],
    ),
)
def test_a_card_that_is_given_up_and_comes_again_is_suppressed_for_that_until_it_is_taken_up(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    place = town(tmp_path, settings=settings)
    place.settle("a", "b")
    place.night()
    place.answer(errors=("b",))
    given_up(place, "b")
    place.people["b"] |= {ADDRESS1: "9 New St"}
    place.settle("c")

    held = place.night()
    given_up(place, "b", undo=True)
    place.people["b"] |= {ADDRESS1: "10 New St"}
    sent = place.night()

    assert "card.given.up" == place.held_back(held)["b"]
    assert "b" in place.sent(sent)


@pytest.mark.slow
def test_an_answer_that_comes_later_is_recorded_and_its_link_is_not_delivered(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, settings={"full_portfolio": False})
    place.settle("a", "b")
    run = place.night().manifest.run

    decided = given_up(place, "b")
    place.answer()
    changes = links(place, 1)
    report = place.bench.stored(run).summary

    assert {"to upload": 1} == decided.standing
    assert {"a": "delivered", "b": "given up"} == stands(place)
    assert [("a", "new", "no other link")] == changes
    assert report is not None
    assert 2 == report["rows"]["linked"]


@pytest.mark.slow
def test_a_living_link_is_withdrawn_and_delivered_again_once_the_card_is_taken_up(
    tmp_path: Path,
) -> None:
    place = delta(tmp_path, "a", "b")
    links(place, 1)

    given_up(place, "b")
    withdrawn = links(place, 2)
    given_up(place, "b", undo=True)
    again = links(place, 3)

    assert [("b", "withdrawn", "given up")] == withdrawn
    assert [("b", "new", "no other link")] == again


@pytest.mark.slow
def test_a_resubmission_leaves_out_who_is_given_up_and_refuses_rows_that_it_names(
    tmp_path: Path,
) -> None:
    place = delta(tmp_path, "a", "b", "c", errors=("b", "c"))
    run = next(place.bench.runs.manifests()).run
    give_up(place.bench.context, Which(run, rows=frozenset({2})), WHY)
    by_errors = Request(run, RowSelection(errors=True), "once more")
    by_number = Request(run, RowSelection(rows=frozenset({2})), "once more")

    planned = plan_resubmit(place.bench.context, by_errors)
    override = plan_resubmit(place.bench.context, by_number._replace(override="they want it"))

    assert ({GIVEN_UP: 1}, [3]) == (planned.left, planned.outgoing["origin"].to_list())
    assert [2] == override.outgoing["origin"].to_list()
    with pytest.raises(StandingRowsError):
        plan_resubmit(place.bench.context, by_number)


@pytest.mark.slow
def test_a_link_that_ended_is_not_renewed_where_its_card_is_given_up(tmp_path: Path) -> None:
    place = delta(tmp_path, "a", "b")
    place.day += timedelta(days=90)
    place.bench.now = lambda: datetime(place.day.year, place.day.month, place.day.day, tzinfo=UTC)
    before = renewals(place.bench.context, 7).due

    given_up(place, "b")

    assert (2, 1) == (before, renewals(place.bench.context, 7).due)


@pytest.mark.slow
def test_the_cards_of_a_reason_are_given_up_in_one_decision_over_all_runs_or_those_of_some(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, settings={"full_portfolio": False})
    manifests = []
    for night in range(2):
        place.people = {}
        place.settle(f"a{night}", f"b{night}", f"c{night}")
        place.people[f"c{night}"] |= {CITY: None}
        manifests.append(place.night().manifest)
        place.answer(errors=[f"b{night}"])
    lacking = unlinked(read_book(place.bench.context.adapters, "bank").cards(place.day))
    [code] = lacking.filter(stage="partner")["reason"].unique()

    of_one = give_up(place.bench.context, Which(manifests[0].run, codes=frozenset({code})), WHY)
    first = stands(place)
    old = Which(codes=frozenset({code}), before=manifests[1].as_of)
    of_old = give_up(place.bench.context, old, WHY)
    of_all = give_up(place.bench.context, Which(codes=frozenset({code})), WHY)
    repeated = give_up(place.bench.context, Which(codes=frozenset({code})), WHY)

    assert ("given up", "refused") == (first["b0"], first["b1"])
    assert ({"refused": 1}, {"refused": 1}) == (of_one.standing, of_all.standing)
    assert (None, {}) == repeated == of_old
    assert ["not sent", "not sent"] == [stands(place)[f"c{night}"] for night in range(2)]


@pytest.mark.slow
def test_a_row_whose_number_cannot_be_read_is_given_up_as_all_cards_of_its_cardholder(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, settings={"full_portfolio": False, "limits": {"max_reject_rate": 1.0}})
    place.settle("a", "b")
    place.people["b"] |= {PAN: "unreadable"}
    run = place.night().manifest.run
    give_up(place.bench.context, Which(run, rows=frozenset({2})), WHY)
    place.people["b"].pop(PAN)

    held = place.night()
    given_up(place, "b", undo=True)

    assert "card.given.up" == place.held_back(held)["b"]
    assert "not sent" == stands(place)["b"]


@pytest.mark.slow
def test_what_is_not_there_or_not_named_is_not_given_up(tmp_path: Path) -> None:
    place = delta(tmp_path, "a")
    run = next(place.bench.runs.manifests()).run
    context = place.bench.context

    for which, error in (
        (Which(), NoCardsNamedError),
        (Which(rows=frozenset({1})), NoCardsNamedError),
        (Which(cuids=frozenset({"a"}), before=place.day), NoCardsNamedError),
        (Which(run, rows=frozenset({7})), NoSuchRowError),
        (Which(cuids=frozenset({"nobody"})), NotFoundError),
        (Which(codes=frozenset({"address.city"})), NotFoundError),
        (Which(cuids=frozenset({PUBLISHED[0]})), CardGivenError),
    ):
        with pytest.raises(error):
            give_up(context, which, WHY)
    with pytest.raises(NotFoundError):
        given_up(place, "a", undo=True)


def test_cards_are_listed_in_the_order_in_which_they_were_given_up() -> None:
    cuids = [f"c{at * 37 % 100}" for at in range(100)]
    adapters = edges(MemoryStore())

    def work(act: Act) -> int:
        cards = by_person(adapters, act, [NamedCard(cuid, "1111") for cuid in cuids])
        decision = GivingUp(at=NOON, by="anna", reason=WHY, what="given up", cards=cards)
        return decide(act, CARDS, "", decision)

    enter(adapters, "bank", "", work)

    assert cuids == given_up_cards(adapters, "bank")["holder"].to_list()
