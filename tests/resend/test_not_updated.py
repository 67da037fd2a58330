"""We refuse a newer row of a card whose link still lives: the issuer's work, until a good row comes
or an operator keeps the link.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from flows.book.book import read_book
from flows.book.people import balance
from flows.operations.undecided_work import beside_runs
from flows.reports.cardholder_status import card_statuses
from flows.reports.survey import survey
from flows.reports.work import Line, lines
from flows.reports.worklist import unsent_corrections
from flows.resend.keeping_links import Which, keep_links
from flows.resend.renewal import renewals
from flows.resend.resubmission import Request, ResendPlan, plan_resubmit
from flows.resend.resubmission_run import resubmit
from flows.resend.selection import RowSelection
from flows.resend.template import correction_template, template_of_all_runs
from schemas.portal import CITY, COUNTRY, PAN
from schemas.reasons import REVERTED, STANDING
from tests.again import again, correct
from tests.builders import quick
from tests.cli.test_resubmit import TOML, cardlink
from tests.extensions.partner_api.town import Population, committed, town
from tests.keys import sound
from tests.resend.test_changed import MOVED, PEOPLE, delta, moved, stand

KIND = "newer rows refused"
LIMITS = {"max_reject_rate": 1.0, "max_ineligible_rate": 1.0, "max_row_jump": 9.0}
BAD = {CITY: None}
FOREIGN = {COUNTRY: "France"}


def refused(place: Population) -> Line | None:
    """Return the worklist's line about newer rows that we refused."""
    everything = lines(survey(place.bench.context, beside=beside_runs()).work)
    of_kind = [line for line in everything if line.kind.name == KIND]
    return of_kind[0] if of_kind else None


def corrected(place: Population, run: str, city: str) -> tuple[ResendPlan, Request]:
    """Return what the template of all runs does, once the issuer has filled in a city."""
    template = pl.concat(template_of_all_runs(place.bench.context))
    filled = template.with_columns(correction=pl.lit(city)).write_csv().encode()
    name = correct(place.bench, filled)
    request = Request(run, RowSelection(), "as the issuer says", corrections=name)
    return plan_resubmit(place.bench.context, request), request


def feed(folder: Path, changed: str = "ask", *, portfolio: bool = False) -> Population:
    """Return an issuer of deltas, or of a portfolio, whose cardholders have links for weeks."""
    settings = {
        "full_portfolio": portfolio,
        "limits": LIMITS,
        "resend": {} if portfolio else {"changed": changed},
    }
    place = town(folder, *PEOPLE, settings=settings)
    place.dated = True
    return place


@pytest.fixture
def place(tmp_path: Path) -> Population:
    """Return an issuer of deltas."""
    return feed(tmp_path)


def test_a_refused_row_of_a_card_with_a_link_is_a_line_until_a_later_extract_has_a_good_one(
    place: Population,
) -> None:
    run = delta(place, "a", "b", **BAD).manifest.run
    line = refused(place)
    counted = balance(read_book(place.bench.context.adapters, "bank").cards(place.day))

    good = delta(place, "a")
    one_left = refused(place)
    once_more = delta(place, "a")
    moved(place, "b")

    assert line is not None
    assert one_left is not None
    assert (2, "issuer", run) == (line.rows, line.kind.who, line.run)
    assert (6, 2) == (counted.people["linked"], counted.waits["issuer"])
    assert ({"a": REVERTED}, {"a": STANDING}) == (place.held_back(good), place.held_back(once_more))
    assert 1 == one_left.rows
    assert None is refused(place)
    assert ("linked", "changed") == (stand(place)["a"], stand(place)["b"])


@pytest.mark.parametrize("portfolio", quick(1, [True, False]))
def test_a_row_whose_card_number_cannot_be_read_is_a_line_until_a_row_of_theirs_is_good(
    tmp_path: Path, *, portfolio: bool
) -> None:
    place = feed(tmp_path, portfolio=portfolio)
    place.people["a"] |= {PAN: "unreadable"}
    run = place.night().manifest.run
    line = refused(place)
    (card,) = card_statuses(read_book(place.bench.context.adapters, "bank"), "a", (), place.day)
    counted = balance(read_book(place.bench.context.adapters, "bank").cards(place.day))
    template = pl.concat(template_of_all_runs(place.bench.context))

    place.people["a"].pop(PAN)
    good = place.night()

    assert line is not None
    assert (1, "issuer", run) == (line.rows, line.kind.who, line.run)
    assert "we refused a newer row of it: card.pan" in card.stands
    assert (8, 1) == (counted.linked, counted.waits["issuer"])
    assert ["a"] == template["cuid"].to_list()
    assert "correct it at the source" in template["accepted"].item()
    assert REVERTED == place.held_back(good)["a"]
    assert None is refused(place)


@pytest.mark.slow
def test_in_a_portfolio_the_next_extract_with_a_good_row_ends_the_line(tmp_path: Path) -> None:
    place = feed(tmp_path, portfolio=True)
    place.people["a"] |= BAD
    place.night()
    line = refused(place)
    place.night()
    still = refused(place)

    place.settle("a")
    done = place.night()

    assert (1, 1) == (line and line.rows, still and still.rows)
    assert REVERTED == place.held_back(done)["a"]
    assert None is refused(place)


@pytest.mark.slow
def test_a_corrected_row_goes_out_where_it_has_another_address_than_the_link(
    place: Population,
) -> None:
    run = delta(place, "a", **BAD).manifest.run

    other, request = corrected(place, run, "Salem")
    done = resubmit(place.bench.context, request)
    waiting = refused(place)
    place.answer()

    assert 1 == other.outgoing.height
    assert {"a"} == place.sent(done)
    assert (None, None) == (waiting, refused(place))
    assert "linked" == stand(place)["a"]


def test_a_correction_that_changes_nothing_keeps_the_link_as_the_issuer_confirms_it(
    place: Population,
) -> None:
    run = delta(place, "a", "b", **BAD).manifest.run
    runs = committed(place.bench)
    same, request = corrected(place, run, "Boston")

    done = resubmit(place.bench.context, request)
    repeated = resubmit(place.bench.context, request)
    delta(place, "a", **BAD)

    assert (0, [1, 2]) == (same.outgoing.height, sorted(same.confirmed))
    assert (2, 2) == (done.confirmed, repeated.confirmed)
    assert (run, True) == (done.manifest.run, done.already)
    assert 1 == len(committed(place.bench) - runs)
    assert None is refused(place)
    assert [] == list(unsent_corrections(place.bench.context.adapters, "bank", ()))


def test_who_types_a_correction_that_changes_nothing_is_told_that_the_link_is_kept(
    place: Population, tmp_path: Path
) -> None:
    (tmp_path / "bank.toml").write_text(TOML.format(fingerprint=sound().fingerprint))
    (tmp_path / "portal.asc").write_bytes(sound().public)
    run = delta(place, "a", **BAD).manifest.run
    _, request = corrected(place, run, "Boston")
    line = ["resubmit", "bank", "--corrections", request.corrections, "--reason", "they say so"]

    rehearsed = cardlink(tmp_path, *line, "--dry-run")
    kept = cardlink(tmp_path, *line)

    assert (0, 0) == (rehearsed.exit_code, kept.exit_code)
    assert f" resubmit bank --corrections {request.corrections}" in rehearsed.stderr
    assert f"{run}: 1 row is what its link was made from, as the correction confirms" in kept.stdout
    assert [] == list(unsent_corrections(place.bench.context.adapters, "bank", ()))


@pytest.mark.slow
def test_of_a_template_some_rows_are_sent_and_some_confirmed(place: Population) -> None:
    run = delta(place, "a", "b", **BAD).manifest.run
    template = pl.concat(template_of_all_runs(place.bench.context))
    city = pl.Series("correction", ["Boston", "Salem"])
    name = correct(place.bench, template.with_columns(city).write_csv().encode())

    done = resubmit(
        place.bench.context, Request(run, RowSelection(), "they say so", corrections=name)
    )

    assert {"b"} == place.sent(done)
    assert 1 == done.confirmed
    assert None is refused(place)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad", "portfolio"), quick(1, [(BAD, False), (BAD, True), ({PAN: "unreadable"}, True)])
)
def test_a_kept_link_leaves_the_list_however_often_we_refuse_such_a_row(
    tmp_path: Path, bad: dict[str, str | None], *, portfolio: bool
) -> None:
    place = feed(tmp_path, portfolio=portfolio)
    place.people["a"] |= bad
    run = place.night().manifest.run
    line = refused(place)

    decided = keep_links(place.bench.context, Which(refused=True), "the link is enough")
    place.night()
    kept = refused(place)
    keep_links(place.bench.context, Which(cuids=frozenset("a")), "it is not", undo=True)
    asked_again = refused(place)

    assert line is not None
    assert f"mend keep-link {run} --refused" in str(line.choices[0].command)
    assert (1, None) == (decided.links, kept)
    assert 1 == (asked_again and asked_again.rows)


@pytest.mark.slow
def test_another_link_is_asked_about_again(place: Population) -> None:
    delta(place, "a", **BAD)
    keep_links(place.bench.context, Which(refused=True), "the link is enough")
    run = moved(place, "a").manifest.run
    again(place.bench, run, RowSelection(changed=True), "they moved")
    place.answer()

    delta(place, "a", **BAD)

    line = refused(place)
    assert 1 == (line and line.rows)


@pytest.mark.slow
def test_the_template_of_a_run_has_no_row_whose_card_was_linked_by_a_later_extract(
    place: Population,
) -> None:
    run = delta(place, "new", "other", **BAD).manifest.run
    delta(place, "new")
    place.answer()

    template = pl.concat(correction_template(place.bench.context, run))

    assert ["other"] == template["cuid"].to_list()


def test_the_trace_says_why_the_newer_row_was_refused_and_what_can_be_done(
    place: Population,
) -> None:
    delta(place, "a", **BAD)

    (card,) = card_statuses(read_book(place.bench.context.adapters, "bank"), "a", (), place.day)

    assert "we refused a newer row of it: address.city.missing" in card.stands
    assert 'cardlink mend keep-link bank --cuid a --refused --reason "WHY"' in str(card.then)
    assert 'cardlink corrections bank --to "FILE"' in str(card.then)


@pytest.mark.slow
def test_a_link_that_ends_within_a_week_has_a_line_of_its_own_which_a_good_row_ends_as_well(
    place: Population,
) -> None:
    delta(place, "a", **BAD)
    place.day += timedelta(days=54)

    ending = refused(place)
    left_out = renewals(place.bench.context, 7).left_out
    delta(place, "a")
    due = renewals(place.bench.context, 7)

    assert None is ending
    assert 1 == left_out["card.extract.refused"]
    assert ({}, 8) == (due.left_out, due.due)


@pytest.mark.slow
def test_a_link_that_ended_is_renewed_where_a_good_row_followed_the_refused_one(
    place: Population,
) -> None:
    delta(place, "a", "b", **BAD)
    delta(place, "a")

    place.day += timedelta(days=70)

    assert ("expired", "not sent") == (stand(place)["a"], stand(place)["b"])
    assert 7 == renewals(place.bench.context, 7).due


@pytest.mark.slow
def test_a_newer_row_that_is_not_eligible_is_nobodys_work_and_no_change_is_asked_about(
    place: Population,
) -> None:
    moved(place, "b")
    delta(place, "a", "b", **FOREIGN)
    not_eligible = stand(place)

    delta(place, "b", **MOVED)

    assert None is refused(place)
    assert ("linked", "linked") == (not_eligible["a"], not_eligible["b"])
    assert "changed" == stand(place)["b"]


@pytest.mark.slow
def test_what_changed_on_hold_a_good_row_ends_the_line(tmp_path: Path) -> None:
    place = feed(tmp_path, changed="hold")
    delta(place, "a", **BAD)
    line = refused(place)

    moved(place, "a")

    assert line is not None
    assert None is refused(place)
