"""Cards that `[status]` leaves out of an extract that is no portfolio, after a row of theirs was
sent: they keep their link, and no older row of them is sent again until a later extract has them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.book.book import read_book
from flows.book.people import balance
from flows.reports.survey import NOTHING_BESIDE, survey
from flows.reports.unlinked import unlinked
from flows.resend.ending_links import ending_links
from flows.resend.renewal import judged_ending, renewals
from flows.resend.resubmission import Request, StandingRowsError, plan_resubmit
from flows.resend.selection import EXCLUDED_SINCE, RowSelection
from schemas.expressions import PUBLISHED
from schemas.portal import CUID, FIRST_NAME, NICKNAME, PAN
from schemas.reasons import EXCLUDED
from schemas.reasons import EXCLUDED_SINCE as NOT_RENEWED
from tests.book.test_given_up import stands
from tests.book.test_upkeep import from_ledgers
from tests.extensions.partner_api.town import Population, town

OTHER = "4111111111111111"  # a published test card
BLOCKED: dict[str, str | None] = {NICKNAME: "P"}
STATUS: dict[str, Any] = {NICKNAME: {"leave_out": "P", "delete": "C", "unknown": "send"}}


def place_of(folder: Path, *, full: bool = False, errors: tuple[str, ...] = ()) -> Population:
    """Return an issuer with a status in its extracts, after a first night that is answered."""
    place = town(folder, settings={"status": STATUS, "full_portfolio": full})
    place.settle("a", "b")
    place.night()
    place.answer(errors=errors)
    return place


def first_run(place: Population) -> str:
    return next(place.bench.runs.manifests()).run


def test_a_linked_card_that_is_left_out_since_is_not_renewed_from_its_older_row(
    tmp_path: Path,
) -> None:
    place = place_of(tmp_path)
    place.people["b"] |= BLOCKED
    place.night()

    plan = renewals(place.bench.context, 60)

    assert (1, {NOT_RENEWED: 1}) == (plan.due, plan.left_out)
    assert ["a"] == [cuid for source in plan.sources for cuid in source.cards["cuid"]]
    assert {"a": "linked", "b": "linked"} == stands(place)


def test_who_is_only_ever_named_as_blocked_or_deleted_is_in_a_state_until_a_row_of_theirs_is_sent(
    tmp_path: Path,
) -> None:
    place = place_of(tmp_path)
    place.people["p"] = {CUID: "p", **BLOCKED}
    place.people["c"] = {CUID: "c", NICKNAME: "C"}
    place.night()
    first = stands(place)
    attempts = read_book(place.bench.context.adapters, "bank").attempts.height
    place.people["a"][FIRST_NAME] = "Augusta"
    place.night()
    book = read_book(place.bench.context.adapters, "bank")
    anew = from_ledgers(place.bench)
    recorded = sorted(book.cards(place.day).rows(), key=str)

    place.people["p"] = {CUID: "p"}
    place.night()
    place.answer()

    assert {"a": "linked", "b": "linked", "p": "not eligible", "c": "left"} == first
    assert attempts + 1 == book.attempts.height  # the change of a
    assert recorded == anew
    assert 4 == balance(book.cards(place.day)).named
    assert "linked" == stands(place)["p"]


@pytest.mark.slow
def test_once_a_later_extract_sends_the_card_it_is_renewed_from_there(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    place.people["b"] |= BLOCKED
    place.night()
    place.people["b"] = {CUID: "b"}
    place.settle("c")
    place.night()

    plan = renewals(place.bench.context, 60)

    assert 2 == plan.due
    assert read_book(place.bench.context.adapters, "bank").excluded.is_empty()


def test_a_row_whose_card_number_cannot_be_read_does_not_take_the_card_up_again(
    tmp_path: Path,
) -> None:
    place = place_of(tmp_path)
    place.people["b"] |= BLOCKED
    place.night()
    place.people = {"b": {CUID: "b", PAN: "unknown"}, "c": {CUID: "c"}}
    place.night()

    plan = renewals(place.bench.context, 60)

    assert {NOT_RENEWED: 1} == plan.left_out


def test_a_card_that_is_left_out_since_is_nobodys_work_whether_its_link_ended_or_it_was_refused(
    tmp_path: Path,
) -> None:
    place = place_of(tmp_path, errors=("b",))
    place.people["a"] |= BLOCKED
    place.people["b"] |= BLOCKED
    place.night()
    place.day = place.day.replace(year=place.day.year + 1)

    beside = NOTHING_BESIDE._replace(ending=ending_links, judged=judged_ending)
    surveyed = survey(place.bench.context, beside=beside)

    assert [] == [work.kind for work in surveyed.work]
    assert surveyed.balance.is_done
    assert {"a": NOT_RENEWED, "b": NOT_RENEWED} == dict(
        surveyed.cards.select("cuid", "reason").rows()
    )


@pytest.mark.slow
def test_a_row_that_was_refused_is_not_resubmitted_while_a_later_extract_leaves_its_card_out(
    tmp_path: Path,
) -> None:
    place = place_of(tmp_path, errors=("b",))
    run = first_run(place)
    place.people["b"] |= BLOCKED
    place.night()

    planned = plan_resubmit(place.bench.context, Request(run, RowSelection(errors=True), "again"))

    assert ({EXCLUDED_SINCE: 1}, 0) == (planned.left, planned.outgoing.height)
    by_number = Request(run, RowSelection(rows=frozenset({2})), "again")
    with pytest.raises(StandingRowsError, match="left out by"):
        plan_resubmit(place.bench.context, by_number)


@pytest.mark.slow
def test_a_row_that_was_left_out_itself_goes_out_once_the_settings_send_it(tmp_path: Path) -> None:
    place = place_of(tmp_path, errors=("b",))
    place.people["b"] |= BLOCKED
    run = place.night().manifest.run
    sending = {NICKNAME: {"send": "P", "unknown": "send"}}
    other = place.bench.issuer.model_validate(
        place.bench.issuer.model_dump(exclude_unset=True) | {"status": sending}
    )
    bench = replace(place.bench, issuer=other)

    planned = plan_resubmit(bench.context, Request(run, RowSelection(rows=frozenset({2})), "sends"))

    assert ({}, ["b"]) == (planned.left, planned.outgoing["cuid"].to_list())


@pytest.mark.slow
def test_whom_a_full_portfolio_only_ever_left_out_is_nobody_whom_the_issuer_named(
    tmp_path: Path,
) -> None:
    place = place_of(tmp_path, full=True)
    place.settle("c")
    place.people["c"] |= BLOCKED
    place.night()

    counted = balance(read_book(place.bench.context.adapters, "bank").cards(place.day))

    assert (2, 0) == (counted.named, counted.nameless)


@pytest.mark.slow
def test_a_card_that_is_left_out_of_a_portfolio_has_left_and_its_ledger_record_is_nameless(
    tmp_path: Path,
) -> None:
    place = place_of(tmp_path, full=True)
    place.people["b"] |= BLOCKED
    run = place.night().manifest.run

    excluded = place.bench.ledger(run).filter(pl.col("reasons").list.contains(f"|{EXCLUDED}"))

    assert [(None, None)] == excluded.select("cuid", "last_4").rows()
    assert "left" == stands(place)["b"]


@pytest.mark.slow
def test_of_a_row_that_is_left_out_only_a_cuid_and_digits_that_keep_the_rules_are_kept(
    tmp_path: Path,
) -> None:
    place = place_of(tmp_path)
    changes: list[dict[str, str | None]] = [{}, {PAN: "no"}, {CUID: None}, {CUID: PUBLISHED[0]}]
    for number, change in enumerate(changes):
        place.people[str(number)] = {CUID: f"c{number}", PAN: OTHER} | BLOCKED | change
    run = place.night().manifest.run

    excluded = place.bench.ledger(run).filter(pl.col("reasons").list.contains(f"|{EXCLUDED}"))

    kept = [("c0", "1111"), ("c1", None), (None, "1111"), (None, "1111")]
    assert kept == excluded.select("cuid", "last_4").rows()
    assert {(None, False)} == set(excluded.select("expiration", "cuid_made").rows())


@pytest.mark.slow
def test_the_kept_book_and_one_made_anew_agree_on_cards_that_are_left_out(tmp_path: Path) -> None:
    place = place_of(tmp_path, errors=("b",))
    place.people["b"] |= BLOCKED
    place.night()
    place.people.pop("b")
    place.settle("c")
    place.night()

    book = read_book(place.bench.context.adapters, "bank")

    assert [("b", "4242")] == book.excluded.select("holder", "last_4").rows()
    assert from_ledgers(place.bench) == sorted(book.cards(place.day).rows(), key=str)
    assert "b" in unlinked(book.cards(place.day))["cuid"]
