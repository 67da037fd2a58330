"""A record above the data that states how many rows there are, and what they add up to."""

from __future__ import annotations

import io
from typing import Any

import pytest
from pydantic import ValidationError

from flows.extracts.errors import HeaderRecordError, TrailerError
from flows.extracts.reader import Extract
from schemas.source import SourceSettings

ROWS = "a,b\n1,10\n2,20\n"
HEADED: dict[str, Any] = {"header_rows": 2, "header_record": r"^H,([0-9]+)"}
TOTALLED = {
    "header_rows": 2,
    "header_record": r"^H,(?P<total>[0-9]+),(?P<count>[0-9]+)",
    "hash_total": "b",
}


def read(text: str, **settings: Any) -> Extract:
    source = SourceSettings.model_validate(settings)
    extract = Extract(io.BytesIO(text.encode()), source, "a.csv")
    list(extract)
    return extract


def test_the_count_of_the_header_record_is_compared_with_the_rows() -> None:
    extract = read(f"H,0003\n{ROWS}", **HEADED)

    assert (3, 2) == (extract.trailer_count, extract.height)


def test_a_comment_may_be_the_header_record() -> None:
    extract = read(f"H,2\n{ROWS}", comment="H", header_record="^H,([0-9]+)")

    assert (2, 2) == (extract.trailer_count, extract.height)


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        ("X,2", "no line above the data is the one that the settings require"),
        ("H,9999999999999", "line 1 has no count where the settings expect it"),
    ],
)
def test_a_file_without_its_header_record_or_count_is_refused(first: str, problem: str) -> None:
    with pytest.raises(HeaderRecordError, match=problem):
        read(f"{first}\n{ROWS}", **HEADED)


def test_header_and_trailer_have_to_count_alike() -> None:
    trailer = r"^T,([0-9]+)"

    assert 2 == read(f"H,2\n{ROWS}T,2\n", **HEADED, trailer=trailer).trailer_count
    with pytest.raises(TrailerError, match="it counts 3 rows, and the header record 2"):
        read(f"H,2\n{ROWS}T,3\n", **HEADED, trailer=trailer)


def test_a_hash_total_may_come_before_the_count_and_in_the_header_record() -> None:
    assert 2 == read(f"H,30,2\n{ROWS}", **TOTALLED).trailer_count
    with pytest.raises(TrailerError, match="hash total"):
        read(f"H,31,2\n{ROWS}", **TOTALLED)


def test_a_header_record_needs_a_group_and_a_hash_total_a_second_one() -> None:
    with pytest.raises(ValidationError, match="header_record needs a group"):
        SourceSettings.model_validate({"header_record": "^H"})
    with pytest.raises(ValidationError, match="hash_total needs a trailer or header_record"):
        SourceSettings.model_validate({**HEADED, "hash_total": "b"})
