"""Limits and precedence of reading extracts: the limit and its neighbours, the first and the last, by
the functions that hold them and a few values in memory.
"""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from pathlib import PureWindowsPath
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.extensions.init import control_records
from flows.extensions.init.record_sample import around
from flows.extracts import decode, grammar, header, line_kinds, sidecar
from flows.extracts.errors import EncodingError, HeaderError, NotCsvError
from flows.extracts.opening import together
from flows.extracts.origins import MOST_TEXTS, Origin, _with_steps
from flows.extracts.trailer import HashTotal
from flows.runs.store import Entry
from schemas.manifest import SourceColumn
from schemas.source import SourceSettings
from tests.extracts.test_status import fates
from tests.night import DAY, NOON

NEIGHBOURS = tuple(DAY + timedelta(days=days) for days in (-1, 0, 1))


# Text
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "wrong", "is_read"),
    [(9, 1, True), (9, 2, False), (200, 2, True), (200, 3, False), (299, 2, True), (299, 3, False)],
)
def test_one_line_in_a_hundred_may_be_of_another_encoding(
    lines: int, wrong: int, is_read: bool
) -> None:
    block = b"\n".join([b"\xff"] * wrong + [b"a"] * (lines - wrong))

    def read() -> bool:
        try:
            decode.as_utf8(block, "utf-8", "a.csv", 1)
        except EncodingError:
            return False
        return True

    assert is_read == read()


@pytest.mark.parametrize(("letters", "kind"), [(18, "binary data"), (19, ""), (20, "")])
def test_of_a_text_one_byte_in_twenty_may_control_something(letters: int, kind: str) -> None:
    assert kind == decode.other_kind(b"\x01" + b"a" * letters, utf16=False)


@pytest.mark.parametrize(
    ("zeros", "others", "few", "is_utf16"),
    [
        (4, 0, 0, True),
        (3, 0, 0, False),
        (19, 1, 0, True),
        (18, 2, 0, False),
        (20, 0, 8, True),
        (20, 0, 9, False),
    ],
)
def test_utf_16_is_where_nine_in_ten_of_every_second_bytes_are_zero_and_few_of_the_others(
    zeros: int, others: int, few: int, is_utf16: bool
) -> None:
    seconds = b"\0" * zeros + b"b" * others
    firsts = b"\0" * few + b"a" * (len(seconds) - few)
    head = bytes(byte for pair in zip(firsts, seconds, strict=True) for byte in pair)

    assert is_utf16 == decode._looks_utf16(head)


@pytest.mark.parametrize(("size", "is_read"), [(9, True), (10, True), (11, False)])
def test_a_line_may_be_as_long_as_the_longest(
    monkeypatch: pytest.MonkeyPatch, size: int, is_read: bool
) -> None:
    monkeypatch.setattr(decode, "LONGEST_LINE", 10)

    def read() -> bytes:
        return b"".join(decode._whole_lines(iter([b"a\n", b"b" * size]), "a.csv", 1))

    if is_read:
        assert b"a\n" + b"b" * size == read()
    else:
        with pytest.raises(NotCsvError, match="without a line end for 11 bytes"):
            read()


def test_a_block_ends_with_the_last_whole_line_of_its_pieces() -> None:
    pieces = iter([b"a\nbcd", b"ef\ngh", b"ij\n"])

    assert [b"a\nbcdef\n", b"ghij\n"] == [*decode._whole_lines(pieces, "a.csv", 8)]


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_an_extract_may_have_as_many_columns_as_the_most(
    monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(header, "MOST", 5)
    names = tuple("abcdefg"[: 5 + more])

    with pytest.raises(HeaderError, match="the limit is 5") if more == 1 else nullcontext():
        assert names == header.header_names(",".join(names), SourceSettings(), "a.csv")


def test_a_header_of_one_column_is_told_the_delimiter_that_divides_it_best() -> None:
    problem = header._problem_of_fields(["a;b;c|d"], "a;b;c|d", ",")

    assert "with ';' it has 3" in problem


def joined_lines(middle: int) -> int:
    """Return how many lines the record has that spans a quote with so many lines inside."""
    settings = SourceSettings.model_validate({})
    texts = ['1,"a', *["x"] * middle, 'b"', "2,c"]
    lines = pl.Series(texts)
    kinds = line_kinds.LineKinds(settings, "", 2)
    of_lines = kinds.of(lines, quoted=True, last=True)
    kinds.join(lines, of_lines, last=True)
    return int((of_lines == line_kinds.Kind.CONTINUES).sum()) + 1


def test_a_record_spans_as_many_lines_as_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "LONGEST_RECORD", 5)

    assert [4, 5, 1] == [joined_lines(middle) for middle in (2, 3, 4)]


@pytest.mark.parametrize(("lines", "complete"), [(3, 1), (4, 1), (5, 1), (6, 7), (7, 8)])
def test_a_record_is_waited_for_as_long_as_it_can_go_on(
    monkeypatch: pytest.MonkeyPatch, lines: int, complete: int
) -> None:
    monkeypatch.setattr(grammar, "LONGEST_RECORD", 6)
    texts = pl.Series(["1,b", '2,"a', *["x"] * (lines - 1)])
    kinds = line_kinds.LineKinds(SourceSettings.model_validate({}), "", 2)

    waiting = kinds.join(texts, kinds.of(texts, quoted=True, last=False), last=False)

    assert complete == waiting


@pytest.mark.parametrize(
    ("texts", "complete"),
    [
        (['1,"a', 'b"', '2,"c'], 2),
        (['1,"a', 'b"', "2,c"], 3),
        (['1,"a', 'b"'], 2),
    ],
)
def test_what_waits_begins_with_the_last_quote_that_nothing_closes(
    texts: list[str], complete: int
) -> None:
    lines = pl.Series(texts)
    kinds = line_kinds.LineKinds(SourceSettings.model_validate({}), "", 2)

    assert complete == kinds.join(lines, kinds.of(lines, quoted=True, last=False), last=False)


def test_how_long_a_record_is_waited_for_counts_from_its_own_quote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grammar, "LONGEST_RECORD", 3)
    lines = pl.Series(['1,"a', 'b"', '2,"c', "x"])
    kinds = line_kinds.LineKinds(SourceSettings.model_validate({}), "", 2)

    assert 2 == kinds.join(lines, kinds.of(lines, quoted=True, last=False), last=False)


def test_the_line_that_closes_a_record_opens_no_other() -> None:
    lines = pl.Series(['1,"x', '"', 'a",2'])
    kinds = line_kinds.LineKinds(SourceSettings.model_validate({}), "", 2)
    of_lines = kinds.of(lines, quoted=True, last=True)

    kinds.join(lines, of_lines, last=True)

    record, continues, refused = (
        line_kinds.Kind.RECORD,
        line_kinds.Kind.CONTINUES,
        line_kinds.Kind.REFUSED,
    )
    assert [record, continues, refused] == of_lines.tolist()


def test_two_stray_quotes_swallow_no_row() -> None:
    kinds = line_kinds.LineKinds(SourceSettings.model_validate({}), "", 3)

    def is_joined(*texts: str) -> bool:
        lines = pl.Series(texts)
        of_lines = kinds.of(lines, quoted=True, last=True)
        kinds.join(lines, of_lines, last=True)
        return bool((of_lines == line_kinds.Kind.CONTINUES).any())

    assert is_joined('1,"a', 'b,c",d')
    assert not is_joined('1,"a', 'b,c,d",e')


# What is beside an extract, and around its rows
# --------------------------------------------------------------------------------------------------


def test_a_checksum_names_its_file_by_the_last_part_of_a_path() -> None:
    paths = ["a.csv", "out/a.csv", str(PureWindowsPath("d", "out", "a.csv"))]

    assert ["a.csv"] * 3 == list(map(sidecar._file_name, paths))


@pytest.mark.parametrize("order", [1, -1])
def test_two_files_are_as_new_as_the_newer_one(order: int) -> None:
    entries = [Entry(f"{day}", 1, NOON + timedelta(days=day), "1") for day in (0, 1)]

    assert NOON + timedelta(days=1) == together(entries[::order]).modified


def test_a_day_of_closing_has_come_on_that_day() -> None:
    days: list[str | None] = [f"{day:%Y%m%d}" for day in NEIGHBOURS]
    today = {"date": "YYYYMMDD"}

    assert "DDS" == fates({"CLOSED_DT": days}, status={"CLOSED_DT": today})


@pytest.mark.parametrize(
    ("stated", "is_total"), [("1234", False), ("01234", False), ("12345", True), ("012345", True)]
)
def test_a_hash_total_has_five_digits_at_least(stated: str, is_total: bool) -> None:
    assert is_total == control_records._is_total(stated, int(stated))


def test_the_eighteen_lowest_digits_of_a_hash_total_are_compared() -> None:
    total = int("9" * 20)

    compared = [control_records._is_total(f"{total}", total - 10**place) for place in (17, 18, 19)]

    assert [False, True, True] == compared


@pytest.mark.parametrize(
    ("run", "parts"),
    [
        ((0, 4), [(0, 4)]),
        ((4, 9), [(4, 5)]),
        ((5, 9), []),
        ((5, 11), [(9, 11)]),
        ((3, 12), [(3, 5), (9, 12)]),
        ((9, 12), [(9, 12)]),
        ((0, 5), [(0, 5)]),
    ],
)
def test_a_total_is_what_is_beside_the_count_in_a_run_of_digits(
    run: tuple[int, int], parts: list[tuple[int, int]]
) -> None:
    assert parts == [*control_records._around(*run, 5, 9)]


def test_the_sum_of_long_numbers_is_that_of_their_lowest_digits() -> None:
    source = SourceSettings.model_validate(
        {"trailer": "^T([0-9]+),([0-9]+)$", "hash_total": "id", "hash_total_digits": 12}
    )
    total = HashTotal(source, ["id"], "a.csv")

    total.add(pl.DataFrame({"id": ["9-123456789012", "1 000000000001"]}))
    total.take(123456789013)

    total.check(2, 0)


def test_first_and_last_record_stand_apart_where_there_are_three_or_more() -> None:
    rows = ["1111 Ada 9", "2222 Bob 9"]

    beginnings = [around(texts) for texts in (["HDR 1", rows[0]], ["HDR 1", rows[0], "TRL 1"])]

    assert [("", ""), ("HDR", "TRL")] == [tuple(each) for each in beginnings]


@pytest.mark.parametrize(("letters", "is_header"), [(6, True), (7, False), (8, False)])
@pytest.mark.parametrize("longest", [10, 20])
def test_a_first_record_is_no_row_where_it_has_less_than_most_of_the_shortest_row(
    letters: int, is_header: bool, longest: int
) -> None:
    rows = ["1" * 10, "2" * longest]

    assert is_header == bool(around([f"HDR {'7' * (letters - 3)}", *rows, "3"]).header)


@pytest.mark.parametrize(("more", "untold"), [(-1, 0), (0, 0), (1, 1)])
def test_so_many_texts_of_a_table_are_shown_and_how_many_more_there_are(
    more: int, untold: int
) -> None:
    texts = {f"{number}": "x" for number in range(MOST_TEXTS + more)}
    cell = SimpleNamespace(lookup=texts, format=None, split=None, slice=None)
    origin = Origin(SourceColumn(names=("A",)), pl.lit(""))

    assert untold == _with_steps(origin, cast(Any, cell)).column.more_texts
