"""Result rows find the sent row they answer by what they carry, and nothing is guessed."""

from __future__ import annotations

import json
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.extensions.simulator.error_shapes import SHAPES
from flows.extensions.simulator.validation import Fault
from flows.results.links import allowed
from schemas import breaks
from schemas.ledger import BROKEN, ERROR, LINKED
from tests.results.outcomes import (
    RUN,
    Row,
    attribute,
    attribute_all,
    error,
    link,
    refusal,
    result,
    sent_rows,
)

OBJECT = "[object Object]"


def placed(
    rows: list[Row], sent: pl.DataFrame | None = None, name: str = "download.csv"
) -> list[tuple[object, ...]]:
    """Return chunk, row, how, state and trouble of every result row."""
    told = attribute(result(rows, name), sent_rows() if sent is None else sent)
    return told.outcomes.select("chunk", "row", "how", "state", "trouble").rows()


def test_links_and_errors_that_name_their_cuid_find_their_rows_in_any_order() -> None:
    rows = [refusal(4), link(2), link(5), link(1), link(3)]

    assert [
        (1, 4, "error_cuid", ERROR, None),
        (1, 2, "cuid", LINKED, None),
        (1, 5, "cuid", LINKED, None),
        (1, 1, "cuid", LINKED, None),
        (1, 3, "cuid", LINKED, None),
    ] == placed(rows)


def test_a_sent_cuid_within_a_plain_text_is_found() -> None:
    rows = [link(1), error("Holder c-2 rejected (see manual)."), link(3)]

    assert (1, 2, "token", ERROR, None) == placed(rows)[1]


def test_a_text_with_two_open_cuids_is_not_attributed() -> None:
    rows = [link(1), error("rejected c-2 or c-4"), link(3)]

    assert (1, None, None, BROKEN, breaks.UNATTRIBUTED_ERROR) == placed(rows)[1]


def test_a_cuid_in_a_text_that_already_has_its_link_is_passed_over() -> None:
    rows = [link(1), error("rejected c-2, unlike c-1"), link(3)]

    assert (1, 2, "token", ERROR, None) == placed(rows)[1]


def test_position_counts_where_the_links_stand_as_they_were_sent() -> None:
    rows = [link(1), error(OBJECT), link(3), error(OBJECT), link(5)]

    assert [(1, 2, "position"), (1, 4, "position")] == [placed(rows)[at][:3] for at in (1, 3)]


def test_position_does_not_count_in_a_shuffled_file() -> None:
    rows = [link(3), error(OBJECT), link(1), error(OBJECT), link(5)]

    assert [breaks.UNATTRIBUTED_ERROR] * 2 == [placed(rows)[at][4] for at in (1, 3)]


def test_position_does_not_count_on_two_links_alone() -> None:
    rows = [link(1), error(OBJECT), link(3), error(OBJECT), error(OBJECT)]

    assert [breaks.UNATTRIBUTED_ERROR] * 3 == [placed(rows)[at][4] for at in (1, 3, 4)]


def test_the_last_candidate_is_found_by_elimination() -> None:
    rows = [link(5), error(OBJECT), link(3), link(2), link(1)]

    assert (1, 4, "elimination", ERROR, None) == placed(rows)[1]


def test_elimination_does_not_count_in_a_file_that_is_short() -> None:
    rows = [link(5), error(OBJECT), link(3), link(2)]

    assert breaks.UNATTRIBUTED_ERROR == placed(rows)[1][4]


def test_nothing_is_placed_by_order_in_a_file_with_wrong_last_four_digits() -> None:
    rows = [link(1), link(2), link(3), link(4, last_4="9999"), error(OBJECT)]

    assert (1, None, None, BROKEN, breaks.UNATTRIBUTED_ERROR) == placed(rows)[4]


@pytest.mark.parametrize(("wrong", "state"), [(1, LINKED), (2, LINKED), (3, BROKEN)])
def test_a_cuid_alone_counts_unless_more_digits_are_wrong_than_right(
    wrong: int, state: str
) -> None:
    without_digits = (link(10)[0], "", *link(10)[2:])
    rows = [link(1), link(2), *(link(3 + at, last_4="9999") for at in range(wrong)), without_digits]

    assert (10, state) == placed([*rows], sent_rows(1, 10))[-1][1::2]


def test_an_error_that_names_a_cuid_never_sent_is_not_placed_by_its_position() -> None:
    rows = [link(1), refusal(99), link(3), link(4), link(5)]

    assert (1, None, None, BROKEN, breaks.UNKNOWN_CUID) == placed(rows)[1]


def test_the_digits_of_a_row_that_was_never_sent_are_kept_for_whoever_asks_about_it() -> None:
    told = attribute(result([link(1), link(99)]), sent_rows())

    assert [("c-1", "0001"), ("c-99", "0099")] == told.outcomes.select("cuid", "last_4").rows()


def test_what_is_stored_of_a_row_to_tell_it_in_another_copy_is_the_same_in_every_version() -> None:
    told = attribute(result([link(1), refusal(2), ("c-3", "0003", "", "", "")]), sent_rows())

    known = [2568020945320197663, 16830572910777003748, 10127985722754057767]
    assert known == told.outcomes["content"].to_list()


@pytest.mark.parametrize(("names", "shown"), [("c-2", "c-2"), ("c-3", "[cuid]")])
def test_a_message_shows_the_cuid_of_its_own_row_and_of_no_other(names: str, shown: str) -> None:
    text = json.dumps({"cuid": names, "errors": [f"cuid {names} is invalid"]})

    told = attribute(result([("c-2", "0002", "", "", text)]), sent_rows())

    assert f"cuid {shown} is invalid" == told.outcomes["message"].item()


def test_other_last_four_digits_never_become_a_link() -> None:
    told = attribute(result([link(1, last_4="9999"), link(2)]), sent_rows()).outcomes

    assert [
        (1, BROKEN, breaks.LAST4_MISMATCH, None),
        (2, LINKED, None, "https://links.example/2"),
    ] == told.select("row", "state", "trouble", "url").rows()


def test_a_row_with_both_or_neither_of_link_and_error_settles_nothing() -> None:
    rows = [(*link(1)[:4], "odd"), ("c-2", "0002", "", "", "")]

    assert [breaks.URL_AND_ERROR, breaks.NEITHER_URL_NOR_ERROR] == [row[4] for row in placed(rows)]


@pytest.mark.parametrize(
    "row",
    [
        ("", "", "", "", ""),
        ("", "0002", "", "2027-01-20", ""),
        ("", "", "https://links.example/2", "", ""),
    ],
)
def test_a_row_that_names_nobody_and_has_no_error_is_a_break_of_its_own(row: Row) -> None:
    rows = [link(1), row, link(3)]

    assert (1, None, None, BROKEN, breaks.UNNAMED_ROW) == placed(rows)[1]


APOSTROPHES = (
    "O'Brien-7 was refused",
    "refused: 'O'Brien-7'",
    "Holder O'Brien-7.",
    "Error: cuid O'Brien-7 is not valid",
    "{'cuid': 'O'Brien-7', 'errors': ['no']",
    "{cuid: 'O\\'Brien-7', err",
    '"{\\"cuid\\":\\"O\'Brien-7\\",\\"err',
    "cuid O&#39;Brien-7 refused",
    "holder (O&#39;Brien-7) refused",
)


@pytest.mark.parametrize("text", APOSTROPHES)
def test_a_cuid_with_an_apostrophe_is_found_in_a_text_that_cannot_be_read(text: str) -> None:
    sent = sent_rows(1).with_columns(pl.col("cuid").replace("c-2", "O'Brien-7"))

    assert [(1, 1), (1, 2)] == [row[:2] for row in placed([link(1), error(text)], sent)]


def test_a_word_of_a_cuid_with_an_apostrophe_is_not_taken_for_another_cuid() -> None:
    sent = sent_rows(1).with_columns(pl.col("cuid").replace({"c-2": "O'Brien-7", "c-4": "Brien-7"}))

    assert (1, None, None, BROKEN, breaks.UNATTRIBUTED_ERROR) == placed(
        [link(1), error("O'Brien-7 refused")], sent
    )[1]


def test_a_cuid_with_an_apostrophe_does_not_block_the_proof_by_position() -> None:
    rows = [link(1), error("no such cuid as O'Neill's"), link(3), error(OBJECT), link(5)]
    sent = sent_rows(1).with_columns(pl.col("cuid").replace({"c-2": "O'Brien-7"}))

    assert (1, 4, "position") == placed(rows, sent)[3][:3]


def test_a_second_row_for_one_sent_row_is_one_too_many() -> None:
    assert [(1, 1, None), (1, None, breaks.RESULT_LONG)] == [
        (chunk, row, trouble) for chunk, row, _, _, trouble in placed([link(1), link(1)])
    ]


def test_a_file_of_another_issuer_is_foreign_whatever_its_name() -> None:
    rows = placed([link(901), link(902), error(OBJECT)], name=f"{RUN}-00001-result.csv")

    assert {(None, None, breaks.FOREIGN_FILE)} == {
        (chunk, row, trouble) for chunk, row, _, _, trouble in rows
    }


def test_a_foreign_file_whose_cuids_happen_to_be_ours_settles_nothing() -> None:
    rows = [
        link(1, last_4="9991"),
        link(2, last_4="9992"),
        refusal(3),
        refusal(4),
        link(5, last_4="9995"),
    ]

    assert {(BROKEN, breaks.LAST4_MISMATCH)} == {row[3:] for row in placed(rows)}


def test_a_word_of_a_foreign_file_that_happens_to_be_our_cuid_settles_nothing() -> None:
    with_links = placed([link(901), link(902), error("see c-1 of the manual")])
    without = placed([error("see c-1 of the manual"), error(OBJECT), error(OBJECT)])

    assert {breaks.FOREIGN_FILE} == {row[4] for row in (*with_links, *without)}


def test_a_file_of_plain_texts_that_name_our_cuids_is_ours() -> None:
    rows = [error("refused: c-7"), error("refused: c-6"), error(OBJECT)]

    assert [(2, 7, "token"), (2, 6, "token"), (2, None, None)] == [row[:3] for row in placed(rows)]


@pytest.mark.parametrize(("rows", "trouble"), [(4, None), (5, breaks.FOREIGN_FILE)])
def test_plain_texts_tell_a_chunk_where_half_of_a_file_names_its_cuids(
    rows: int, trouble: str | None
) -> None:
    named = [error("refused: c-7"), error("refused: c-6")]

    assert trouble == placed([*named, *[error(OBJECT)] * (rows - 2)])[0][4]


def test_a_file_of_mute_errors_belongs_to_the_chunk_it_is_named_after() -> None:
    named = placed([error(OBJECT)] * 5, name=f"card-links-{RUN}-00002-result.csv")
    nameless = placed([error(OBJECT)] * 5)

    assert {(2, None, breaks.UNATTRIBUTED_ERROR)} == {(row[0], row[1], row[4]) for row in named}
    assert {(None, None, breaks.FOREIGN_FILE)} == {(row[0], row[1], row[4]) for row in nameless}


def test_swapped_names_are_decided_by_the_rows() -> None:
    files = [
        result([link(at) for at in range(1, 6)], f"{RUN}-00002.csv"),
        result([link(at) for at in range(6, 11)], f"{RUN}-00001.csv"),
    ]

    told = attribute_all(files, sent_rows())

    assert [{1}, {2}] == [set(one.outcomes["chunk"]) for one in told]
    assert [(RUN, 2), (RUN, 1)] == [one.named for one in told]


def test_a_merged_file_is_taken_apart() -> None:
    rows = [link(at) for at in (7, 1, 3, 10, 2)] + [refusal(8)]

    assert [(2, 7), (1, 1), (1, 3), (2, 10), (1, 2), (2, 8)] == [row[:2] for row in placed(rows)]


def test_a_resubmitted_row_is_answered_in_the_run_the_rest_of_the_file_speaks_of() -> None:
    first, again = sent_rows(2), sent_rows(1, size=3, run="first-bank-20261121-aaaaaaaa")
    files = [result([link(at) for at in range(1, 6)]), result([link(at) for at in range(1, 4)])]

    told = attribute_all(files, pl.concat([first, again]))

    assert [{RUN}, {"first-bank-20261121-aaaaaaaa"}] == [set(one.outcomes["run"]) for one in told]


def test_a_merged_file_with_the_size_of_the_first_sending_answers_the_second_one() -> None:
    again, others = "first-bank-20261121-aaaaaaaa", "first-bank-20261121-bbbbbbbb"
    sendings = [sent_rows(1), sent_rows(1, 3, again), sent_rows(1, 2, others, first=11)]

    told = attribute(result([link(at) for at in (1, 2, 3, 11, 12)]), pl.concat(sendings))

    assert [again] * 3 + [others] * 2 == told.outcomes["run"].to_list()


@pytest.mark.parametrize("name", ["first-bank-20261121-aaaaaaaa-00001.csv", "download.csv"])
def test_a_merged_file_of_two_sendings_again_of_one_run_does_not_answer_that_run(
    name: str,
) -> None:
    again, others = "first-bank-20261121-aaaaaaaa", "first-bank-20261121-bbbbbbbb"
    sendings = [sent_rows(1, 9), sent_rows(1, 3, again), sent_rows(1, 2, others, first=4)]

    told = attribute(result([link(at) for at in range(1, 6)], name), pl.concat(sendings))

    assert [again] * 3 + [others] * 2 == told.outcomes["run"].to_list()


def test_a_card_named_once_too_often_says_nothing_of_another_sending_of_it() -> None:
    again = "first-bank-20261121-aaaaaaaa"
    rows = [*(link(at) for at in range(1, 6)), link(3, host="links.example/other")]
    sent = pl.concat([sent_rows(1), sent_rows(1, 5, again)])

    told = attribute(result(rows, f"{RUN}-00001.csv"), sent)

    assert [(RUN, at) for at in (1, 2, 3, 4, 5, None)] == told.outcomes.select("run", "row").rows()


def test_a_merged_file_of_two_sendings_of_the_same_cards_answers_both() -> None:
    again = "first-bank-20261121-aaaaaaaa"
    rows = [
        *(link(at) for at in range(1, 6)),
        *(link(at, host="other.example") for at in (4, 1, 3)),
    ]
    sent = pl.concat([sent_rows(1), sent_rows(1, 5, again)])

    told = attribute(result(rows), sent)

    assert 3 == told.outcomes.filter(run=RUN).height
    assert 5 == told.outcomes.filter(run=again).height


def test_a_merged_file_of_two_sendings_that_have_one_card_in_common_answers_both() -> None:
    again = "first-bank-20261121-aaaaaaaa"
    rows = [*map(link, range(1, 6)), *(link(at, host="other.example") for at in range(5, 10))]
    sent = pl.concat([sent_rows(1), sent_rows(1, 5, again, first=5)])

    told = attribute(result(rows), sent)

    assert [*[(RUN, at) for at in range(1, 6)], *[(again, at) for at in range(1, 6)]] == sorted(
        told.outcomes.select("run", "row").rows()
    )


@pytest.mark.parametrize(("more", "answers"), [(1, 0), (2, 2), (3, 3)])
def test_an_earlier_sending_is_answered_by_half_of_its_rows_at_least(
    more: int, answers: int
) -> None:
    again = "first-bank-20261121-aaaaaaaa"
    rows = [*map(link, range(1, 5)), *(link(at, host="other.example") for at in range(1, more + 1))]
    sent = pl.concat([sent_rows(1, 4), sent_rows(1, 4, again)])

    told = attribute(result(rows), sent)

    assert answers == told.outcomes.filter(run=RUN).height


def test_a_part_of_a_result_with_rows_that_were_not_sent_again_answers_the_first_sending() -> None:
    sendings = [sent_rows(1, 9), sent_rows(1, 3, "first-bank-20261121-aaaaaaaa")]

    told = attribute(result([link(at) for at in range(1, 6)]), pl.concat(sendings))

    assert {RUN} == set(told.outcomes["run"])


def test_so_does_a_file_with_strangers_that_has_its_size() -> None:
    again = "first-bank-20261121-aaaaaaaa"
    rows = [link(at) for at in (1, 2, 3, 98, 99)]

    told = attribute(
        result(rows, f"{again}-00001.csv"), pl.concat([sent_rows(1), sent_rows(1, 3, again)])
    )

    assert [again] * 3 == told.outcomes["run"].to_list()[:3]


def test_the_name_breaks_a_tie_between_two_runs() -> None:
    later = "first-bank-20261121-aaaaaaaa"
    sent = pl.concat([sent_rows(1), sent_rows(1, run=later)])

    told = attribute(result([link(1), link(2)], f"{later}-00001.csv"), sent)

    assert {later} == set(told.outcomes["run"])


def test_two_cards_of_one_cuid_with_the_same_last_4_each_get_their_row() -> None:
    sent = sent_rows(2, size=1).with_columns(
        pl.lit("c-1").alias("cuid"), pl.lit("0001").alias("last_4")
    )

    assert [(1, 1), (2, 2)] == [row[:2] for row in placed([link(1), link(1)], sent)]


def test_an_error_of_a_cuid_with_two_cards_takes_the_card_that_has_no_link() -> None:
    sent = sent_rows(2, size=1).with_columns(pl.lit("c-1").alias("cuid"))

    assert [(2, 2, LINKED), (1, 1, ERROR)] == [
        (chunk, row, state)
        for chunk, row, _, state, _ in placed([link(1, last_4="0002"), refusal(1)], sent)
    ]


@pytest.mark.parametrize(
    ("url", "fine"),
    [
        ("https://links.example/a?b=c", True),
        ("https://links.example", True),
        ("HTTPS://LINKS.EXAMPLE/a", True),
        ("https://links.example:443/a", True),
        ("https://eu.wild.example/a", True),
        ("https://wild.example/a", False),
        ("http://links.example/a", False),
        ("https://links.example.evil.example/a", False),
        ("https://links.example@evil.example/a", False),
        ("https://links.example:8443/a", False),
        ("https://evil.example/https://links.example/", False),
        ("https://linksxexample/a", False),
        ("https://links.example/a b", False),
        ("https://links.example\\@evil.example/", False),
        ("https://links.example/a\n", False),
        ("javascript:alert(1)", False),
    ],
)
def test_only_https_links_of_the_configured_hosts_are_links(url: str, fine: bool) -> None:
    frame = pl.DataFrame({"url": [url]})

    assert [fine] == frame.select(allowed("url", ["links.example", "*.wild.example"]))[
        "url"
    ].to_list()


def test_a_link_to_another_host_is_a_break_and_its_address_is_not_kept() -> None:
    told = attribute(result([link(1, host="evil.example")]), sent_rows()).outcomes

    assert (BROKEN, breaks.URL_NOT_ALLOWED, None) == told.select("state", "trouble", "url").row(0)


def test_an_echoed_card_number_is_nowhere_in_the_outcomes() -> None:
    card = "4111111111111111"
    rows = [
        refusal(1, f"card {card} is invalid"),
        link(2),
        error(f"lost {card}"),
        (card, "1111", "", "", "no"),
    ]

    told = attribute(result([*rows, (*link(3)[:3], card, "")]), sent_rows())

    assert card not in told.outcomes.write_json()


@given(st.permutations(range(1, 11)), st.lists(st.booleans(), min_size=10, max_size=10))
def test_every_result_row_comes_out_once_in_whatever_order(
    order: list[int], fails: list[bool]
) -> None:
    rows = [refusal(at) if fails[at - 1] else link(at) for at in order]

    told = attribute(result(rows), sent_rows()).outcomes

    assert order == told["row"].to_list()
    assert [ERROR if fails[at - 1] else LINKED for at in order] == told["state"].to_list()


FAULT = Fault("address", "postal_code", "format", "postal_code is not valid")


@st.composite
def nights(draw: st.DrawFn) -> list[list[tuple[int, Row]]]:
    """Draw the answers to two chunks: some rows fail in some shape; files cut, merged, reversed,
    with rows lost.
    """
    shapes = st.sampled_from([None, None, *SHAPES])
    failing = draw(st.lists(shapes, min_size=10, max_size=10))
    answered = [
        (at, error(SHAPES[shape](f"c-{at}", [FAULT])) if shape else link(at))
        for at, shape in enumerate(failing, 1)
    ]
    lost = draw(st.sets(st.integers(1, 10), max_size=2))
    cuts = sorted(draw(st.sets(st.sampled_from([2, 5, 8]))))
    kept = [
        [one for one in answered[start:end] if one[0] not in lost]
        for start, end in pairwise([0, *cuts, 10])
    ]
    return [file[::-1] if draw(st.booleans()) else file for file in kept]


@given(nights())
def test_no_row_is_ever_given_to_another_cardholder(files: list[list[tuple[int, Row]]]) -> None:
    told = attribute_all([result(row for _, row in file) for file in files], sent_rows())

    for file, one in zip(files, told, strict=True):
        truth = [at for at, _ in file]
        assert len(truth) == one.outcomes.height
        assert all(row in (None, at) for at, row in zip(truth, one.outcomes["row"], strict=True))


@given(nights())
def test_every_link_and_every_error_that_names_its_cuid_is_attributed(
    files: list[list[tuple[int, Row]]],
) -> None:
    told = attribute_all([result(row for _, row in file) for file in files], sent_rows())

    for file, one in zip(files, told, strict=True):
        named = [at for at, row in file if row[0] or f"c-{at}" in row[4]]
        assert set(named) <= set(one.outcomes["row"])
