"""Reconciling gives one answer a sent row, whatever the order and repetition of the result
files.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.results.attribution import attribute_claims, read_claims
from flows.results.breaks import expiry_breaks
from flows.results.read import ResultRows
from flows.results.reconcile import Reconciled, reconcile, with_single_links
from flows.results.sent_rows import ByHand, number_sent_rows
from flows.runs.outcomes import Attributed
from flows.runs.single_links import ARRIVED, LINK
from schemas import breaks
from schemas.ledger import AWAITING
from tests.results.outcomes import (
    RULES,
    RUN,
    Row,
    attribute_all,
    error,
    link,
    refusal,
    result,
    sent_rows,
)

TODAY = date(2026, 11, 21)
WHOLE = [link(1), refusal(2), link(3), link(4), link(5)]
MUTE = error("[object Object]")  # names no row


def of_run(told: Reconciled, run: str) -> Reconciled:
    """Return the part of one run; breaks of files that belong to no run are left out."""
    mine = pl.col("run") == run
    found = tuple(one for one in told.breaks if one.run == run)
    return Reconciled(told.rows.filter(mine), told.chunks.filter(mine), found)


def attributed(files: Sequence[ResultRows], sent: pl.DataFrame | None = None) -> list[Attributed]:
    return attribute_all(files, sent_rows() if sent is None else sent)


def reconciled(*files: ResultRows) -> Reconciled:
    return reconcile(sent_rows(), attributed(files), TODAY)


def states(told: Reconciled) -> dict[str, int]:
    return dict(told.rows.group_by("state").len().rows())


def names(told: Reconciled) -> list[str]:
    return [one.name for one in told.breaks]


def test_without_results_every_row_is_awaiting() -> None:
    told = reconciled()

    assert {AWAITING: 10} == states(told)
    assert ["awaiting", "awaiting"] == told.chunks["state"].to_list()
    assert () == told.breaks


def test_a_whole_answer_settles_its_chunk_and_leaves_the_other_open() -> None:
    told = reconciled(result(WHOLE))

    assert {"linked": 4, "error": 1, AWAITING: 5} == states(told)
    assert [
        (1, 5, 5, 4, 4, 1, 0, "answered"),
        (2, 5, 0, 0, 0, 0, 5, "awaiting"),
    ] == told.chunks.select(
        "chunk", "sent", "answers", "links", "linked", "error", "awaiting", "state"
    ).rows()
    assert () == told.breaks


def test_the_same_file_twice_counts_once_and_is_no_break() -> None:
    assert reconciled(result(WHOLE)).rows.equals(reconciled(result(WHOLE), result(WHOLE)).rows)
    assert [] == names(reconciled(result(WHOLE), result(WHOLE)))


def test_the_same_rows_in_another_file_are_a_notice() -> None:
    told = reconciled(result(WHOLE, "a.csv"), result(WHOLE[::-1], "b.csv"))

    assert [(breaks.DUPLICATE_RESULT, True)] == [(one.name, one.notice) for one in told.breaks]
    assert {"linked": 4, "error": 1, AWAITING: 5} == states(told)


def test_half_an_answer_is_short_until_the_other_half_comes() -> None:
    half, rest = result(WHOLE[:2], "a.csv"), result(WHOLE[2:], "b.csv")

    assert [(breaks.RESULT_SHORT, 3)] == [(one.name, one.rows) for one in reconciled(half).breaks]
    assert [] == names(reconciled(half, rest))


def test_half_then_whole_is_whole() -> None:
    told = reconciled(result(WHOLE[:2], "a.csv"), result(WHOLE, "b.csv"))

    assert [] == names(told)
    assert {"linked": 4, "error": 1, AWAITING: 5} == states(told)


def test_an_error_that_half_a_file_could_not_place_is_placed_by_the_whole() -> None:
    mute = [link(1), error("[object Object]"), link(3), link(4), link(5)]

    told = reconciled(result(mute[:3], "a.csv"), result(mute, "b.csv"))

    assert [] == names(told)
    assert {"linked": 4, "error": 1, AWAITING: 5} == states(told)


def test_two_different_links_for_one_row_are_a_conflict() -> None:
    other = (*link(1)[:2], "https://links.example/other", *link(1)[3:])

    told = reconciled(result(WHOLE, "a.csv"), result([other], "b.csv"))

    assert [(breaks.CONFLICTING_RESULT, 1)] == [(one.name, one.rows) for one in told.breaks]
    assert 5 == told.chunks["links"][0]


def test_a_link_after_an_error_is_a_conflict_and_neither_counts() -> None:
    told = reconciled(result(WHOLE, "a.csv"), result([link(2)], "b.csv"))

    assert [breaks.CONFLICTING_RESULT] == names(told)
    assert {"linked": 4, AWAITING: 6} == states(told)
    assert [2] == told.rows.filter(trouble=breaks.CONFLICTING_RESULT)["row"].to_list()


def test_a_link_dead_on_arrival_is_a_break_and_its_row_stays_open() -> None:
    told = reconciled(result([link(1, day="2026-11-20"), *WHOLE[1:]]))

    assert [breaks.LINK_EXPIRED] == names(told)
    assert {"linked": 3, "error": 1, AWAITING: 6} == states(told)


def test_links_that_are_refused_count_once_each_in_what_was_received() -> None:
    first, other = (link(1, day, host="evil.example") for day in ("2027-01-20", "2027-01-21"))

    told = reconciled(result([first], "a.csv"), result([first], "b.csv"), result([other], "c.csv"))

    assert (2, 0) == told.chunks.select("links", "linked").row(0)


@pytest.mark.parametrize(
    ("last_day", "state"),
    [("2026-11-20", AWAITING), ("2026-11-21", "linked"), ("2026-11-22", "linked")],
)
def test_a_link_counts_where_it_could_be_opened_on_the_day_it_came(
    last_day: str, state: str
) -> None:
    told = reconciled(result([link(1, day=last_day), *WHOLE[1:]]))

    assert state == told.rows["state"][0]


@pytest.mark.parametrize("names", [["a.csv"] * 3, ["c.csv", "b.csv", "a.csv"]])
def test_a_file_that_comes_again_counts_as_of_its_first_day(names: list[str]) -> None:
    rows = [link(1, day="2026-11-20"), *WHOLE[1:]]
    days = [date(2026, 11, day) for day in (21, 20, 23)]
    files = [
        result(rows, name)._replace(received=day) for name, day in zip(names, days, strict=True)
    ]

    told = reconcile(sent_rows(), attributed(files), TODAY)

    assert {"linked": 4, "error": 1, AWAITING: 5} == states(told)


def message_after(*files: tuple[str, date | None, bool]) -> str:
    """Return the message of a row that files refuse: what each says, its day, and whether it is
    superseded.
    """
    parts = [
        attributed([result([refusal(2, says)], f"{says}.csv")._replace(received=day)])[0]._replace(
            superseded=superseded
        )
        for says, day, superseded in files
    ]
    told = [reconcile(sent_rows(1), several, TODAY) for several in (parts, parts[::-1])]
    [message] = {one.rows.filter(row=2)["message"].item() for one in told}
    return str(message)


CITY_IS, STREET_IS = "city is required", "address is required"


@pytest.mark.parametrize(("first", "last"), [(CITY_IS, STREET_IS), (STREET_IS, CITY_IS)])
def test_of_two_errors_of_a_row_that_of_the_later_file_counts(first: str, last: str) -> None:
    later = message_after((first, TODAY, False), (last, TODAY + timedelta(days=1), False))
    dated = message_after((first, TODAY, False), (last, None, False))
    current = message_after((first, TODAY, True), (last, TODAY, False))

    assert (last, first, last) == (later, dated, current)


@pytest.mark.parametrize("names", [("a.csv", "b.csv"), ("b.csv", "a.csv")])
def test_of_files_of_one_day_with_the_same_link_the_later_end_counts(
    names: tuple[str, str],
) -> None:
    ends = ["2027-01-20", "2027-01-21"]
    files = [
        result([link(1, day=day)], name)._replace(received=TODAY)
        for name, day in zip(names, ends, strict=True)
    ]

    told = reconcile(sent_rows(), attributed(files), TODAY)

    assert date(2027, 1, 21) == told.rows["expires_on"][0]


def test_of_two_errors_of_a_file_that_were_put_to_a_row_by_hand_the_first_counts() -> None:
    file = result([error(CITY_IS), error(STREET_IS)])
    by_hand = [ByHand(0, position, RUN, 2) for position in (1, 2)]
    sent = sent_rows(1)

    placed = attribute_claims([file], read_claims([file]), number_sent_rows(sent), RULES, by_hand)

    assert CITY_IS == reconcile(sent, placed, TODAY).rows["message"][1]


@pytest.mark.parametrize(
    ("rows", "answers"),
    [
        # the second file has a row in common with the first one: its error is the same error
        ([[link(1), link(2), MUTE], [link(2), link(3), MUTE]], 4),
        # it has none: its error is another one
        ([[link(1), link(2), MUTE], [link(3), MUTE]], 5),
        # nobody knows of which part the third file is: its error is that of the first
        ([[link(1), link(2), MUTE], [link(3)], [MUTE]], 4),
    ],
)
def test_files_with_a_row_in_common_are_copies_and_others_are_parts(
    rows: list[list[Row]], answers: int
) -> None:
    files = [
        result(each, f"{RUN}-00001 ({day}).csv")._replace(received=TODAY + timedelta(days=day))
        for day, each in enumerate(rows)
    ]

    told = reconcile(sent_rows(), attributed(files), TODAY)

    assert answers == told.chunks["answers"][0]


@pytest.mark.parametrize(
    ("ends", "counts"),
    [
        (date(2027, 1, 19), "https://links.example/4"),
        (date(2027, 1, 20), "https://links.example/4"),
        (date(2027, 1, 21), "https://links.example/single"),
        (None, "https://links.example/single"),
    ],
)
def test_a_single_link_counts_where_it_lasts_longer_than_that_of_the_file(
    ends: date | None, counts: str
) -> None:
    single = pl.DataFrame(
        [(4, "c-4", "0004", "https://links.example/single", ends, None)],
        {**LINK, "arrived": ARRIVED},
        orient="row",
    )

    told = with_single_links(reconciled(result(WHOLE)), single)

    assert counts == told.rows.filter(row=4)["url"].item()


def test_a_link_that_expired_after_it_came_stays_a_link_when_the_report_is_rebuilt() -> None:
    file = result(WHOLE)._replace(received=date(2026, 11, 20))

    told = reconcile(sent_rows(), attributed([file]), date(2028, 1, 1))

    assert {"linked": 4, "error": 1, AWAITING: 5} == states(told)


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([*WHOLE, link(1)], breaks.RESULT_LONG),
        ([*WHOLE, link(99)], breaks.UNKNOWN_CUID),
        ([link(1, last_4="9999"), *WHOLE[1:]], breaks.LAST4_MISMATCH),
        ([(*link(1)[:4], "odd"), *WHOLE[1:]], breaks.URL_AND_ERROR),
        ([("c-1", "0001", "", "", ""), *WHOLE[1:]], breaks.NEITHER_URL_NOR_ERROR),
        ([link(1, host="evil.example"), *WHOLE[1:]], breaks.URL_NOT_ALLOWED),
        ([link(901)], breaks.FOREIGN_FILE),
        ([error("oops"), error("oops"), *WHOLE[:1:-1]], breaks.UNATTRIBUTED_ERROR),
    ],
)
def test_what_does_not_fit_is_one_break_of_its_name(rows: list[tuple[str, ...]], name: str) -> None:
    told = reconciled(result(rows))

    assert {name} == set(names(told))
    assert all(one.then for one in told.breaks)


def test_a_truncated_file_is_damaged_and_short() -> None:
    file = result(WHOLE)
    cut = file._replace(rows=file.rows.head(3), problems=("file.line.truncated",))

    assert [breaks.DAMAGED_FILE, breaks.RESULT_SHORT] == names(reconciled(cut))


def test_a_damaged_file_is_only_noticed_once_its_chunk_came_whole() -> None:
    file = result([*WHOLE[:2], ("c-3", "0003", "", "", "")], "cut.csv")
    cut = file._replace(problems=("file.line.truncated",))
    unknown = result([], "page.csv")._replace(problems=("file.line.truncated",))

    early = reconciled(cut)
    settled = reconciled(cut, unknown, result(WHOLE))

    assert breaks.NEITHER_URL_NOR_ERROR in names(early)
    assert [breaks.DAMAGED_COPY, breaks.DAMAGED_FILE] == names(settled)
    assert [True, False] == [each.notice for each in settled.breaks]


def test_ends_of_links_that_cannot_be_read_are_a_break_for_each_form_and_the_links_count() -> None:
    days = ["28th of May", "11th of May", "next year", "2027-01-20", "2027-02-30"]
    rows = [link(number, day) for number, day in enumerate(days, 1)]

    settled = reconciled(result(rows))

    assert 5 == settled.rows.filter(state="linked").height
    assert {("99AA AA AAA", 2), ("AAAA AAAA", 1), ("9999-99-99", 1)} == {
        (each.place, each.rows) for each in settled.breaks if each.name == breaks.EXPIRY_UNREADABLE
    }


def test_forms_beyond_the_twentieth_are_one_break() -> None:
    forms = ["a" * length for length in range(1, 23)]
    answers = pl.DataFrame({"state": ["linked"] * 22, "expires_form": forms})

    found = list(expiry_breaks(answers))

    assert (21, ("other forms", 2)) == (len(found), (found[-1].place, found[-1].rows))


@pytest.mark.parametrize("name", ["download.csv", "again.csv"])
def test_a_cut_link_is_no_break_once_its_row_has_a_whole_link(name: str) -> None:
    rows = [link(1), link(2), ("c-3", "0003", "https://links.exa", "", "")]
    cut = result(rows, "download.csv")._replace(open_ended=True)
    refused = result([refusal(3), link(4), link(5)], name)
    whole = result([link(3), link(4), link(5)], name)

    assert breaks.LINK_CUT in names(reconciled(cut))
    assert breaks.LINK_CUT in names(reconciled(cut, refused))
    assert [] == names(reconciled(cut, whole))
    assert {"linked": 5, AWAITING: 5} == states(reconciled(cut, whole))


def test_swapped_and_merged_files_are_noticed_and_balance() -> None:
    second = [link(at) for at in range(6, 11)]
    swapped = reconciled(result(WHOLE, f"{RUN}-00002.csv"), result(second, f"{RUN}-00001.csv"))
    merged = reconciled(result([*WHOLE, *second]))

    assert [breaks.MISNAMED_FILE] * 2 == names(swapped)
    assert [breaks.MERGED_FILE] == names(merged)
    assert all(one.notice for one in (*swapped.breaks, *merged.breaks))
    assert {"linked": 9, "error": 1} == states(swapped) == states(merged)


def test_rows_of_another_run_are_left_to_that_run() -> None:
    later = "first-bank-20261121-aaaaaaaa"
    both = pl.concat([sent_rows(1), sent_rows(1, run=later, first=6)])
    files = attributed(
        [result([link(at) for at in range(1, 6)]), result([link(6), link(7)], "b.csv")], both
    )

    told = reconcile(both, files, TODAY)

    assert (
        {"linked": 5} == states(of_run(told, RUN)) == states(reconcile(sent_rows(1), files, TODAY))
    )
    assert [] == names(of_run(told, RUN))
    assert [breaks.RESULT_SHORT] == names(of_run(told, later))


def parts() -> list[ResultRows]:
    """Return the files of a bad night: whole, half, shuffled, swapped, foreign, odd,
    conflicting.
    """
    second = [link(at) for at in range(6, 10)]
    return [
        result(WHOLE, f"{RUN}-00001.csv"),
        result(WHOLE[:3], "half.csv"),
        result([*second, error("[object Object]")], f"{RUN}-00001 (1).csv"),
        result([error("[object Object]"), *second[::-1]], "again.csv"),
        result([link(2), link(99)], "late.csv"),
        result([link(901), link(902)], "foreign.csv"),
        result([*WHOLE, *second], "both.csv"),
        result([], "none.csv"),
    ]


PARTS = attributed(parts())


@given(st.lists(st.sampled_from(PARTS), max_size=12))
def test_order_and_repetition_of_the_files_change_nothing(files: list[Attributed]) -> None:
    once = list({one.digest: one for one in files}.values())
    once.sort(key=lambda one: one.digest)

    first, second = reconcile(sent_rows(), files, TODAY), reconcile(sent_rows(), once, TODAY)

    assert first.rows.equals(second.rows)
    assert first.chunks.equals(second.chunks)
    assert first.breaks == second.breaks


@given(st.lists(st.sampled_from(PARTS), max_size=8))
def test_every_sent_row_stands_exactly_once_whatever_comes_back(files: list[Attributed]) -> None:
    told = reconcile(sent_rows(), files, TODAY)

    assert list(range(1, 11)) == told.rows["row"].to_list()
    assert told.chunks.select(
        (pl.col("sent") == pl.sum_horizontal("linked", "error", "awaiting")).all()
    ).item()


def test_a_result_for_a_cancelled_chunk_is_a_break_and_its_rows_count_as_it_says() -> None:
    files = attributed([result([link(at) for at in range(1, 5)] + [refusal(5)])])

    told = reconcile(sent_rows(), files, TODAY, {(RUN, 1), (RUN, 2)})

    assert [("RESULT_FOR_CANCELLED", 5, "chunk 1", RUN)] == [
        (one.name, one.rows, one.place, one.run) for one in told.breaks
    ]
    assert {"linked": 4, "error": 1, "awaiting": 5} == states(told)


def test_a_row_whose_answer_settled_nothing_names_its_break() -> None:
    late = attributed(
        [
            result(
                [
                    link(1, day="2020-01-01"),
                    link(2, last_4="9999"),
                    link(3),
                    link(4, host="evil.example"),
                ]
            )
        ]
    )
    again = attributed([result([link(1)], "again.csv")])
    unlike = attributed([result([refusal(4)], "b.csv"), result([link(4)], "c.csv")])

    first, second, third = (
        reconcile(sent_rows(1), files, TODAY) for files in (late, [*late, *again], [*late, *unlike])
    )

    assert ["LINK_EXPIRED", "LAST4_MISMATCH", None, "URL_NOT_ALLOWED", None] == first.rows[
        "trouble"
    ].to_list()
    assert [None, "LAST4_MISMATCH", None, "URL_NOT_ALLOWED", None] == second.rows[
        "trouble"
    ].to_list()
    assert breaks.CONFLICTING_RESULT == third.rows["trouble"][3]
