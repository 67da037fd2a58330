"""Rows that an extract marks as deleted: they are not sent, and their cards have left until a later
extract has them without the mark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.book.book import read_book
from flows.reports.survey import survey
from flows.resend.renewal import renewals
from flows.resend.resubmission import Request, StandingRowsError, plan_resubmit
from flows.resend.selection import LEFT, RowSelection
from flows.runs.keys import keys_of
from schemas.expressions import PUBLISHED
from schemas.portal import CUID, NICKNAME, PAN
from schemas.reasons import DELETED, UNREADABLE_DELETION
from tests.book.test_given_up import links, stands
from tests.book.test_upkeep import from_ledgers
from tests.builders import quick
from tests.extensions.partner_api.town import Population, town

MARK = {NICKNAME: "gone"}
SETTINGS: dict[str, Any] = {"status": {NICKNAME: {"delete": ["gone", "closed"], "unknown": "send"}}}


def place_of(folder: Path, *, full: bool, errors: tuple[str, ...] = ()) -> Population:
    """Return an issuer that marks deleted cards, after a first night that is answered."""
    place = town(folder, settings=SETTINGS | {"full_portfolio": full})
    place.settle("a", "b")
    place.night()
    place.answer(errors=errors)
    return place


@pytest.mark.parametrize("full", quick(1, [False, True]))
def test_a_deleted_card_is_not_sent_has_left_and_is_withdrawn_until_it_comes_without_the_mark(
    tmp_path: Path, *, full: bool
) -> None:
    place = place_of(tmp_path, full=full)
    links(place, 1)
    place.people["b"] |= MARK

    deleted = place.night()
    gone = stands(place)
    withdrawn = links(place, 2)
    place.people["b"] = {CUID: "b"}
    place.settle("c")
    place.night()

    assert DELETED == place.held_back(deleted)["b"]
    assert ["b"] == [cuid for cuid, state in gone.items() if state == "left"]
    assert [("b", "withdrawn", "left")] == withdrawn
    assert "left" not in stands(place).values()
    assert [("b", "new", "no other link")] == links(place, 3)


@pytest.mark.slow
def test_the_kept_book_and_one_made_anew_agree_on_deleted_cards_whatever_came_later(
    tmp_path: Path,
) -> None:
    place = place_of(tmp_path, full=False)
    place.people["b"] |= MARK
    place.night()
    place.people.pop("b")
    place.settle("c")
    place.night()

    cards = read_book(place.bench.context.adapters, "bank").cards(place.day)

    assert "left" == stands(place)["b"]
    assert from_ledgers(place.bench) == sorted(cards.rows(), key=str)


@pytest.mark.slow
def test_a_deleted_card_is_nobodys_work_not_renewed_and_not_sent_again(tmp_path: Path) -> None:
    place = place_of(tmp_path, full=False, errors=("b",))
    run = next(place.bench.runs.manifests()).run
    place.people["b"] |= MARK
    place.people["a"] |= MARK
    place.night()
    by_number = Request(run, RowSelection(rows=frozenset({2})), "once more")

    planned = plan_resubmit(place.bench.context, Request(run, RowSelection(errors=True), "again"))

    assert ({LEFT: 1}, 0) == (planned.left, planned.outgoing.height)
    assert [] == [work.kind for work in survey(place.bench.context).work]
    renewal = renewals(place.bench.context, 60)
    assert (0, {DELETED: 1}) == (renewal.due, renewal.left_out)
    with pytest.raises(StandingRowsError):
        plan_resubmit(place.bench.context, by_number)


@pytest.mark.slow
def test_a_marked_row_whose_card_cannot_be_read_closes_nothing_and_is_counted(
    tmp_path: Path,
) -> None:
    changes: list[dict[str, str | None]] = [{PAN: "no"}, {PAN: None}, {CUID: PUBLISHED[0]}]
    for number, change in enumerate(changes):
        place = place_of(tmp_path / str(number), full=False)
        place.people["b"] |= MARK | change

        run = place.night().manifest
        cuids = place.bench.ledger(run.run)["cuid"].to_list()
        held = place.bench.content(keys_of(run.run).report("suppressed.csv")).decode()

        assert {"a": "linked", "b": "linked"} == stands(place)
        assert 1 == run.reasons[UNREADABLE_DELETION]
        assert PUBLISHED[0] not in cuids
        assert UNREADABLE_DELETION in held


@pytest.mark.slow
def test_of_a_marked_row_the_cuid_and_the_last_four_digits_are_kept_and_nothing_else(
    tmp_path: Path,
) -> None:
    place = place_of(tmp_path, full=False)
    place.people["b"] |= MARK

    ledger = place.bench.ledger(place.night().manifest.run).filter(cuid="b")

    known = [name for name in ledger.columns if ledger[name].null_count() == 0]
    assert ["row", "line", "cuid", "cuid_made", "last_4", "fate", "reasons"] == known


@pytest.mark.slow
def test_of_a_card_with_and_without_the_mark_the_later_row_of_the_extract_counts(
    tmp_path: Path,
) -> None:
    stays = place_of(tmp_path / "stays", full=False)
    leaves = place_of(tmp_path / "leaves", full=False)
    stays.people["b again"] = {**stays.people["b"], CUID: "b"}
    stays.people["b"] |= MARK
    leaves.people["b again"] = {CUID: "b", **MARK}

    stays.night()
    leaves.night()

    assert {"a": "linked", "b": "linked"} == stands(stays)
    assert {"a": "linked", "b": "left"} == stands(leaves)
