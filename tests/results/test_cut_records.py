"""Where the records of a result file end: a record that is cut, and a line that says nothing."""

from __future__ import annotations

import pytest

from flows.results.csv_records import ResultHeader, read_records
from flows.results.opening import RAGGED, TRUNCATED

HEADER = ResultHeader(",", {"cuid": 0, "error": 1}, width=2)


@pytest.mark.parametrize(
    ("lines", "problems"),
    [
        (["a,b\n", "c,d"], []),
        (["a,b\n", "c"], [RAGGED, TRUNCATED]),
        (["a,b\n", "c\n"], [RAGGED]),
        (["a,b", "c\n"], [RAGGED]),
        (["a\n", "c,d"], [RAGGED]),
    ],
)
def test_a_file_is_cut_where_its_last_line_has_no_end_and_fewer_cells(
    lines: list[str], problems: list[str]
) -> None:
    assert problems == read_records(lines, HEADER).problems


@pytest.mark.parametrize("line", ["\n", "  \n", "\t\n"])
def test_a_line_of_blanks_is_no_record(line: str) -> None:
    assert [["a", "b"], ["c", "d"]] == read_records(["a,b\n", line, "c,d\n"], HEADER).records
