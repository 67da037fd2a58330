"""Who would leave and come by an extract is told and a gate, before anything is committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.extracts.errors import EmptyExtractError
from flows.submissions.gates import LeaversError, NewcomersError
from flows.submissions.rehearsal import rehearse
from flows.submissions.submit import Request
from schemas.portal import CUID, FIRST_NAME, NICKNAME, PAN
from tests.extensions.partner_api.town import Population, town

BOTH = ("leavers", "newcomers")
HALF = [f"c-{number:02}" for number in range(15)]
ALL = [f"c-{number:02}" for number in range(30)]
DELETES = {"status": {NICKNAME: {"send": [""], "delete": ["D"]}}}


def rename(place: Population, prefix: str) -> None:
    """Put a prefix before all cuids: the cards are the same."""
    place.people = {
        prefix + cuid: {**person, CUID: prefix + cuid} for cuid, person in place.people.items()
    }


def test_a_portfolio_under_new_cuids_is_refused_and_says_that_the_cards_are_the_same(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, *ALL)
    rename(place, "N-")

    with pytest.raises(LeaversError) as refused:
        place.night()

    sentence = str(refused.value.sentence)
    assert "30 of 30 known cards would leave, of which 30 have a link" in sentence
    assert "(cuids c-00, c-01, c-02 and 27 more), and 30 cards come for the first time" in sentence
    assert "; 30 of both have one name and last four digits under two cuids" in sentence
    assert "submit with --open leavers: 30 cards leave, 30 links are to be withdrawn" in sentence


def test_an_opened_gate_says_what_will_happen_in_a_dry_run_and_in_the_submit(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, *ALL)
    for cuid in HALF:
        del place.people[cuid]
    place.day = place.day.replace(day=21)
    name = place.drop()

    checked = rehearse(place.bench.context, Request(name, opened=BOTH))
    done = place.bench.submit(name, opened=BOTH)

    remark = (
        f"bank/extracts/{name}: 15 of 30 known cards leave (c-00, c-01, c-02 and 12 more); 15 of "
        "them have a link, which the next deliveries withdraw; withdrawals above max_withdrawn wait "
        "for a decision"
    )
    assert (remark,) == checked.remarks == done.remarks


def test_half_of_a_portfolio_leaves_in_its_second_night_only_through_the_gate(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, *ALL, *(f"d-{number:02}" for number in range(30)))
    for cuid in ALL:
        del place.people[cuid]

    with pytest.raises(LeaversError, match="30 of 60 known cards would leave"):
        place.night()


def test_a_few_who_leave_or_come_are_told_and_pass(tmp_path: Path) -> None:
    place = town(tmp_path, *ALL)
    del place.people["c-00"]
    place.settle("e-1", "e-2")

    done = place.night()

    assert ["1 of 30 known cards leave (c-00)"] == [
        remark.partition(": ")[2].partition(";")[0] for remark in done.remarks
    ]


def test_a_portfolio_of_which_most_are_new_is_refused(tmp_path: Path) -> None:
    place = town(tmp_path, *HALF)
    place.settle(*(f"e-{number:02}" for number in range(60)))

    with pytest.raises(NewcomersError, match=r"60 of its cards come for the first time .* 15 were"):
        place.bench.submit(place.drop("bank-20261121.csv"))


def test_nobody_leaves_an_issuer_whose_extracts_are_deltas(tmp_path: Path) -> None:
    place = town(tmp_path, *ALL, settings={"full_portfolio": False})
    place.people = {}
    place.settle(*HALF, *(f"e-{number:02}" for number in range(60)))

    done = place.night()

    assert () == done.remarks


@pytest.mark.parametrize("full_portfolio", [True, False])
def test_deletions_of_half_of_the_cards_are_leavers(
    tmp_path: Path, *, full_portfolio: bool
) -> None:
    place = town(tmp_path, *ALL, settings={"full_portfolio": full_portfolio, **DELETES})
    for cuid in HALF:
        place.people[cuid] = {**place.people[cuid], NICKNAME: "D"}
    place.people["c-20"] = {**place.people["c-20"], FIRST_NAME: "Eve"}

    with pytest.raises(LeaversError, match="15 of 30 known cards would leave"):
        place.night()


def test_who_left_before_does_not_leave_again(tmp_path: Path) -> None:
    place = town(tmp_path, *ALL)
    for cuid in HALF:
        del place.people[cuid]
    place.bench.submit(place.drop("bank-20261121.csv"), opened=BOTH)
    del place.people["c-20"]

    done = place.night(2)

    assert "1 of 15 known cards leave (c-20)" in done.remarks[0]


def test_an_older_extract_that_comes_late_lets_nobody_leave(tmp_path: Path) -> None:
    place = town(tmp_path, *ALL)
    place.night(2)
    for cuid in HALF:
        del place.people[cuid]

    done = place.bench.submit(place.drop("bank-20261121.csv"))

    assert () == done.remarks


def test_a_card_that_is_issued_under_another_number_leaves_and_its_cardholder_stays(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, *HALF)
    place.people["c-00"] = {**place.people["c-00"], PAN: "5555555555554444"}

    done = place.night()

    assert "1 of 15 known cards leave (c-00)" in done.remarks[0]
    assert {"c-00"} == place.sent(done)


def test_a_portfolio_of_a_header_alone_is_refused_and_nobody_leaves(tmp_path: Path) -> None:
    place = town(tmp_path, *ALL)
    place.people = {}

    with pytest.raises(EmptyExtractError):
        place.night()
