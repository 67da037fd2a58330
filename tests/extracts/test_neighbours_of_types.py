"""Limits and precedence of what is guessed of lines, fields and record types: the limit and its
neighbours, and which of two readings wins, in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from io import BytesIO
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import polars as pl
import pytest

from flows.extensions.init import (
    dialect,
    fixed_width,
    trailer_guess,
    type_guess,
    type_layout,
    typed_lines,
)
from flows.extensions.init.guess import Guess
from flows.extensions.init.sample import Lines
from flows.extensions.init.type_layout import FIELD
from flows.extracts.errors import HeaderError

TODAY = date(2026, 11, 20)


def many(text: str, times: int, other: str, others: int) -> list[str]:
    return [text] * times + [other] * others


# Lines
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alike", "fields"), [(1, 0), (2, 3), (3, 3)])
def test_a_delimiter_divides_at_least_half_of_the_lines_into_three_fields(
    alike: int, fields: int
) -> None:
    division = dialect._division(many("a,b,c", alike, "a,b", 4 - alike), "doubled")

    assert fields == (division.fields if division else 0)


def test_the_delimiter_that_divides_more_lines_wins() -> None:
    division = dialect._division(["a;b;c,d,e", "a;b;c,d,e", "a;b;c"], "doubled")

    assert division is not None
    assert ";" == division.delimiter


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        ("HAAAT", "AAA"),
        ("HAAT", "HAA"),
        ("HAT", "HAT"),
        ("AAAT", "AAA"),
        ("HAAA", "AAA"),
        ("AAT", "AAT"),
        ("HAA", "HAA"),
        ("AAAA", "AAAA"),
    ],
)
def test_a_first_and_a_last_line_that_begin_like_no_other_are_no_rows(
    lines: str, rows: str
) -> None:
    assert [*rows] == dialect._alike([*lines])


@pytest.mark.parametrize(
    ("stated", "is_count"), [(80, False), (81, True), (100, True), (101, False)]
)
def test_a_trailer_may_count_records_that_span_lines(stated: int, is_count: bool) -> None:
    count = trailer_guess._count(f"TRL,{stated}", 100, ",")

    assert is_count == (count is not None)


@pytest.mark.parametrize(("right", "are_cards"), [(9, False), (10, True)])
def test_card_numbers_have_right_check_digits_in_more_than_nine_of_ten(
    right: int, are_cards: bool
) -> None:
    lines = many("4242424242424242", right, "4242424242424241", 10 - right)

    assert are_cards == fixed_width.have_cards(lines)
    assert are_cards == typed_lines._are_cards(lines)


@pytest.mark.parametrize(("dates", "have"), [(8, False), (9, False), (10, True)])
def test_records_have_an_expiry_in_more_than_nine_of_ten(dates: int, have: bool) -> None:
    rows = [["1", text] for text in many("11/27", dates, "x", 10 - dates)]

    assert have == typed_lines._have_dates(rows)


@pytest.mark.parametrize(("alike", "is_sized"), [(18, False), (19, True), (20, True)])
def test_nearly_all_records_of_a_type_have_one_size(alike: int, is_sized: bool) -> None:
    rows = [["1"] * size for size in [3] * alike + [4] * (20 - alike)]

    assert is_sized == typed_lines._is_sized(rows, "|")
    assert not typed_lines._is_sized([["1"]] * 20, "|")


@pytest.mark.parametrize(("types", "are_types"), [(1, False), (2, True), (8, True), (9, False)])
def test_a_file_has_records_of_two_to_eight_types(types: int, are_types: bool) -> None:
    rows: list[Sequence[str]] = [
        [f"{kind:02d}", *(["4242424242424242", "11/27"] if kind == 0 else [str(kind)] * (kind + 2))]
        for _ in range(2)
        for kind in range(types)
    ]

    found = typed_lines._types_of(typed_lines._Division("|", rows))

    assert are_types == (found is not None)


def test_the_place_that_joins_most_records_is_the_key() -> None:
    own = {"1", "2", "3", "4"}
    rows = [["02", f"{number}", f"{number + 1}", "x"] for number in range(4)]

    assert (1.0, 2) == type_layout._best_place(rows, own)
    assert (0.0, 0) == type_layout._best_place([["02", "x"]] * 4, own)


def test_a_header_has_names_in_four_of_five_columns() -> None:
    division = dialect._Division(1, 5, ",")

    assert 5 == len(dialect._header(["a,b,c,d,"], division, "x.csv").names)
    with pytest.raises(HeaderError):
        dialect._header(["a,b,c,,"], division, "x.csv")


@pytest.mark.parametrize(
    ("width", "others", "is_fixed"), [(30, 0, False), (31, 0, True), (31, 3, True), (31, 4, False)]
)
def test_lines_are_of_fixed_width_where_nearly_all_are_long_and_equally_so(
    width: int, others: int, is_fixed: bool
) -> None:
    line = "4242424242424242 Ada".ljust(width, "x")
    sampled = [line] * (20 - others) + ["y" * number for number in range(1, others + 1)]
    encoding = Guess("encoding", '"utf-8"', "")

    def is_read() -> bool:
        try:
            dialect._fixed(Lines(sampled, line, 20, True, encoding), "x.txt")
        except HeaderError:
            return False
        return True

    assert is_fixed == is_read()


@pytest.mark.parametrize(
    ("before", "here", "follows"),
    [(0.004, 0.04, True), (0.005, 0.04, False), (0.004, 0.03, False)],
)
def test_a_field_begins_behind_a_gap(before: float, here: float, follows: bool) -> None:
    positions = [fixed_width._Position(filled, False, False) for filled in (before, here)]

    assert follows == fixed_width._follows_gap(positions, 1)


def test_fields_around_a_card_number_are_cut_up_to_the_end_of_the_line() -> None:
    line = "ab1234x " + "4242424242424242" + "1127123"

    spans = fixed_width.field_spans([line, line.replace("ab", "cd")])

    assert [(1, 2), (3, 6), (7, 8), (9, 24), (25, 28), (29, 31)] == [tuple(s) for s in spans]


def key_places(own: Sequence[str], **others: Sequence[str]) -> list[dict[str, float]]:
    """Return the shares of the keys that join records of these types to those of the rows."""
    types = {"row": own, **others}
    fields = {kind: [[kind, *text.split()] for text in texts] for kind, texts in types.items()}
    return [key.shares for key in type_layout._keys(fields, "row")]


def test_a_key_joins_half_of_the_rows_to_a_type_and_a_tenth_to_each_other() -> None:
    own = [f"k{number}" for number in range(10)]

    half = key_places(own, b=own[:5])
    fewer = key_places(own, b=own[:4])
    tenth = key_places(own, b=own[:5], c=["k0"])
    none = key_places(own, b=own[:5], c=["x"])
    one_value = key_places(["k", "k"], b=["k"])

    assert [[{"b": 0.5}], [], [{"b": 0.5, "c": 0.1}], [], []] == [
        half,
        fewer,
        tenth,
        none,
        one_value,
    ]


def test_the_key_that_joins_most_to_some_type_comes_first() -> None:
    own = [f"k{number} i{number}" for number in range(10)]
    most = [f"k{number}" for number in range(10)]
    several = [f"i{number}" for number in range(6)]

    shares = key_places(own, b=[*several, *most], c=[*several, "k0"])

    assert sorted(shares, key=lambda share: -max(share.values())) == shares
    assert 2 == len(shares)


def test_a_type_is_optional_where_less_than_nine_in_ten_rows_have_it() -> None:
    key = type_layout.SegmentKey({"row": 1, "b": 1, "c": 1}, {"b": 0.9, "c": 0.89})
    names = {kind: ["TYPE", "ID"] for kind in ("row", "b", "c")}
    types = typed_lines.RecordTypes({}, "row", "", "|")

    settings = type_layout.keyed(key, type_layout.Layout({}, names, []), types)

    assert {"segment_key": "ID", "segment_optional": ["c"]} == settings


def test_spans_are_cut_where_others_begin_and_end_at_the_end_of_the_line() -> None:
    span = fixed_width.Span

    assert [span(1, 4), span(5, 5)] == type_layout._cut([span(1, 5)], [span(5, 5)])
    assert [span(1, 2), span(3, 6)] == type_layout._spans(["01ab  ", "01cd  "], 2)


class Drafted(NamedTuple):
    """A draft by its reading."""

    reading: Any
    others: Sequence[str]
    alone: Any = None


def drafted(monkeypatch: pytest.MonkeyPatch, order: int, *by_key: int) -> Drafted:
    """Return what is drafted where the readings by order and by keys join so many records."""
    joined = iter([order, *by_key])

    def reading(_: Any, source: Any, __: str) -> Any:
        return type_guess._Reading(source, 10, 10, next(joined), pl.DataFrame())

    keys = [f"k{number}" for number in range(len(by_key))]
    layout = SimpleNamespace(source={}, keys=keys)
    monkeypatch.setattr(type_guess, "_reading", reading)
    monkeypatch.setattr(type_guess, "delimited", lambda _: layout)
    monkeypatch.setattr(type_guess, "_around", lambda *_: {})
    monkeypatch.setattr(type_guess, "keyed", lambda key, *_: {"segment_key": key})
    monkeypatch.setattr(
        type_guess, "_draft", lambda reading, others, *_: Drafted(reading.source, others)
    )
    types = typed_lines.RecordTypes({}, "row", "", "|")
    draft: Drafted = cast(Any, type_guess._drafted)(None, "x", None, types, TODAY)
    return draft


@pytest.mark.parametrize(
    ("order", "by_key", "source", "others"),
    [
        (6, [5], {}, ()),
        (5, [5], {"segment_key": "k0"}, [""]),
        (3, [5], {"segment_key": "k0"}, [""]),
        (5, [10], {"segment_key": "k0"}, []),
        (6, [10], {"segment_key": "k0"}, [""]),
        (0, [4, 9], {"segment_key": "k1"}, ['"k0"']),
    ],
)
def test_types_are_joined_by_the_key_that_joins_most_where_their_order_joins_no_more(
    monkeypatch: pytest.MonkeyPatch,
    order: int,
    by_key: Sequence[int],
    source: dict[str, str],
    others: Sequence[str],
) -> None:
    draft = drafted(monkeypatch, order, *by_key)

    assert (source, others) == (draft.reading, draft.others)


@pytest.mark.parametrize(("different", "share"), [(18, 0.0), (19, 0.95), (20, 1.0)])
def test_a_key_is_another_in_nearly_every_record_of_a_type(different: int, share: float) -> None:
    own = {f"{number}" for number in range(20)}
    rows = [["b", f"{number % different}"] for number in range(20)]

    assert share == type_layout._best_place(rows, own)[0]


@pytest.mark.parametrize(("rows", "is_reading"), [(15, False), (14, True), (13, True)])
def test_a_reading_is_one_where_half_of_its_rows_are_whole_and_shows_the_first(
    monkeypatch: pytest.MonkeyPatch, rows: int, is_reading: bool
) -> None:
    values = pl.DataFrame({f"b.{FIELD}": [*"1234567"]})

    class Rows:
        height = rows

        def __iter__(self) -> Any:
            return iter([SimpleNamespace(rows=values[:2]), SimpleNamespace(rows=values[2:])])

    monkeypatch.setattr(type_guess, "FIRST", 3)
    monkeypatch.setattr(type_guess, "open_rows", lambda *_: Rows())
    monkeypatch.setattr(
        type_guess,
        "source_settings",
        lambda: SimpleNamespace(model_validate=lambda source: source),
    )
    source = {"segments": ["row", "b"], "segment_row": "row"}

    reading = type_guess._reading(BytesIO(), source, "x.txt")

    assert is_reading == (reading is not None)
    if reading is not None:
        assert (7, 7) == (reading.whole, reading.joined)
        assert ["1", "2", "3"] == reading.first.to_series().to_list()
