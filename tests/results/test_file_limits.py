"""A result file may be as large as each limit says, and no larger."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.results import batches
from flows.results import opening as results
from flows.results.batches import parted
from tests.results.outcomes import read_result
from tests.results.test_read import ERROR, FILE, HEADER, LINK

TEXT = '{"cuid":"c-2","errors":["city is required"]}'
WIDE = f"{HEADER}{LINK.strip()},more\n"
PACKED = gzip.compress(FILE.encode())
IN_PARTS = gzip.compress(HEADER.encode()) + gzip.compress((LINK + ERROR).encode())


@pytest.mark.parametrize(
    ("limit", "most", "content", "problem"),
    [
        ("LIMIT", len(FILE), FILE.encode(), results.TOO_LARGE),
        ("LIMIT", len(FILE), PACKED, results.TOO_LARGE),
        ("MEMBERS", 2, IN_PARTS, results.GZIP_MEMBERS),
        ("LINES", 3, FILE.encode(), results.LINES_MANY),
        ("LINE", max(map(len, (HEADER, LINK, ERROR))), FILE.encode(), results.LINE_LONG),
        ("CELLS", FILE.count(","), FILE.encode(), results.WORK),
        ("CELL", len("https://links.example/a"), FILE.encode(), results.CELL_LONG),
        ("ERRORS", len(TEXT), FILE.encode(), results.WORK),
        ("COLUMNS", 5, FILE.encode(), results.COLUMNS_MANY),
        ("COLUMNS", 6, WIDE.encode(), results.COLUMNS_MANY),
        ("HEADER", len(HEADER), FILE.encode(), results.NOT_A_RESULT),
    ],
)
def test_a_file_at_a_limit_is_read_and_one_beyond_it_has_no_rows(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int, content: bytes, problem: str
) -> None:
    monkeypatch.setattr(results, limit, most)
    read = read_result(content, "r.csv")
    monkeypatch.setattr(results, limit, most - 1)
    beyond = read_result(content, "r.csv")

    assert read.rows.height
    assert problem not in read.problems
    assert (0, True) == (beyond.rows.height, problem in beyond.problems)


@pytest.mark.parametrize(("most", "problem"), [(9, ""), (8, results.TOO_LARGE)])
def test_a_stored_file_beyond_the_limit_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, problem: str
) -> None:
    monkeypatch.setattr(batches, "LIMIT", most)
    store = LocalStore(tmp_path)
    store.create("bank/results/r.csv", b"123456789")
    [entry] = store.keys("bank/results/")

    content, code = batches._content(store, None, entry)

    assert (b"" if problem else b"123456789", problem) == (content, code)


def test_items_are_taken_together_until_they_have_the_size_or_the_number() -> None:
    many = [[*range(batches.CHUNKS)], [batches.CHUNKS]]

    assert [[2, 2], [3, 2], [1]] == [*parted([2, 2, 3, 2, 1], lambda item: item, 4)]
    assert many == [*parted(range(batches.CHUNKS + 1), lambda _: 0, 1)]
