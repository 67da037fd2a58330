"""One link for one cardholder is requested once: whoever has one, or may have one, is refused, and
held back at night.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.errors import CardlinkError
from flows.extensions.partner_api.link_requests import SingleUnderWayError, Terms
from flows.extensions.partner_api.linking import link_row, link_typed
from flows.extensions.partner_api.run_links import CardTakenError
from flows.extensions.partner_api.service import (
    AnswerLostError,
    ServiceBusyError,
    StrangeAnswerError,
)
from flows.extensions.partner_api.service_objects import CardLink, Refusal
from flows.runs.single_links import row_attempt
from schemas.portal import CUID, PAN, PHONE
from tests.builders import portal_rows
from tests.extensions.partner_api.linker import (
    PANS,
    REACHED,
    SERVICE,
    TYPED,
    URL,
    Linker,
    answered,
    left_over,
    night,
)
from tests.night import Bench, local_bench, portal_csv
from tests.singles import recorded


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return local_bench(tmp_path, service=SERVICE)


def test_a_row_that_has_a_link_is_refused_unless_somebody_says_why(bench: Bench) -> None:
    run, linker = left_over(bench), Linker()

    with pytest.raises(CardTakenError, match=r"row 1 of .* has a link"):
        link_row(bench.context, linker, run, 1)
    single = link_row(
        bench.context, linker, run, 1, terms=Terms("the first one was sent to an old address")
    )

    assert len(linker.asked) == 1
    assert single.asked.override == "the first one was sent to an old address"


def test_a_row_that_waits_for_its_answer_is_refused(bench: Bench) -> None:
    run = night(bench, {})

    with pytest.raises(CardTakenError, match="sent and not answered"):
        link_row(bench.context, Linker(), run, 1)


def test_a_card_that_a_later_run_linked_is_refused(bench: Bench) -> None:
    run = left_over(bench)
    later = portal_csv(portal_rows({**REACHED, CUID: "c-2", PAN: PANS[1]}))
    again = bench.submit(bench.drop_bytes(later, "bank-20261121.csv")).manifest.run
    answered(bench, again, f"c-2,1111,{URL}/2,2027-01-20,")

    with pytest.raises(CardTakenError, match=again):
        link_row(bench.context, Linker(), run, 2)


def test_a_second_link_is_not_asked_for_by_mistake(bench: Bench) -> None:
    run, linker = left_over(bench), Linker()
    link_row(bench.context, linker, run, 2)

    with pytest.raises(CardTakenError, match="has a link"):
        link_row(bench.context, linker, run, 2)

    assert len(linker.asked) == 1


def test_a_lost_answer_leaves_the_attempt_unknown_and_is_never_repeated(bench: Bench) -> None:
    run, lost = (
        left_over(bench),
        Linker(
            AnswerLostError(place="POST /card_links", kind="ReadTimeout", advice="Ask the partner.")
        ),
    )

    with pytest.raises(AnswerLostError):
        link_row(bench.context, lost, run, 2)
    with pytest.raises(CardTakenError, match="has no answer"):
        link_row(bench.context, lost, run, 2)

    assert [one.state for one in bench.stored(run).single_link_attempts] == ["unknown"]
    assert len(lost.asked) == 1


def test_a_link_without_a_url_stays_unknown(bench: Bench) -> None:
    run, odd = (
        left_over(bench),
        Linker(CardLink.model_validate({"id": "abc", "cardholder_long_token": "t"})),
    )

    with pytest.raises(StrangeAnswerError, match="link_url"):
        link_row(bench.context, odd, run, 2)

    assert [one.state for one in bench.stored(run).single_link_attempts] == ["unknown"]


def test_a_refusal_is_recorded_with_codes_and_the_row_may_be_tried_again(bench: Bench) -> None:
    run = left_over(bench)

    refused = link_row(
        bench.context,
        Linker(Refusal("address.city.format, card.pan.exists", "no such city")),
        run,
        2,
    )
    linked = link_row(bench.context, Linker(), run, 2)

    assert refused.answered is not None
    assert (refused.state, refused.answered.message) == ("refused", "no such city")
    assert refused.answered.reasons == ("address.city.format", "card.pan.exists")
    assert [one.state for one in bench.stored(run).single_link_attempts] == [
        "refused",
        "linked",
    ]
    assert linked.id == f"{run}/000000002-2"


def test_a_service_that_did_not_take_the_request_leaves_the_row_free(bench: Bench) -> None:
    run = left_over(bench)

    with pytest.raises(ServiceBusyError):
        link_row(
            bench.context,
            Linker(ServiceBusyError(place="POST /card_links", kind="HTTP 429")),
            run,
            2,
        )
    single = link_row(bench.context, Linker(), run, 2)

    assert [one.state for one in bench.stored(run).single_link_attempts] == [
        "unsent",
        "linked",
    ]
    assert single.state == "linked"


def test_whoever_asks_while_another_waits_for_the_answer_is_refused(bench: Bench) -> None:
    run, first, second = left_over(bench), Linker(), Linker()
    refused: list[CardlinkError] = []

    def meanwhile() -> None:
        with pytest.raises(CardTakenError) as told:
            link_row(bench.context, second, run, 2)
        refused.append(told.value)

    first.before = meanwhile
    link_row(bench.context, first, run, 2)

    assert "under way" in str(refused[0])
    assert second.asked == []


def test_of_two_who_begin_at_once_one_asks(bench: Bench) -> None:
    run, first, second = night(bench, {PHONE: None}), Linker(), Linker()

    def meanwhile(_: str) -> str:
        link_row(
            bench.context,
            second,
            run,
            1,
            terms=Terms("for a test"),
            supply=lambda column: "6175550199",
        )
        return "6175550199"

    with pytest.raises(SingleUnderWayError):
        link_row(bench.context, first, run, 1, terms=Terms("for a test"), supply=meanwhile)

    assert (len(first.asked), len(second.asked)) == (0, 1)


def test_a_taken_record_is_not_written_over(bench: Bench) -> None:
    run, linker = left_over(bench), Linker()
    asked = link_row(bench.context, Linker(Refusal("a", "no")), run, 2).asked
    recorded(bench.adapters, row_attempt(run, 2, 2), asked)

    with pytest.raises(CardlinkError):
        link_row(bench.context, linker, run, 2)

    assert linker.asked == []


def test_a_typed_card_that_has_a_link_is_refused(bench: Bench) -> None:
    left_over(bench)

    with pytest.raises(CardTakenError):
        link_typed(bench.context, Linker(), TYPED)


def everybody(tmp_path: Path, card: dict[str, str | None]) -> Bench:
    """Return an issuer that repeats everybody, whose extract holds this card and another."""
    bench = local_bench(tmp_path, service=SERVICE, full_portfolio=True)
    bench.drop_bytes(
        portal_csv(portal_rows({**REACHED, **card}, {**REACHED, CUID: "other", PAN: PANS[1]}))
    )
    return bench


def held_back(bench: Bench) -> list[tuple[str, list[str]]]:
    """Return who is left out of the night, and why."""
    found = bench.ledger(bench.submit("bank-20261120.csv").manifest.run).filter(fate="suppressed")
    return list(found.select("cuid", "reasons").iter_rows())


def test_a_card_that_was_linked_by_hand_is_held_back_in_the_night_that_repeats_everybody(
    tmp_path: Path,
) -> None:
    bench = everybody(tmp_path, {CUID: "by-hand"})
    link_typed(bench.context, Linker(), {**TYPED, CUID: "by-hand"})

    left_out = held_back(bench)

    assert [("by-hand", ["|card.link.standing"])] == left_out


def test_a_card_of_whose_single_link_nobody_knows_the_end_is_held_back_as_awaited(
    tmp_path: Path,
) -> None:
    bench = everybody(tmp_path, {CUID: "by-hand"})
    with pytest.raises(AnswerLostError):
        link_typed(
            bench.context,
            Linker(AnswerLostError(place="POST /card_links", kind="ReadTimeout", advice="Ask.")),
            {**TYPED, CUID: "by-hand"},
        )

    left_out = held_back(bench)

    assert [("by-hand", ["|card.link.awaiting"])] == left_out
