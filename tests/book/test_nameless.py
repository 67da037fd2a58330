"""Rows that name no cardholder are of nobody's card, and wait for the issuer all the same."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.book.attempts import ATTEMPT
from flows.book.book import read_book
from flows.book.departures import WholeExtract
from flows.book.nameless import waiting_rows, waiting_turns
from flows.book.people import balance_of
from flows.commands.cardholders import standing_table
from flows.operations.giving_up import Which, give_up
from flows.reports import work_kinds as kinds
from flows.reports.survey import survey
from flows.reports.work import Work, lines
from flows.resend.template import template_of_all_runs
from tests.book.test_standing import attempt
from tests.extensions.partner_api.town import Population, town

DAY = date(2026, 11, 20)
WHY = "nobody of ours"
UNREADABLE = b'who,Lee "Lucky" Long,of nobody\n'


def night(place: Population, *lines: bytes) -> str:
    """Submit and answer tonight's extract with these lines after its rows; return its run."""
    place.day += timedelta(1)
    place.dated = True
    name = place.drop()
    key = f"bank/extracts/{name}"
    place.bench.store.replace(key, [place.bench.content(key), *lines])
    run = place.bench.submit(name).manifest.run
    place.answer()
    return run


def work_of(place: Population) -> list[Work]:
    return [work for work in survey(place.bench.context).work if work.kind == kinds.NAMELESS]


def test_rows_that_name_nobody_wait_for_the_issuer_until_a_portfolio_has_none(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, "a", "b")
    night(place, UNREADABLE)
    run = night(place, UNREADABLE, UNREADABLE.replace(b"who", b"whom"))

    counted = balance_of(read_book(place.bench.context.adapters, "bank"), place.day)

    assert counted.sentence == (
        "2 of 2 cardholders have a link; 2 rows that name no cardholder wait for the issuer."
    )
    assert not counted.is_done
    assert "rows that name no cardholder" in str(standing_table(counted.facts).rows[-1])
    assert [(run, 2)] == [(work.run, work.rows) for work in work_of(place)]
    [template] = template_of_all_runs(place.bench.context)
    assert [3, 4] == template["row"].to_list()

    night(place)

    assert balance_of(read_book(place.bench.context.adapters, "bank"), place.day).is_done
    assert not work_of(place)


@pytest.mark.slow
def test_rows_that_name_nobody_can_be_given_up_until_they_are_taken_up_again(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, "a", "b")
    run = night(place, UNREADABLE, UNREADABLE.replace(b"who", b"whom"))
    context = place.bench.context
    [line] = lines(work_of(place))

    def waiting() -> list[int]:
        return read_book(place.bench.context.adapters, "bank").nameless["row"].to_list()

    of_row = give_up(context, Which(run, rows=frozenset({3})), WHY)
    after = waiting()
    others = give_up(context, Which(run, nameless=True), WHY)
    is_done = balance_of(read_book(place.bench.context.adapters, "bank"), place.day).is_done
    taken_up = give_up(context, Which(nameless=True), WHY, undo=True)

    assert f'mend give-up {run} --nameless --reason "WHY"' in str(line.choices[-1].command)
    assert [(0, 1), (0, 1), (0, 2)] == [
        (decided.cards, decided.nameless) for decided in (of_row, others, taken_up)
    ]
    assert ([4], True, [3, 4]) == (after, is_done, waiting())


@pytest.mark.parametrize(
    ("full", "expected"),
    [((False, False, False), {2, 3}), ((False, True, False), {2, 3}), ((True, True, True), {3})],
)
def test_of_no_portfolio_the_rows_of_two_weeks_wait(
    full: tuple[bool, ...], expected: set[int]
) -> None:
    days = (DAY - timedelta(14), DAY - timedelta(13), DAY)
    extracts = [
        WholeExtract(day=day, turn=turn, full=is_full)
        for turn, (day, is_full) in enumerate(zip(days, full, strict=True), 1)
    ]

    assert expected == waiting_turns(extracts)


def test_a_row_sent_from_a_corrected_extract_stands_for_one_that_named_nobody() -> None:
    nobody: dict[str, Any] = {"holder": None, "last_4": None, "content": 1}
    refused = [attempt("rejected", row=row, **nobody) for row in (1, 2)]
    sent = attempt("awaiting", 2, origin=1, content=1, holder="b")

    waiting = waiting_rows(pl.DataFrame([*refused, sent], ATTEMPT), frozenset([1]))

    assert [2] == waiting["row"].to_list()
