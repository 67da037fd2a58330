"""Limits of workbooks, of records of a mainframe and of copybooks: the limit and its neighbours."""

from __future__ import annotations

import re
import zipfile
from contextlib import nullcontext
from io import BytesIO
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.errors import ExtractError
from flows.extensions.formats import fields, framing, record_layout, sampling, workbook
from flows.extensions.formats.copybook import CopybookError, read_copybook
from flows.extensions.formats.fields import FieldReader
from flows.extensions.formats.record_layout import Field, read_layout
from flows.extensions.formats.record_types import RecordTypes
from flows.extensions.formats.sampling import sampled
from flows.extensions.formats.settings import FormatSettings
from flows.extensions.init.record_sample import Copybook, sample_of_form
from flows.extracts.rows import open_rows
from schemas.source import problem_of_spans


@pytest.mark.parametrize(
    ("number", "text"),
    [(10**15 - 1, "999999999999999"), (10**15, None), (-(10**15), None), (1.5, "1.5")],
)
def test_a_number_of_a_cell_has_all_its_digits_below_a_limit(number: float, text: Any) -> None:
    assert text == workbook._number(number)


def test_columns_have_letters() -> None:
    assert ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"] == [
        workbook._letters(column) for column in (0, 25, 26, 51, 52, 701, 702)
    ]


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_workbook_may_have_as_many_bytes_and_parts_as_the_most(
    monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as parts:
        parts.writestr("xl/workbook.xml", b"12345")
        parts.writestr("xl/other.xml", b"12345")
    size = len(content.getvalue())

    def problem(**limits: int) -> bool:
        with monkeypatch.context() as limited:
            for name, limit in limits.items():
                limited.setattr(workbook, name, limit)
            try:
                workbook._check_size(content.getvalue(), "a.xlsx")
            except ExtractError:
                return True
            return False

    limits = {"LARGEST": size, "LARGEST_UNPACKED": 10, "MOST_PARTS": 2}
    refused = [problem(**{name: limit - more}) for name, limit in limits.items()]

    assert [more == 1] * 3 == refused


def test_of_a_workbook_that_is_too_large_more_is_read_than_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workbook, "LARGEST", 8)
    monkeypatch.setattr(workbook, "_PIECE", 4)

    assert [7, 8, 9, 12] == [len(workbook._content(BytesIO(bytes(size)))) for size in (7, 8, 9, 99)]


@pytest.mark.parametrize(("word", "length"), [(b"\0\3\0\0", 0), (b"\0\4\0\0", 4), (b"\0\5\0\0", 5)])
def test_a_record_may_be_empty_but_for_its_descriptor_word(word: bytes, length: int) -> None:
    def read() -> int:
        try:
            return framing._record_length(word, 0, 0)
        except framing._Fault:
            return 0

    assert length == read()


def test_a_segment_of_a_spanned_record_is_named_however_short() -> None:
    with pytest.raises(framing._Fault) as refused:
        framing._record_length(b"\0\4\1\0", 0, 0)

    assert "spanned" in str(refused.value.args)


@pytest.mark.parametrize(
    ("length", "is_block"), [(8, False), (9, True), (1 << 24, True), ((1 << 24) + 1, False)]
)
def test_a_block_has_a_record_and_a_longest_length(length: int, is_block: bool) -> None:
    word = length | 1 << 31

    def read() -> bool:
        try:
            return framing._block_length(word.to_bytes(4, "big"), 0, 0) == length
        except framing._Fault:
            return False

    assert is_block == read()


def numbers(kind: str, raw: bytes, size: int, **field: Any) -> list[str | None]:
    """Return what fields of this kind and size say, `wrong` for those that cannot be read."""
    described = Field("N", 0, size, kind, **field)
    reader = FieldReader([described], "cp037", short=False)
    records = np.frombuffer(raw, np.uint8).reshape(-1, size)
    cells = reader.read(records, np.full(len(records), size, np.int64))
    texts = cells.rows["N"].to_list()
    return [
        "wrong" if wrong != fields.NO_FIELD else text
        for wrong, text in zip(cells.wrong.tolist(), texts, strict=True)
    ]


def test_a_binary_number_has_as_many_digits_as_its_picture() -> None:
    values = [-1000, -999, -1, 0, 999, 1000]
    raw = b"".join(value.to_bytes(2, "big", signed=True) for value in values)

    signed = numbers("binary", raw, 2, digits=3, signed=True)

    assert ["wrong", "-999", "-001", "000", "999", "wrong"] == signed


def test_a_packed_number_has_decimal_digits_and_a_sign() -> None:
    raw = bytes.fromhex("999f 99af 9a9f 9999 000c 123a 123d")

    packed = numbers("packed", raw, 2, digits=3, signed=True)

    assert ["999", "wrong", "wrong", "wrong", "000", "123", "-123"] == packed


def test_a_zoned_number_has_decimal_digits() -> None:
    raw = bytes.fromhex("f9f9 f0f9 f9fa")

    assert ["99", "09", "wrong"] == numbers("zoned", raw, 2, digits=2)


@pytest.mark.parametrize(("decimals", "text"), [(0, "123"), (1, "12.3"), (2, "1.23"), (3, "0.123")])
def test_a_point_stands_behind_one_digit_at_least(decimals: int, text: str) -> None:
    raw = bytes.fromhex("f1f2f3")

    assert [text] == numbers("zoned", raw, 3, digits=3, decimals=decimals)


def test_a_record_that_ends_before_behind_or_within_a_field_lacks_it_or_is_refused() -> None:
    described = [Field("A", 0, 2, "text"), Field("B", 2, 2, "text")]
    records = np.tile(np.frombuffer("abcd".encode("cp037"), np.uint8), (3, 1))
    reader = FieldReader(described, "cp037", short=False)

    cells = reader.read(records, np.array([2, 3, 4], np.int64))

    assert ["ab", "ab", "ab"] == cells.rows["A"].to_list()
    assert [None, None, "cd"] == cells.rows["B"].to_list()
    assert [False, True, False] == (cells.wrong != fields.NO_FIELD).tolist()


def test_what_a_record_lacks_is_filled_from_its_end_on() -> None:
    frame = framing.Frame(b"abcde", np.array([0, 2]), np.array([2, 3]), 0)

    assert [[*b"ab@"], [*b"cde"]] == frame.matrix(3, ord("@")).tolist()


def test_a_last_record_may_be_empty() -> None:
    cut = framing._Variable(framing.Framing("V", 9, "x.dat"))

    starts, lengths, place = cut(b"\0\5\0\0A\0\4\0\0")

    assert ([4, 9], [1, 0], 9) == (starts.tolist(), lengths.tolist(), place)


@pytest.mark.parametrize(("longest", "is_short"), [(b"", False), (b"a ", True)])
def test_a_record_is_short_where_it_lacks_something(longest: bytes, is_short: bool) -> None:
    copybook = "01 R.\n   05 A PIC X(2).\n   05 B PIC X(2).\n"
    texts = [b"abcd", longest or b"efgh", b"ijkl"]
    words = [(len(text) + 4).to_bytes(2, "big") + b"\0\0" for text in texts]
    data = b"".join(word + text for word, text in zip(words, texts, strict=True))

    taken = sampled(BytesIO(data), "x.dat", ("x.cpy", copybook))

    assert taken is not None
    assert is_short == ("short_records" in taken.settings)


def test_few_letters_tell_code_pages_apart() -> None:
    letters = sampling._different_letters()

    assert {0x4A} <= letters
    assert letters.isdisjoint("ABYZ09".encode("cp037"))


THREE_TYPES = """
01 A. 05 TYPE PIC X(2).
      05 REGION PIC X(2).
01 B. 05 TYPE PIC X(2).
      05 BRANCH PIC X(2).
01 C. 05 TYPE PIC X(2).
      05 CARD PIC X(2).
"""


def test_each_row_has_what_is_above_it_by_its_type_in_the_next_blocks_too() -> None:
    settings = {
        "record_format": "F",
        "copybook": THREE_TYPES,
        "segment_field": "TYPE",
        "segments": {"01": "A", "02": "B", "03": "C"},
        "segment_row": "03",
    }
    source = FormatSettings.model_validate(settings)

    blocks = [*open_rows(BytesIO(b"01R102B103C103C203C3"), source, "x.dat", block=4)]

    rows = pl.concat(block.rows for block in blocks).select("CARD", "REGION", "BRANCH")
    assert [(card, "R1", "B1") for card in ("C1", "C2", "C3")] == rows.rows()
    assert 1 < len(blocks)


RECORD_OF_EIGHT = "01 R.\n   05 A PIC X(8).\n"


@pytest.mark.parametrize("first", [3, 4, 5])
def test_header_and_trailer_records_are_no_rows_however_many_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr(sampling, "FIRST", first)
    data = b"HDR 2   1111AAAA2222BBBBTRL 2   "

    taken = sample_of_form(BytesIO(data), "x.dat", Copybook("x.cpy", RECORD_OF_EIGHT))
    assert taken is not None

    [trailer] = [guess.value for guess in taken.guesses if guess.key == "trailer"]
    assert trailer.startswith('"^TRL')
    assert [("1111AAAA", "2222BBBB")] == [each.values for each in taken.columns]


@pytest.mark.parametrize(("longest", "fits"), [(b"", True), (b"2222BBBBB", False)])
def test_no_record_is_longer_than_its_copybook_says(longest: bytes, fits: bool) -> None:
    texts = [b"1111AAAA", longest or b"2222BBBB", b"3333CCC"]
    words = [(len(text) + 4).to_bytes(2, "big") + b"\0\0" for text in texts]
    data = b"".join(word + text for word, text in zip(words, texts, strict=True))

    def is_read() -> bool:
        try:
            sampled(BytesIO(data), "x.dat", ("x.cpy", RECORD_OF_EIGHT))
        except ExtractError:
            return False
        return True

    assert fits == is_read()


@pytest.mark.parametrize(
    ("copybook", "problem"),
    [
        ("10 A PIC X.\n05 B PIC X.", "line 2: its level is above that of the first item"),
        ("05 A PIC X.\nPIC.", "line 2, PIC: "),
    ],
)
def test_an_item_that_does_not_fit_is_named_with_its_line(copybook: str, problem: str) -> None:
    lines = [f"       {line}" for line in copybook.splitlines()]

    with pytest.raises(CopybookError, match=re.escape(problem)):
        read_copybook("\n".join(lines))


@pytest.mark.parametrize(("digits", "size"), [(4, 2), (5, 4), (9, 4), (10, 8), (18, 8), (19, 0)])
def test_a_binary_number_has_as_many_bytes_as_its_digits_need(digits: int, size: int) -> None:
    with nullcontext() if size else pytest.raises(CopybookError, match="the limit is 18"):
        assert size == read_layout(f"05 N PIC 9({digits}) COMP.\n").size


@pytest.mark.parametrize("digits", [31, 32])
def test_a_decimal_number_has_at_most_31_digits(digits: int) -> None:
    with nullcontext() if digits < 32 else pytest.raises(CopybookError, match="the limit is 31"):
        assert digits == read_layout(f"05 N PIC 9({digits}).\n").size


@pytest.mark.parametrize("limit", ["LONGEST", "MOST_FIELDS"])
@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("05 A PIC X OCCURS 4.\n", False),
        ("05 A PIC X OCCURS 5.\n", True),
        ("05 G OCCURS 2.\n10 A PIC X OCCURS 4.\n", True),  # its half is as long as may be
        ("05 G OCCURS 2.\n10 A PIC X OCCURS 2.\n", False),
    ],
)
def test_a_record_is_as_long_as_it_may_be_and_no_longer(
    limit: str, text: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_layout, limit, 4)

    with pytest.raises(CopybookError, match="longer than") if is_refused else nullcontext():
        assert 4 == read_layout(text).size


def test_fields_of_one_name_are_told_apart_by_as_many_groups_as_are_needed() -> None:
    text = "05 X PIC X.\n05 A.\n10 G.\n15 X PIC X.\n05 B.\n10 G.\n15 X PIC X.\n"

    names = [field.name for field in read_layout(text).fields]

    assert ["X", "A.G.X", "B.G.X"] == names


def test_a_group_that_nothing_redefines_is_no_segment() -> None:
    with pytest.raises(CopybookError, match="no group that redefines another"):
        read_layout("01 R.\n05 A PIC X.\n05 G.\n10 B PIC X.\n", ["G"])


def test_columns_may_end_where_their_line_does_and_each_type_has_the_width_of_its_last() -> None:
    columns = {"A": (1, 1), "B": (2, 4)}

    assert "" == problem_of_spans(columns, 4)
    assert "B ends at 4" in problem_of_spans(columns, 3)
    assert "counted from 1" in problem_of_spans({"A": (0, 1)}, 4)
    assert 4 == RecordTypes({"01": columns}, "01").width_of("01")
