"""A link stays as it is by a decision: its card has changed, or the row that was to replace it was
refused.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from flows.book.book import read_book
from flows.book.people import balance
from flows.extensions.deliveries.delivery import deliver
from flows.extensions.deliveries.receivers import confirm
from flows.reports.cardholder_status import card_statuses
from flows.reports.survey import survey
from flows.reports.work import Line, lines
from flows.resend.keeping_links import Decided, Which, keep_links
from flows.resend.renewal import renew
from flows.resend.resubmission_run import NothingToSendError
from flows.resend.selected_runs import runs_to_resend
from flows.resend.selection import RowSelection
from flows.runs.errors import NotFoundError
from schemas.portal import ADDRESS1
from schemas.reasons import CHANGED, REVERTED, STANDING
from tests.again import again
from tests.extensions.partner_api.town import Population, town
from tests.resend.test_changed import after_a_move, delta, feed, moved, stand

WHY = "the ZIP is the same"
REPLACING = RowSelection(replacing=True)
OTHER = {ADDRESS1: "3 Other St"}


def kept(place: Population, *cuids: str, undo: bool = False, run: str = "") -> Decided:
    """Keep the links of cardholders, or of all, or ask about them again."""
    which = Which(run=run, cuids=frozenset(cuids))
    return keep_links(place.bench.context, which, WHY, undo=undo)


def work(place: Population) -> dict[str, Line]:
    """Return the worklist's lines about links to be replaced, by kind."""
    kinds = ("changed since their link", "links not replaced")
    listed = lines(survey(place.bench.context).work)
    return {line.kind.name: line for line in listed if line.kind.name in kinds}


def test_a_change_that_does_not_matter_leaves_the_list_and_a_different_one_is_asked_about(
    tmp_path: Path,
) -> None:
    place, _ = after_a_move(tmp_path, "a", "b")

    decided = kept(place)
    after = work(place)
    delta(place, "a", **OTHER)

    assert 2 == decided.links
    assert {} == after
    assert 1 == work(place)["changed since their link"].rows
    assert ("changed", "linked") == (stand(place)["a"], stand(place)["b"])


def test_the_trace_of_a_changed_card_offers_to_keep_its_link_before_it_is_sent_again(
    tmp_path: Path,
) -> None:
    place, _ = after_a_move(tmp_path, "a")

    (card,) = card_statuses(read_book(place.bench.context.adapters, "bank"), "a", (), place.day)

    then = str(card.then)
    assert 'cardlink mend keep-link bank --cuid a --changed --reason "WHY"' in then
    assert 'cardlink resubmit bank --changed --reason "WHY"' in then.partition("keep-link")[2]


@pytest.mark.slow
def test_what_was_decided_about_is_known_when_it_comes_again(tmp_path: Path) -> None:
    place, _ = after_a_move(tmp_path, "a", "b")
    kept(place, "a")
    delta(place, "a", **OTHER)

    back = moved(place, "a", "b")

    assert {"a": REVERTED, "b": CHANGED} == place.held_back(back)
    assert {"a": STANDING} == place.held_back(moved(place, "a"))
    assert ("linked", "changed") == (stand(place)["a"], stand(place)["b"])


@pytest.mark.slow
def test_under_send_a_kept_link_is_not_replaced_by_the_same_change(tmp_path: Path) -> None:
    place, _ = after_a_move(tmp_path, "a")
    kept(place)
    settings = place.bench.issuer.model_copy(
        update={"resend": place.bench.issuer.resend.model_copy(update={"changed": "send"})}
    )
    place.bench.issuer = settings

    again_moved = moved(place, "a")
    elsewhere = delta(place, "a", **OTHER)

    assert set() == place.sent(again_moved)
    assert {"a"} == place.sent(elsewhere)


@pytest.mark.slow
def test_a_decision_is_about_one_link_not_the_next(tmp_path: Path) -> None:
    place, _ = after_a_move(tmp_path, "a")
    kept(place)
    run = delta(place, "a", **OTHER).manifest.run
    again(place.bench, run, RowSelection(changed=True), "moved far away")
    place.answer()

    moved(place, "a")

    assert "changed" == stand(place)["a"]


@pytest.mark.slow
def test_a_kept_link_stays_delivered_and_its_change_cannot_be_sent(tmp_path: Path) -> None:
    place = feed(tmp_path)
    deliver(place.bench.context)
    confirm(place.bench.context, 1, "received")
    run = moved(place, "a").manifest.run

    kept(place, run=run)

    assert "delivered" == stand(place)["a"]
    assert deliver(place.bench.context).record is None
    with pytest.raises(NothingToSendError, match="decided since"):
        again(place.bench, run, RowSelection(changed=True))


@pytest.mark.slow
def test_a_decision_is_taken_back_and_asked_again(tmp_path: Path) -> None:
    place, _ = after_a_move(tmp_path, "a", "b")
    kept(place)
    repeated = kept(place)

    undone = kept(place, "a", undo=True)

    assert (None, 1) == (repeated.record, undone.links)
    assert ("changed", "linked") == (stand(place)["a"], stand(place)["b"])
    with pytest.raises(NotFoundError):
        kept(place, "a", undo=True)


@pytest.mark.slow
def test_a_change_that_the_partner_refused_is_listed_until_it_is_sent_or_the_link_is_kept(
    tmp_path: Path,
) -> None:
    place, run = after_a_move(tmp_path, "a", "b", changed="send")
    place.answer(errors="ab")

    (line,) = work(place).values()
    counted = balance(read_book(place.bench.context.adapters, "bank").cards(place.day))
    resent = again(place.bench, run, REPLACING, "the partner takes it now")
    while_awaited = stand(place)
    place.answer(errors="b")
    kept(place)

    assert (2, "links not replaced") == (line.rows, line.kind.name)
    assert "the old link still stands" in line.sentence
    assert "(2)" in line.sentence
    assert (
        "8 of 8 cardholders have a link; of those with a link, 2 wait for you." == counted.sentence
    )
    assert [run] == runs_before(line)
    assert {"a", "b"} == place.sent(resent)
    assert {"linked"} == {while_awaited["a"], while_awaited["b"]}
    assert {"linked"} == set(stand(place).values())
    assert {} == work(place)


def runs_before(line: Line) -> list[str]:
    """Return the runs that the line's commands are about."""
    return sorted({str(choice.command).split()[-4] for choice in line.choices})


@pytest.mark.slow
def test_a_refused_change_and_what_was_sent_are_both_known_and_another_change_is_sent(
    tmp_path: Path,
) -> None:
    place, _ = after_a_move(tmp_path, "a", changed="send")
    place.answer(errors="a")

    as_refused = moved(place, "a")
    as_sent = delta(place, "a")
    another = delta(place, "a", **OTHER)

    assert [set(), set(), {"a"}] == [place.sent(run) for run in (as_refused, as_sent, another)]


@pytest.mark.slow
def test_a_refused_renewal_is_listed_while_the_link_stands_and_sent_again_counts_once(
    tmp_path: Path,
) -> None:
    place = feed(tmp_path)
    (renewed,) = renew(place.bench.context, 90).runs
    place.answer(errors="a")

    (line,) = work(place).values()
    (run,) = runs_to_resend(place.bench.context, REPLACING)
    resent = again(place.bench, run, REPLACING)
    place.answer()
    book = read_book(place.bench.context.adapters, "bank")

    assert (1, renewed.manifest.run) == (line.rows, run)
    assert {"a"} == place.sent(resent)
    assert {} == work(place)
    assert book.active_twice(place.day).is_empty()


@pytest.mark.slow
def test_a_kept_link_ends_as_any_other(tmp_path: Path) -> None:
    place = feed(tmp_path)
    renew(place.bench.context, 90)
    place.answer(errors="a", lives=200)
    kept(place)

    place.day += timedelta(100)

    assert "refused" == stand(place)["a"]


@pytest.mark.slow
def test_refused_rows_that_were_to_replace_a_link_stay_where_only_errors_are_selected(
    tmp_path: Path,
) -> None:
    place, run = after_a_move(tmp_path, "a", changed="send")
    place.answer(errors="a")

    with pytest.raises(NothingToSendError, match="1 linked"):
        again(place.bench, run, RowSelection(errors=True))


def test_cards_that_no_run_has_are_not_kept(tmp_path: Path) -> None:
    place, run = after_a_move(tmp_path, "a")

    for which in (Which(cuids=frozenset("h")), Which(run, rows=frozenset({7}))):
        with pytest.raises(NotFoundError):
            keep_links(place.bench.context, which, WHY)

    assert 1 == keep_links(place.bench.context, Which(run, rows=frozenset({1})), WHY).links
    assert pl.Series(["linked"]).is_in([*stand(place).values()]).all()


@pytest.mark.slow
def test_a_portfolio_whose_changed_row_was_refused_is_asked_and_not_sent_every_night(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, "a", "b", changes=("address",))
    place.dated = True
    place.people["a"] |= OTHER
    place.night()
    place.answer(errors="a")

    again_refused = place.night()
    (line,) = work(place).values()
    kept(place)

    assert set() == place.sent(again_refused)
    assert (1, "links not replaced") == (line.rows, line.kind.name)
    assert {} == work(place)
    assert {"linked"} == set(stand(place).values())
