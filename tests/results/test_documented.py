"""Result files read together as documented have the cells that reading any file gives them, or are left to that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.results.read import Arrived, read_any, read_documented, read_results

HEADER = "cuid,last_4,url,expiration_date,error\n"
LINK = "c-1,4242,https://links.example/a,2027-01-20,\n"
ERROR = ',,,,"{""cuid"":""c-2"",""errors"":[""city is required""]}"\n'
FILE = (HEADER + LINK + ERROR).encode()

headers = st.sampled_from(
    [HEADER, HEADER.replace(",", ";"), "error,url\n", "Cardholder CUID|Error|url\n", "\ufeff" + HEADER, "a,b\n", ""]
)
pieces = st.sampled_from(
    [
        *'",;|\n\r\t \\',
        "\r\n",
        '""',
        '"\n',
        '","',
        "null",
        "c-1",
        "4242",
        "é",
        "\x1a",
        "\0",
        "\x85",
        "\u2028",
        LINK,
        ERROR,
    ]
)
files = st.builds(
    lambda header, lines, rest: (header + "".join(lines) + "".join(rest)).encode(),
    headers,
    st.lists(st.sampled_from([LINK, ERROR, LINK.replace(",", ";"), "x,\n", '"a ""b"" c",\n']), max_size=4),
    st.lists(pieces, max_size=8),
)


def cells_of(content: bytes) -> tuple[list[tuple[str | None, ...]], tuple[str, ...]]:
    read = read_any(Arrived(content, "r.csv"))
    return [tuple(cell or None for cell in row) for row in read.rows.iter_rows()], read.problems


@given(st.lists(files | st.binary(max_size=40).map(lambda tail: FILE + tail), min_size=1, max_size=4))
def test_what_is_read_as_documented_is_what_reading_any_file_gives(contents: list[bytes]) -> None:
    for content, cells in zip(contents, read_documented(contents), strict=True):
        if cells is not None:
            rows = [tuple(cell or None for cell in row) for row in cells.iter_rows()]
            assert cells_of(content) == (rows, ())


@pytest.mark.parametrize(
    "content",
    [
        FILE,
        FILE.rstrip(b"\n"),
        FILE.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + FILE,
        FILE.replace(b"city", "Köln".encode()),
        b"error;url\n;https://links.example/a\n",
    ],
)
def test_a_file_of_plain_records_is_read_as_documented_whatever_lies_beside_it(content: bytes) -> None:
    found = read_documented([b"", content, b"\x1f\x8bgzip", HEADER.encode() + b'"open\n', content])

    assert [cells is None for cells in found] == [True, False, True, True, False]


@pytest.mark.parametrize(
    "tail", [b'a,b,c,d,"two\nlines"\n', b"a,b,c\n", b'a"b,c,d,e,\n', b"a,b\rc,d,e,f\n", b"\xff,,,,x\n", b"\n"]
)
def test_a_file_with_anything_else_in_it_is_not(tail: bytes) -> None:
    assert read_documented([FILE + tail]) == [None]


def test_a_file_of_thousands_of_columns_is_read_all_the_same() -> None:
    wide = (HEADER.strip() + ",x" * 5000 + "\n" + LINK.strip() + '"y"' + ",z" * 5000 + "\n").encode()

    assert read_documented([wide, FILE])[0] is None
    assert read_results([Arrived(wide, "r.csv")])[0].rows.height == 1
