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

from flows.extensions.init import control_records, dialect, fixed_width, keys, record_types
from flows.extensions.init.guess import Guess
from flows.extensions.init.keys import Key, Reading
from flows.extensions.init.record_types import FIELD
from flows.extensions.init.sample import Lines
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
    lines = Lines(["1,a"], f"TRL,{stated}", 101, True, Guess("encoding", "", ""))
    trailer = control_records.guess_trailer(lines, 100, ",")

    assert trailer is not None
    assert is_count == (trailer.key == "trailer")


@pytest.mark.parametrize(("right", "are_cards"), [(9, False), (10, True)])
def test_card_numbers_have_right_check_digits_in_more_than_nine_of_ten(
    right: int, are_cards: bool
) -> None:
    lines = many("4242424242424242", right, "4242424242424241", 10 - right)

    assert are_cards == fixed_width.have_cards(lines)
    assert are_cards == record_types._are_cards(lines)


@pytest.mark.parametrize(("dates", "have"), [(8, False), (9, False), (10, True)])
def test_records_have_an_expiry_in_more_than_nine_of_ten(dates: int, have: bool) -> None:
    rows = [["1", text] for text in many("11/27", dates, "x", 10 - dates)]

    assert have == record_types._have_dates(rows)


@pytest.mark.parametrize(("alike", "is_sized"), [(18, False), (19, True), (20, True)])
def test_nearly_all_records_of_a_type_have_one_size(alike: int, is_sized: bool) -> None:
    rows = [["1"] * size for size in [3] * alike + [4] * (20 - alike)]

    assert is_sized == record_types._is_sized(rows, "|")
    assert not record_types._is_sized([["1"]] * 20, "|")


@pytest.mark.parametrize(("types", "are_types"), [(1, False), (2, True), (8, True), (9, False)])
def test_a_file_has_records_of_two_to_eight_types(types: int, are_types: bool) -> None:
    rows: list[Sequence[str]] = [
        [f"{kind:02d}", *(["4242424242424242", "11/27"] if kind == 0 else [str(kind)] * (kind + 2))]
        for _ in range(2)
        for kind in range(types)
    ]

    found = record_types._divided("|", rows)

    assert are_types == (found is not None)


def test_the_column_that_joins_most_records_is_the_key() -> None:
    own = ["1", "2", "3", "4"]
    rows = {"A": ["0", "1", "2", "3"], "B": own, "C": ["x"] * 4}

    assert Key(1.0, False, "ID", "B") == record_types._best_key("ID", own, rows)
    assert record_types._best_key("ID", own, {"C": ["x"] * 4}) is None


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
    cells = {
        kind: {
            str(place): column
            for place, column in enumerate(zip(*map(str.split, texts), strict=True))
        }
        for kind, texts in {"row": own, **others}.items()
    }
    found = record_types._keys(cells, "row")
    return [{kind: key.share for kind, key in joining.items()} for joining in found]


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
    joining = {kind: Key(share, True, "ID", "ID") for kind, share in (("b", 0.9), ("c", 0.89))}

    settings = record_types._keyed(joining, "row")

    assert {"segment_key": "ID", "segment_optional": ["c"]} == settings


def test_spans_are_cut_where_others_begin_and_end_at_the_end_of_the_line() -> None:
    span = fixed_width.Span

    assert [span(1, 4), span(5, 5)] == record_types._cut([span(1, 5)], [span(5, 5)])
    assert [span(1, 2), span(3, 6)] == record_types._spans(["01ab  ", "01cd  "], 2)


class Drafted(NamedTuple):
    """A draft by its reading."""

    reading: Any
    others: Sequence[str]
    alone: Any = None


def drafted(monkeypatch: pytest.MonkeyPatch, order: int, *by_key: int) -> Drafted:
    """Return what is drafted where the readings by order and by keys join so many records."""
    sources = [{}, *({"segment_key": f"k{number}"} for number in range(len(by_key)))]
    readings = [
        Reading(source, 10, 10, joined, 0, pl.DataFrame())
        for source, joined in zip(sources, (order, *by_key), strict=True)
    ]
    monkeypatch.setattr(
        record_types, "_draft", lambda reading, others, *_: Drafted(reading.source, others)
    )
    draft: Drafted = cast(Any, record_types._best_draft)(readings, None, TODAY)
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


@pytest.mark.parametrize(("different", "share"), [(18, None), (19, 0.95), (20, 1.0)])
def test_a_key_is_another_in_nearly_every_record_of_a_type(
    different: int, share: float | None
) -> None:
    own = [f"{number}" for number in range(20)]

    key = record_types._best_key("ID", own, {"A": [f"{n % different}" for n in range(20)]})

    assert share == (key.share if key else None)


def test_a_reading_counts_what_is_joined_and_shows_the_first_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = pl.DataFrame({f"b.{FIELD}": [*"1234567"]})

    class Rows:
        height = 15
        tally = None

        def __iter__(self) -> Any:
            return iter([SimpleNamespace(rows=values[:2]), SimpleNamespace(rows=values[2:])])

    monkeypatch.setattr(keys, "FIRST", 3)
    monkeypatch.setattr(keys, "open_rows", lambda *_: Rows())

    reading = keys.read_all(BytesIO(), {}, "x.txt", [f"b.{FIELD}"])

    assert reading is not None
    assert (15, 7, 7, 0) == (reading.rows, reading.whole, reading.joined, reading.unused)
    assert ["1", "2", "3"] == reading.first.to_series().to_list()


@pytest.mark.parametrize(("rows", "is_reading"), [(15, False), (14, True), (13, True)])
def test_a_reading_is_one_where_half_of_its_rows_are_whole(
    monkeypatch: pytest.MonkeyPatch, rows: int, is_reading: bool
) -> None:
    reading = Reading({}, rows, 7, 7, 0, pl.DataFrame())
    monkeypatch.setattr(record_types, "_columns", lambda _: ({}, {}))
    monkeypatch.setattr(record_types, "_around", lambda *_: {})
    monkeypatch.setattr(record_types, "_joinings", lambda *_: [])
    monkeypatch.setattr(record_types, "read_all", lambda *_: reading)
    monkeypatch.setattr(record_types, "_best_draft", lambda readings, *_: readings)
    types = SimpleNamespace(fields={}, row="row")

    readings = cast(Any, record_types._drafted)(BytesIO(), "x.txt", None, types, TODAY)

    assert is_reading == bool(readings)
