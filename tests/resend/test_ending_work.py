"""The worklist says of links that end what a renewal would do, and of the others what helps."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.book.book import read_book
from flows.book.people import balance
from flows.operations.giving_up import Which, give_up
from flows.operations.undecided_work import beside_runs
from flows.reports.link_work import WITHIN, link_work
from flows.reports.survey import survey
from flows.reports.work import Line, lines
from flows.reports.work_kinds import LINKS_UNFIT
from flows.resend.renewal import ending, refused_rows, renew
from flows.resend.resubmission import Request, plan_resubmit
from flows.resend.resubmission_run import resubmit
from flows.resend.selection import RowSelection
from flows.resend.template import correction_template, template_of_all_runs
from flows.runs.keys import extracts
from schemas.portal import CITY, MONTH, YEAR
from tests.again import correct
from tests.builders import quick, share_of
from tests.extensions.partner_api.town import Population, town
from tests.memory_bench import memory_bench

KINDS = "links"
LIMITS = {"max_reject_rate": 1.0, "max_error_rate": 1.0, "max_row_jump": 1.0}


def work(place: Population) -> dict[str, Line]:
    """Return the lines about links, by kind."""
    everything = lines(survey(place.bench.context, beside=beside_runs()).work)
    return {line.kind.name: line for line in everything if line.kind.name.startswith(KINDS)}


def reasons(place: Population) -> dict[str, tuple[str, str]]:
    """Return reason and action of who has no link (unlinked.csv), by cuid."""
    listed = survey(place.bench.context, beside=beside_runs()).cards
    rows = listed.select("cuid", "reason", "action").rows()
    return {cuid: (code, action) for cuid, code, action in rows}


def after(place: Population, days: int) -> Population:
    """Let days go by without an extract."""
    place.day += timedelta(days=days)
    return place


def answered(folder: Path, *cuids: str, portfolio: bool = False) -> Population:
    """Return an issuer whose cardholders have links that live for sixty days."""
    place = town(folder, settings={"full_portfolio": portfolio})
    place.settle(*cuids)
    place.night()
    place.answer()
    return place


@pytest.mark.parametrize(
    ("days", "portfolio"), quick(1, [(55, False), (70, True), (55, True), (70, False)])
)
def test_a_line_has_just_the_links_that_the_command_renews_and_is_gone_then(
    tmp_path: Path, days: int, portfolio: bool
) -> None:
    place = after(answered(tmp_path, "a", "b", "c", portfolio=portfolio), days)

    before = work(place)
    renewed = renew(place.bench.context, 7)
    awaiting = work(place)
    place.answer()

    line = before["links to renew"]
    assert 3 == line.rows == renewed.plan.due == len(place.sent(renewed.runs[0]))
    assert ["links to renew"] == [*before]
    assert ({}, {}) == (awaiting, work(place))


def test_a_card_that_expires_before_a_new_link_would_help_is_nobodys_work(tmp_path: Path) -> None:
    place = town(tmp_path, settings={"full_portfolio": False})
    place.settle("a", "b")
    place.people["b"] |= {YEAR: "26", MONTH: "12"}
    place.night()
    place.answer()
    after(place, 55)
    soon = work(place)
    after(place, 15)

    renew(place.bench.context, 7)
    place.answer()
    counted = balance(read_book(place.bench.context.adapters, "bank").cards(place.day))

    assert {"links to renew": 1} == {kind: line.rows for kind, line in soon.items()}
    assert {} == work(place)
    assert {"b": ("card.expiration.before_link", "nothing")} == reasons(place)
    assert counted.is_done


def test_links_whose_extract_is_gone_are_no_renewal_until_it_is_put_back_or_they_are_given_up(
    tmp_path: Path,
) -> None:
    place = after(answered(tmp_path, "a", "b"), 70)
    key = f"{extracts('bank')}bank-{place.day - timedelta(70):%Y%m%d}.csv"
    file = tmp_path / "store" / key
    content = file.read_bytes()
    file.unlink()

    gone = work(place)
    listed = reasons(place)
    file.write_bytes(content)
    back = work(place)
    file.unlink()
    choice = gone["links that end, extract gone"].choices[-1]
    give_up(place.bench.context, Which(codes=frozenset({"card.extract.gone"})), "closed")

    assert {"links that end, extract gone": 2} == {kind: line.rows for kind, line in gone.items()}
    assert ("card.extract.gone", "fix at source") == listed["a"]
    assert {"links to renew": 2} == {kind: line.rows for kind, line in back.items()}
    assert "--code card.extract.gone" in str(choice.command)
    assert {} == work(place)


@pytest.mark.slow
def test_a_living_link_whose_newest_row_we_refused_is_the_issuers_work_and_not_renewed(
    tmp_path: Path,
) -> None:
    place = answered(tmp_path, "a", "b", portfolio=True)
    place.people["b"] |= {CITY: None}
    place.day += timedelta(54)
    run = place.night().manifest.run

    before = work(place)
    renewed = renew(place.bench.context, 7)

    refused = before["links that end, rows refused"]
    assert (1, run, 1) == (refused.rows, refused.run, renewed.plan.left_out["card.extract.refused"])
    assert renewed.plan.due == sum(
        line.rows for kind, line in before.items() if kind == "links to renew"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("days", "rows_sent", "left"),
    [(70, {"b"}, set()), (54, {"b"}, set()), (30, set(), {"linked"})],
)
def test_a_refused_row_that_is_corrected_renews_its_link_once_that_ends_soon(
    tmp_path: Path, days: int, rows_sent: set[str], left: set[str]
) -> None:
    place = answered(tmp_path, "a", "b")
    bench = place.bench
    place.people["b"] |= {CITY: None}
    place.day += timedelta(days)
    run = place.night().manifest.run
    template = pl.concat(correction_template(bench.context, run))
    of_all_runs = pl.concat(template_of_all_runs(bench.context))
    filled = template.with_columns(correction=pl.lit("Boston")).write_csv().encode()
    request = Request(run, RowSelection(), "as the issuer says", corrections=correct(bench, filled))

    plan = plan_resubmit(bench.context, request)

    assert ["b"] == of_all_runs["cuid"].to_list()
    assert (len(rows_sent), left) == (plan.outgoing.height, {*plan.left})
    if rows_sent:
        done = resubmit(bench.context, request)
        place.answer()
        assert rows_sent == place.sent(done)
        assert "links that end, rows refused" not in work(place)


@pytest.mark.slow
def test_ended_links_are_given_up_by_what_the_line_says_and_leave_the_list(tmp_path: Path) -> None:
    place = after(answered(tmp_path, "a", "b"), 70)
    living = answered(tmp_path / "living", "a")
    after(living, 55)

    offered = [choice.name for choice in work(place)["links to renew"].choices]
    of_living = [choice.name for choice in work(living)["links to renew"].choices]
    decided = give_up(
        place.bench.context, Which(codes=frozenset({"card.link.expired"})), "not wanted"
    )

    assert (["renew", "give up"], ["renew"]) == (offered, of_living)
    assert ({"expired": 2}, {}) == (decided.standing, work(place))


ACTS = ("refuse", "mend", "answer", "error", "weeks")
STEPS = st.tuples(st.sampled_from(ACTS), st.sampled_from("abc"))


def act(place: Population, what: str, cuid: str) -> None:
    """Do one thing of a history: a night in which somebody's row changes, answers, or time."""
    if what in ("refuse", "mend"):
        place.people[cuid] |= {CITY: None if what == "refuse" else "Boston"}
        place.night()
    elif what == "weeks":
        place.day += timedelta(days=20)
    else:
        place.answer([cuid] if what == "error" else (), lives=25)


def refused_by_run(place: Population) -> tuple[dict[str, int], dict[str, int]]:
    """Return the refused rows of links that end, by run: those that corrections have, and those
    of the worklist.
    """
    context = place.bench.context
    book = read_book(context.adapters, "bank")
    cards = book.cards(place.day)
    rows = refused_rows(context, book, cards)
    listed = link_work("bank", ending(context, book, cards, WITHIN), context.adapters.now())
    to_correct = {work.run: work.rows for work in listed if work.kind == LINKS_UNFIT}
    return dict(rows.group_by("run").len().iter_rows()), to_correct


def check_after_each(steps: list[tuple[str, str]], *, portfolio: bool) -> list[dict[str, int]]:
    """Hold both equal after each step of a history; return them."""
    place = Population(memory_bench(full_portfolio=portfolio, limits=LIMITS), dated=True)
    place.bench.now = lambda: datetime.combine(place.day, time(12), UTC)
    place.settle(*"abc")
    place.night()
    place.answer(lives=25)
    counts = []
    for what, cuid in steps:
        act(place, what, cuid)
        to_correct, on_list = refused_by_run(place)
        assert on_list == to_correct
        counts.append(on_list)
    return counts


def test_corrections_have_the_refused_rows_that_the_line_about_links_counts() -> None:
    counts = check_after_each([("refuse", "b"), ("weeks", ""), ("weeks", "")], portfolio=True)

    assert [[], [1], []] == [[*by_run.values()] for by_run in counts]


@pytest.mark.slow
@settings(deadline=None, max_examples=share_of(0.4))
@given(st.lists(STEPS, min_size=3, max_size=5), st.booleans())
def test_so_they_do_whatever_happens(steps: list[tuple[str, str]], portfolio: bool) -> None:
    check_after_each(steps, portfolio=portfolio)
