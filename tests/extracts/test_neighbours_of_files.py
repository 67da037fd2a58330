"""Limits and precedence of archives, workbooks and records of a mainframe: the limit and its neighbours,
the first and the last, in memory.
"""

from __future__ import annotations

import struct
import zipfile
from io import BytesIO
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest

from flows.errors import ExtractError
from flows.extensions.formats import workbook
from flows.extensions.init import control_records, proofs, record_sample
from flows.extensions.init import sample as lines_sample
from flows.extensions.init.record_sample import take_records
from flows.extracts import grammar, zipped
from flows.extracts.errors import ArchiveError
from flows.extracts.records import fields, framing
from flows.extracts.records.fields import FieldReader
from flows.extracts.rows import open_rows
from schemas.record_layout import Field
from schemas.source import SourceSettings
from tests.extracts.damaged import zipped as archived

# Archives and workbooks
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "is_read"), [(99, True), (100, True), (101, False)])
@pytest.mark.parametrize("is_stored", [True, False])
def test_a_file_in_an_archive_may_be_as_large_as_the_largest(
    monkeypatch: pytest.MonkeyPatch, size: int, is_read: bool, is_stored: bool
) -> None:
    monkeypatch.setattr(zipped, "LARGEST", 100)
    method = zipfile.ZIP_STORED if is_stored else zipfile.ZIP_DEFLATED
    packed = archived(bytes(size), method=method)

    def read() -> bool:
        try:
            return len(b"".join(zipped.unzipped(iter([packed]), "a.zip"))) == size
        except ArchiveError as error:
            return "more than" not in str(error)

    assert is_read == read()


def test_sizes_beyond_four_gigabytes_are_in_the_extra_field_wherever_that_stands() -> None:
    beyond = zipped._Sizes(7, 0xFFFFFFFF, 0xFFFFFFFF)
    own = struct.pack("<HHQQ", 1, 16, 5 << 32, 4 << 32)
    other = struct.pack("<HHL", 9, 4, 0)

    sizes = [zipped._with_zip64(beyond, extra) for extra in (own, other + own, own[:-1], other)]

    found = zipped._Sizes(7, 4 << 32, 5 << 32)
    assert [found, found, beyond, beyond] == sizes


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


# Records of a mainframe
# --------------------------------------------------------------------------------------------------


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

    guesses = take_records(BytesIO(data), "x.dat", copybook, "x.cpy").guesses

    assert is_short == ("short_records" in [guess.key for guess in guesses])


def test_few_letters_tell_code_pages_apart() -> None:
    letters = record_sample._different_letters()

    assert {0x4A} <= letters
    assert letters.isdisjoint("ABYZ09".encode("cp037"))


def test_records_that_lack_blanks_are_records_up_to_the_width() -> None:
    settings = {"format": "fixed", "width": 5, "short_records": True, "header_rows": 0}
    records = grammar.Records(SourceSettings.model_validate(settings), 1)

    assert [True, True, False] == [records.is_record("a" * size) for size in (4, 5, 6)]


@pytest.mark.parametrize(("digits", "compared"), [(17, "17"), (18, "18"), (19, "18")])
def test_as_many_digits_of_a_total_are_compared_as_a_run_can(digits: int, compared: str) -> None:
    total = control_records.Total(2, 2 + digits, "id")
    stated = control_records.Stated("T1" + "9" * digits, 1, 2, total)

    proof = proofs._proof_of_total(stated, "trailer")

    assert ["id", compared] == [guess.value.strip('"') for guess in proof.guesses]


def test_the_lowest_digits_of_long_numbers_are_added() -> None:
    settings = SourceSettings.model_validate({})
    column = SimpleNamespace(name="id", mark="id", source="from = id")
    draft = cast(Any, SimpleNamespace(columns=[column]))
    content = b"id,n\n12345678901234567890,x\n10,y\n"

    summed = proofs._sums(BytesIO(content), settings, "x.csv", draft)

    assert (2, {"id": 345678901234567900}) == (summed.rows, summed.sums)


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
    source = SourceSettings.model_validate(settings)

    blocks = [*open_rows(BytesIO(b"01R102B103C103C203C3"), source, "x.dat", block=4)]

    rows = pl.concat(block.rows for block in blocks).select("CARD", "REGION", "BRANCH")
    assert [(card, "R1", "B1") for card in ("C1", "C2", "C3")] == rows.rows()
    assert 1 < len(blocks)


# Lines as they are read
# --------------------------------------------------------------------------------------------------

TRAILED: dict[str, Any] = {"trailer": "^T,([0-9]+)"}


def refusal(text: str, block: int = 1 << 20, **settings: Any) -> str:
    """Return why an extract is refused as a whole, "" where it is read."""
    source = SourceSettings.model_validate(settings)
    try:
        for _ in open_rows(BytesIO(text.encode()), source, "x.csv", block=block):
            pass
    except ExtractError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("T,1\nT,1\n", "a second one is on line 4"),
        ("T,1\n2,b\n", "data follows it on line 4"),
        ("T,1\nx\n", "data follows it on line 4"),
        ("T,1\n\n", ""),
    ],
)
def test_behind_a_trailer_there_is_neither_another_nor_a_row(lines: str, problem: str) -> None:
    told = refusal(f"id,n\n1,a\n{lines}", **TRAILED)

    assert problem in told
    assert bool(problem) == bool(told)


def test_a_blank_line_may_stand_above_a_header() -> None:
    assert "" == refusal("\nid,n\n1,a\n")


@pytest.mark.parametrize("block", [4, 1 << 20])
def test_a_file_that_is_cut_is_told_by_its_last_line(block: int) -> None:
    whole = "id,n\n" + "1,a\n" * 30  # more than are looked at for the header

    told = [refusal(f"{whole}{end}", block, final_newline=False) for end in ("3", "3\n4")]

    assert "line 32, has 1 instead" in told[0]
    assert "line 33, has 1 instead" in told[1]


def test_the_last_of_the_lines_that_are_looked_at_is_the_last() -> None:
    reading = lines_sample._Reading()

    for block in (b"a\nb\n", b"\n", b"c\nd\n"):
        reading.add(block)

    assert (b"d", 4) == (reading.last, reading.total)


RECORD_OF_EIGHT = "01 R.\n   05 A PIC X(8).\n"


@pytest.mark.parametrize("first", [3, 4, 5])
def test_header_and_trailer_records_are_no_rows_however_many_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr(record_sample, "FIRST", first)
    data = b"HDR 2   1111AAAA2222BBBBTRL 2   "

    taken = take_records(BytesIO(data), "x.dat", RECORD_OF_EIGHT, "x.cpy")

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
            take_records(BytesIO(data), "x.dat", RECORD_OF_EIGHT, "x.cpy")
        except ExtractError:
            return False
        return True

    assert fits == is_read()
