"""A delta feed repeats a card because it has changed: counted, listed, sent by one command."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from pydantic import ValidationError

from flows.book.book import read_book
from flows.book.people import balance
from flows.extensions.deliveries.delivery import deliver
from flows.extensions.deliveries.receivers import confirm
from flows.reports.survey import survey
from flows.reports.work import Line, lines
from flows.resend.renewal import renew
from flows.resend.resubmission_run import NothingToSendError
from flows.resend.selected_runs import runs_to_resend
from flows.resend.selection import RowSelection
from flows.submissions.submit import Submitted
from schemas.portal import ADDRESS1, CUID, FIRST_NAME
from schemas.reasons import CHANGED
from tests.again import again
from tests.book.test_upkeep import cancel
from tests.builders import quick
from tests.copies import copy_folder
from tests.extensions.partner_api.town import Population, town
from tests.night import issuer, kept_folder

PEOPLE = "abcdefgh"
WISH = RowSelection(changed=True)
MOVED = {ADDRESS1: "2 Side St"}


def feed(folder: Path, changed: str = "ask") -> Population:
    """Return an issuer of deltas, eight of whose cardholders have a link."""
    settings = {
        "full_portfolio": False,
        "limits": {"max_row_jump": 9.0},
        "resend": {"changed": changed},
    }
    place = town(folder, *PEOPLE, settings=settings)
    place.dated = True
    return place


def delta(place: Population, *cuids: str, **change: str | None) -> Submitted:
    """Submit an extract of these cardholders alone, each with a change."""
    place.people = {cuid: {CUID: cuid, **change} for cuid in cuids}
    return place.night()


def moved(place: Population, *cuids: str) -> Submitted:
    """Submit an extract of cardholders with another address."""
    return delta(place, *cuids, **MOVED)


def after_a_move(folder: Path, *cuids: str, changed: str = "ask") -> tuple[Population, str]:
    """Return a feed in which these cardholders have moved, and the run of that night, which is made
    once in a test process.
    """
    place = feed(folder, changed)
    store, run = _moved(changed, *cuids)
    place.bench.database.close()  # of the file that another takes the place of
    copy_folder(store.parent, folder)
    place.people = {cuid: {CUID: cuid, **MOVED} for cuid in cuids}
    place.day += timedelta(days=1)
    return place, run


@cache
def _moved(changed: str, *cuids: str) -> tuple[Path, str]:
    folder = kept_folder("moved-")
    return folder / "store", moved(feed(folder, changed), *cuids).manifest.run


def stand(place: Population) -> dict[str, str]:
    """Return where each cardholder stands."""
    cards = read_book(place.bench.context.adapters, "bank").cards(place.day)
    return dict(cards.filter("current").select("cuid", pl.col("standing").cast(str)).rows())


def line(place: Population) -> Line | None:
    """Return the worklist's line about changed cards."""
    of_kind = [
        each for each in lines(survey(place.bench.context).work) if "changed" in each.kind.name
    ]
    return of_kind[0] if of_kind else None


def resend_all(place: Population) -> list[Submitted]:
    """Send what the command of the worklist's line sends."""
    runs = runs_to_resend(place.bench.context, WISH)
    return [again(place.bench, run, WISH, "they moved") for run in runs]


@pytest.mark.slow
def test_six_changed_rows_of_a_delta_are_counted_listed_and_sent_by_one_command(
    tmp_path: Path,
) -> None:
    place = feed(tmp_path)
    deliver(place.bench.context)
    confirm(place.bench.context, 1, "received")
    place.people = {cuid: {CUID: cuid, ADDRESS1: "2 Side St"} for cuid in "abcd"}
    place.people |= {cuid: {CUID: cuid, FIRST_NAME: "Augusta"} for cuid in "ef"}
    place.settle("g", "new")

    done = place.night()

    held = pl.read_csv(place.bench.report(done.manifest.run, "suppressed.csv"))
    assert 6 == done.manifest.reasons[CHANGED]
    assert {"new"} == place.sent(done)
    assert 6 == held.filter(reason=CHANGED, action="resubmit as is").height
    assert held.filter(reason=CHANGED)["expected"].str.contains("--changed").all()
    about = line(place)
    assert about is not None
    assert 6 == about.rows
    assert "2 have another name, 4 another address" in about.sentence
    assert [
        f'cardlink mend keep-link {done.manifest.run} --changed --rows 6 --reason "WHY"',
        f'cardlink resubmit {done.manifest.run} --changed --reason "WHY" --dry-run',
    ] == [str(choice.command) for choice in about.choices]
    assert dict.fromkeys("abcdef", "changed") | {"g": "delivered", "h": "delivered"} == {
        cuid: state for cuid, state in stand(place).items() if cuid != "new"
    }

    (resent,) = resend_all(place)

    assert set("abcdef") == place.sent(resent)
    assert line(place) is None
    place.answer()
    replaced = deliver(place.bench.context).record
    assert replaced is not None
    assert (1, 6, 6) == (replaced.new, replaced.replaced, replaced.withdrawn)
    assert {"delivered"} == set(stand(place).values())
    assert read_book(place.bench.context.adapters, "bank").active_twice(place.day).is_empty()


@pytest.mark.slow
def test_a_changed_row_whose_chunk_was_cancelled_is_still_a_change_that_can_be_sent(
    tmp_path: Path,
) -> None:
    place, cancelled = after_a_move(tmp_path, "a", "b", changed="send")
    cancel(place.bench)

    assert {"a": "changed", "b": "changed"} == {who: stand(place)[who] for who in "ab"}
    about = line(place)
    assert about is not None
    assert (2, cancelled) == (about.rows, about.run)

    (resent,) = resend_all(place)
    place.answer()

    assert {"a", "b"} == place.sent(resent)
    assert {"linked"} == set(stand(place).values())


@pytest.mark.slow
def test_a_change_in_a_cancelled_chunk_is_taken_back_by_an_extract_that_has_the_old_row(
    tmp_path: Path,
) -> None:
    place, _ = after_a_move(tmp_path, "a", changed="send")
    cancel(place.bench)

    delta(place, "a")

    assert line(place) is None
    assert "linked" == stand(place)["a"]


def test_the_changed_have_a_link_and_wait_for_the_operator(tmp_path: Path) -> None:
    place, _ = after_a_move(tmp_path, "a")

    counted = balance(read_book(place.bench.context.adapters, "bank").cards(place.day))

    assert (
        "8 of 8 cardholders have a link; of those with a link, 1 waits for you." == counted.sentence
    )


def test_a_living_link_stays_delivered_until_the_new_one_comes(tmp_path: Path) -> None:
    place = feed(tmp_path)
    deliver(place.bench.context)
    confirm(place.bench.context, 1, "received")
    moved(place, "a")

    assert deliver(place.bench.context).record is None


@pytest.mark.slow
def test_a_change_taken_back_takes_the_line_away(tmp_path: Path) -> None:
    place, run = after_a_move(tmp_path, "a", "b")
    delta(place, "a")

    about = line(place)

    assert about is not None
    assert 1 == about.rows
    assert {"b"} == place.sent(again(place.bench, run, WISH))


@pytest.mark.slow
def test_what_changes_again_is_sent_as_the_last_extract_has_it(tmp_path: Path) -> None:
    place, first = after_a_move(tmp_path, "a")
    second = delta(place, "a", **{ADDRESS1: "3 Other St"}).manifest.run

    with pytest.raises(NothingToSendError, match="or a later extract has it"):
        again(place.bench, first, WISH)

    assert [second] == runs_to_resend(place.bench.context, WISH)
    assert {"a"} == place.sent(again(place.bench, second, WISH))


def test_a_change_that_was_sent_is_not_sent_twice(tmp_path: Path) -> None:
    place, run = after_a_move(tmp_path, "a")
    again(place.bench, run, WISH)

    with pytest.raises(NothingToSendError, match="1 awaiting"):
        again(place.bench, run, WISH, "once more")
    place.answer()
    with pytest.raises(NothingToSendError, match="its change was sent"):
        again(place.bench, run, WISH, "once more")


@pytest.mark.slow
def test_a_change_whose_row_the_partner_refused_is_open_again(tmp_path: Path) -> None:
    place, run = after_a_move(tmp_path, "a")
    again(place.bench, run, WISH)

    place.answer(errors="a")

    assert "changed" == stand(place)["a"]
    assert {"a"} == place.sent(again(place.bench, run, WISH, "once more"))


@pytest.mark.slow
@pytest.mark.parametrize("changed", quick(1, ["ask", "send"]))
def test_a_change_while_the_answer_is_awaited_is_offered_once_it_is_there(
    tmp_path: Path, changed: str
) -> None:
    place = feed(tmp_path, changed)
    delta(place, "new")
    run = moved(place, "new").manifest.run

    before = line(place)
    with pytest.raises(NothingToSendError, match="1 awaiting"):
        again(place.bench, run, WISH)
    place.answer()
    after = line(place)

    assert before is None
    assert after is not None
    assert {"new"} == place.sent(again(place.bench, run, WISH))


@pytest.mark.slow
def test_what_is_on_hold_is_in_no_list_but_held_csv(tmp_path: Path) -> None:
    place = feed(tmp_path, "hold")

    done = moved(place, "a")

    held = pl.read_csv(place.bench.report(done.manifest.run, "suppressed.csv"))
    assert [CHANGED] == held["reason"].to_list()
    assert line(place) is None
    assert "linked" == stand(place)["a"]


@pytest.mark.slow
def test_a_renewal_sends_the_newest_content_and_settles_the_change(tmp_path: Path) -> None:
    place, run = after_a_move(tmp_path, "a")

    renewed = renew(place.bench.context, 90).runs

    renewal_of = {done.manifest.selection.of for done in renewed if done.manifest.selection}
    assert run in renewal_of
    assert line(place) is None


def test_changes_of_a_portfolio_are_refused_where_there_is_none() -> None:
    with pytest.raises(ValidationError, match=r"\[resend\] changed"):
        issuer(portfolio={"changes": ["name"]})

    assert ("name",) == issuer(
        full_portfolio=True, portfolio={"changes": ["name"]}
    ).portfolio.changes
