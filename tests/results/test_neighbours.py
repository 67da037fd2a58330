"""Limits and precedence of what is made of results: the limit and its neighbours, the first and the
last, by the functions that hold them and a few values in memory.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.book.attempts import CANCELLED
from flows.results import intake, lineage, opening, partner_terms
from flows.results.breaks import BROKEN_ROW, row_breaks
from flows.results.decisions import SHOWN
from flows.results.disputes import REASONS, conflicting_rows, given_up_rows
from flows.results.error_text import DEPTH, _cuid_in, _identifier, _walk, read_error
from flows.results.error_trees import _inner
from flows.results.learned_forms import _extreme
from flows.results.links import LinkRules, judge_links
from flows.results.masking import LONGEST, mask, mask_host
from flows.results.problems import _words_of, describe
from flows.results.read import _why_no_result, read_cells
from flows.results.row_states import _LAST, REFUSED, _last
from flows.results.sent_rows import named_in, number_sent_rows
from schemas import breaks
from schemas.ledger import AWAITING, ERROR, LINKED
from tests.results.outcomes import RUN, sent_rows

SECOND = timedelta(seconds=1)


# Rows after all attempts, and decisions
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attempts", "last"),
    [
        ([LINKED, AWAITING, REFUSED], AWAITING),
        ([AWAITING, LINKED, CANCELLED], LINKED),
        ([AWAITING, REFUSED], AWAITING),
        ([ERROR, REFUSED, CANCELLED], REFUSED),
        ([CANCELLED, CANCELLED], CANCELLED),
    ],
)
def test_of_all_attempts_the_last_counts_that_has_or_awaits_a_link(
    attempts: list[str], last: str
) -> None:
    rows = pl.DataFrame({"row": [1] * len(attempts), "state": pl.Series(attempts, dtype=_LAST)})

    assert [(1, last)] == _last(rows).rows()


def test_of_two_decisions_that_a_row_is_lost_the_last_one_counts() -> None:
    sent = number_sent_rows(sent_rows(1))
    [decision, *_] = REASONS
    decided = pl.DataFrame({"spot": [1, 1], "decision": decision, "note": ["first", "last"]})
    typed = decided.cast({"spot": sent.rows.schema["spot"]})

    rows = given_up_rows(sent, sent.rows.clear().select("spot"), typed)

    assert ["last"] == rows["message"].to_list()


def test_a_conflict_is_of_the_last_file_that_answers_otherwise() -> None:
    names = ["a.csv", "c.csv", "b.csv"]
    of_row = {"spot": 1, "run": RUN, "chunk": 1, "row": 1, "cuid": "c", "last_4": "1"}
    urls = [f"https://links.example/{name}" for name in names]
    settled = pl.DataFrame({"result": names, "url": urls}).with_columns(
        state=pl.lit(LINKED), **{name: pl.lit(value) for name, value in of_row.items()}
    )
    decided = pl.DataFrame(schema={"kind": pl.String, "spot": pl.Int32, "decision": pl.String})

    [conflict] = conflicting_rows(settled, decided).rows(named=True)

    assert names[-1] == conflict["result"]


def test_a_break_names_its_first_rows() -> None:
    rows = [{"kind": breaks.LAST4_MISMATCH, "run": RUN, "chunk": 1, "row": at} for at in range(99)]

    [told] = row_breaks(pl.DataFrame(rows[::-1], BROKEN_ROW))

    assert f"chunk 1, rows {', '.join(map(str, range(SHOWN)))}" == told.place


# Files
# --------------------------------------------------------------------------------------------------


def test_a_file_of_several_purged_runs_names_the_first() -> None:
    runs = {"bank-20261119-00000001", "bank-20261120-00000002"}
    key = f"bank/results/{'_'.join(sorted(runs))}-00001.csv"
    file = cast(Any, SimpleNamespace(_purged_runs=lambda _: runs, lost_as="", result=key))

    assert f"run {min(runs)} is purged" == intake.IngestedFile._why_lost(file, runs)


def test_rows_of_no_run_are_lost_as_the_first_break_says() -> None:
    rows = pl.DataFrame(
        {"run": ["r1", "r2", None], "row": [1, None, None], "trouble": [None, "B", "A"]}
    )

    assert "A" == intake._lost_as(rows)


def test_runs_come_before_those_they_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [cast(Any, SimpleNamespace(id=f"r{number}")) for number in range(3)]
    monkeypatch.setattr(lineage, "repeated_runs", lambda run: runs[: int(run.id[1:])][::-1])

    assert ["r2", "r1", "r0"] == [run.id for run in lineage.newest_first(runs)]


def test_what_to_do_about_a_file_is_said_of_its_last_problem() -> None:
    problems = ["file.line.truncated", "file.content.missing"]

    said = [describe(problems)[1], describe(problems[::-1])[1]]

    assert [_words_of(problem).then for problem in problems[::-1]] == said
    assert said[0] != said[1]


# Texts
# --------------------------------------------------------------------------------------------------


def test_a_text_is_kept_whole_up_to_its_longest() -> None:
    words = "code " * (LONGEST // 5 - 1)

    kept = [mask(words + end) for end in ("yes", "code?", "status")]

    assert [f"{words}yes", f"{words}code?", f"{words}stat…"] == kept


def test_a_host_is_kept_up_to_the_longest_text() -> None:
    host = f"{'a' * (LONGEST - 8)}.example"

    assert [LONGEST, True] == [len(host), mask_host(host) == host]
    assert mask_host(f"a{host}") != f"a{host}"


def test_an_object_within_words_is_from_its_first_bracket_to_its_last() -> None:
    texts = ['no {"a": [1]} ok', 'no [{"a": 1}] ok', '{"a": [1]} ok', "no [1] ok"]

    inner = [_inner(text) for text in texts]

    assert ['{"a": [1]}', '[{"a": 1}]', '{"a": [1]}', "[1]"] == inner


def test_a_number_may_be_a_cuid_up_to_forty_digits() -> None:
    numbers = [10**40 - 1, 10**40, 10**40 + 1]

    assert [True, True, False] == [_identifier(number) is not None for number in numbers]


def test_a_tree_is_read_down_to_its_depth() -> None:
    def nested(depth: int, leaf: object) -> object:
        return leaf if not depth else [nested(depth - 1, leaf)]

    depths = (DEPTH - 1, DEPTH, DEPTH + 1)

    assert [True, True, False] == [bool(_cuid_in(nested(at, {"cuid": "c"}))) for at in depths]
    assert [True, True, False] == [bool([*_walk(nested(at, "no"))]) for at in depths]


def test_of_two_fields_that_are_spelled_alike_the_first_counts() -> None:
    [fault, *_] = _walk({"message": "first", "Message": "second"})

    assert "first" == fault.message


def test_a_key_that_comes_again_begins_a_new_fault() -> None:
    text = " ".join(
        f"property: {name}, message: wrong {name};" for name in ("zip", "city", "state")
    )

    _, faults = read_error(text)

    assert [(("zip",), "wrong zip"), (("city",), "wrong city"), (("state",), "wrong state")] == [
        (fault.path, fault.message) for fault in faults
    ]


def test_the_names_on_a_path_are_read_from_its_end() -> None:
    assert ["c", "b", "d", "a"] == partner_terms._names_on(("a.d", "b[c]"))


def test_of_the_runs_that_a_name_may_mean_the_one_with_most_words_is_the_likeliest() -> None:
    named = named_in("out-our-bank-20261120-0123abcd-00007.csv")

    runs = ["bank", "our-bank", "out-our-bank"]
    assert [("", 7), *((f"{run}-20261120-0123abcd", 7) for run in runs)] == named


@pytest.mark.parametrize(("lines", "is_read"), [(2, True), (3, True), (4, False)])
def test_a_file_may_have_as_many_lines_as_the_most_whatever_ends_them(
    monkeypatch: pytest.MonkeyPatch, lines: int, is_read: bool
) -> None:
    monkeypatch.setattr(opening, "LINES", 3)

    for end in ("\n", "\r\n"):
        file = read_cells(
            end.join(["cuid,url,error", *["a,b,"] * (lines - 1), ""]).encode(), "x.csv"
        )

        assert is_read == (opening.LINES_MANY not in file.problems)


@pytest.mark.parametrize(("delimiters", "is_told"), [(4, False), (5, True), (6, True)])
def test_a_line_with_more_columns_than_the_most_is_told_so(
    monkeypatch: pytest.MonkeyPatch, delimiters: int, is_told: bool
) -> None:
    monkeypatch.setattr(opening, "COLUMNS", 5)

    problems = [*_why_no_result(b"", ["," * delimiters])]

    assert is_told == (opening.COLUMNS_MANY in problems)


# Forms of links
# --------------------------------------------------------------------------------------------------


HOST = "https://l.example/"
CARD = "4242424242424242"
NO_CARD = "4242424242424241"
LETTERS = "abcdefghijklmnop"


def judged(*urls: str, last_4: str | None = None, open_ended: bool = False) -> list[int]:
    """Return the places of the links of one file that are broken."""
    rows = pl.DataFrame(
        {
            "result_row": range(len(urls)),
            "file": 0,
            "url": urls,
            "last_4_sent": pl.Series([last_4] * len(urls), dtype=pl.String),
            "is_last": [place == len(urls) - 1 for place in range(len(urls))],
            "open_ended": [open_ended and place == len(urls) - 1 for place in range(len(urls))],
        }
    )
    return judge_links(rows, LinkRules(["l.example"]))["result_row"].to_list()


def test_a_last_link_without_a_line_end_is_whole_where_none_is_longer() -> None:
    others = [f"{HOST}12345", f"{HOST}123"]

    broken = [
        judged(*others, f"{HOST}{'1234567'[:size]}", open_ended=True) for size in (3, 4, 5, 6)
    ]

    assert [[2], [2], [], []] == broken


@pytest.mark.parametrize(("usual", "departing"), [(3, []), (4, []), (5, [5, 6, 7, 8])])
def test_a_link_departs_from_the_outline_that_more_than_half_of_its_file_have(
    usual: int, departing: list[int]
) -> None:
    outlined = [f"{HOST}l/{number}" for number in range(1, usual + 1)]
    others = [f"{HOST}{path}/1" for path in ("a/b", "a/b", "a/b/c", "a/b/c/d")]

    assert departing == judged(*outlined, *others)


def test_a_usual_length_is_not_beyond_itself() -> None:
    lengths = Counter(range(1, 31))

    assert [30, 1] == [_extreme(lengths | Counter({end: 2}), end) for end in (30, 1)]


@pytest.mark.parametrize(("usual", "broken"), [(2, []), (3, [0])])
def test_a_number_in_a_link_of_another_length_than_more_than_half_have_is_a_card(
    usual: int, broken: list[int]
) -> None:
    others = [f"{HOST}{letter}" for letter in "abc"[:usual]]

    assert broken == judged(f"{HOST}{CARD}", f"{HOST}abc", *others)


@pytest.mark.parametrize(
    ("cards", "others", "letters", "is_broken"),
    [
        (12, 0, 12, False),  # half of the links have numbers
        (13, 0, 12, True),
        (6, 6, 0, False),  # half of the numbers are those of cards
        (6, 5, 0, True),
        (5, 4, 0, False),  # five may be chance
        (25, 75, 0, False),  # of the first fifty
        (26, 74, 0, True),
    ],
)
def test_numbers_are_cards_where_more_than_half_of_the_links_have_some_and_most_are_right(
    cards: int, others: int, letters: int, is_broken: bool
) -> None:
    keys = [CARD] * cards + [NO_CARD] * others + [LETTERS] * letters

    assert [*range(cards)] * is_broken == judged(*(f"{HOST}{key}" for key in keys))


@pytest.mark.parametrize(
    ("own", "longer", "letters", "is_broken"),
    [(1, 0, 1, True), (2, 0, 1, True), (2, 1, 1, False), (3, 0, 1, True)],
)
def test_the_own_number_within_longer_ones_is_chance_where_half_of_the_links_are_longer(
    own: int, longer: int, letters: int, is_broken: bool
) -> None:
    keys = [f"9{CARD}"] * own + [f"9{NO_CARD}"] * longer + [f"x{LETTERS}"] * letters

    broken = judged(*(f"{HOST}{key}" for key in keys), last_4="4242")

    assert [*range(own)] * is_broken == broken
