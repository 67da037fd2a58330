"""Limits and precedence of archives, workbooks and records of a mainframe: the limit and its neighbours,
the first and the last, in memory.
"""

from __future__ import annotations

import struct
import zipfile
from io import BytesIO
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.errors import ExtractError
from flows.extensions.init import control_records, proofs
from flows.extensions.init import sample as lines_sample
from flows.extracts import grammar, zipped
from flows.extracts.errors import ArchiveError
from flows.extracts.rows import open_rows
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


# Records of a mainframe
# --------------------------------------------------------------------------------------------------


def test_records_that_lack_blanks_are_records_up_to_the_width() -> None:
    settings = {"format": "fixed", "width": 5, "short_records": True, "header_rows": 0}
    records = grammar.Records(SourceSettings.model_validate(settings), 1)

    assert [True, True, False] == [records.is_record("a" * size) for size in (4, 5, 6)]


@pytest.mark.parametrize(("digits", "compared"), [(17, "17"), (18, "18"), (19, "18")])
def test_as_many_digits_of_a_total_are_compared_as_a_run_can(digits: int, compared: str) -> None:
    total = control_records.Total(2, 2 + digits, "id")
    stated = control_records.Stated("T1" + "9" * digits, 1, 2, total)

    proof = proofs._proof_of_total(stated, "trailer")

    assert ["id", compared] == [guess.value.strip('"') for guess in proof]


def test_the_lowest_digits_of_long_numbers_are_added() -> None:
    settings = SourceSettings.model_validate({})
    column = SimpleNamespace(mark="id", cell=pl.col("id"))
    draft = cast(Any, SimpleNamespace(columns=[column]))
    content = b"id,n\n12345678901234567890,x\n10,y\n"

    summed = proofs._sums(BytesIO(content), settings, "x.csv", draft)

    assert (2, {"id": 345678901234567900}) == (summed.rows, summed.sums)


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
