"""The result reader takes any dialect a portal may produce and never drops a row."""

from __future__ import annotations

import csv
import gzip
import io
import json
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.results import csv_records
from flows.results import opening as results
from flows.results.partner_days import read_days, read_moment
from flows.results.read import read_cells, tabulate
from schemas.result import ResultTable
from tests.results.outcomes import read_result

HEADER = "cuid,last_4,url,expiration_date,error\n"
LINK = "c-1,4242,https://links.example/a,2027-01-20,\n"
ERROR = ',,,,"{""cuid"":""c-2"",""errors"":[""city is required""]}"\n'
FILE = HEADER + LINK + ERROR
ROWS = [
    ("c-1", "4242", "https://links.example/a", None),
    (None, None, None, '{"cuid":"c-2","errors":["city is required"]}'),
]


def rows_of(content: bytes) -> list[tuple[str | None, ...]]:
    return read_result(content, "r.csv").rows.select("cuid", "last_4", "url", "error").rows()


def test_a_plain_file_is_read_as_it_stands() -> None:
    read = read_result(FILE.encode(), "r.csv")

    assert ROWS == rows_of(FILE.encode())
    assert () == read.problems
    ResultTable.validate(read.rows)


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + FILE.encode(),
        FILE.encode("utf-16"),
        FILE.encode("utf-16-le"),
        FILE.encode("utf-16-be"),
        gzip.compress(FILE.encode(), mtime=0),
        gzip.compress(HEADER.encode(), mtime=0) + gzip.compress((LINK + ERROR).encode(), mtime=0),
        FILE.replace("\n", "\r\n").encode(),
        FILE.replace("\n", "\r").encode(),
        ("sep=,\n" + FILE).encode(),
        ("# downloaded today\n\n" + FILE).encode(),
        FILE.replace("\n", "\n\n").encode(),
        FILE.rstrip("\n").encode(),
        FILE.replace("cuid,last_4", "Cardholder.CUID,Last 4").encode(),
        FILE.replace(",\n", ",\n").replace("c-1,", " c-1 ,").encode(),
        FILE.replace("4242,", "************4242,").encode(),
        (HEADER + LINK + ERROR.replace(",,,,", "null,undefined,NULL,None,")).encode(),
        (HEADER + LINK.replace("2027-01-20,\n", "2027-01-20,{}\n") + ERROR).encode(),
        (
            HEADER + LINK + ',,,,"{\\"cuid\\":\\"c-2\\",\\"errors\\":[\\"city is required\\"]}"\n'
        ).encode(),
        (HEADER + LINK + ',,,,{"cuid":"c-2","errors":["city is required"]}\n').encode(),
    ],
    ids=lambda content: repr(content[:24]),
)  # fmt: skip
def test_other_encodings_and_dialects_give_the_same_rows(content: bytes) -> None:
    assert ROWS == rows_of(content)


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (4, 2, 5, 0, 1, 3)])
def test_columns_are_found_by_name_under_any_delimiter(
    delimiter: str, order: tuple[int, ...]
) -> None:
    table = [["cuid", "last_4", "url", "expiration_date", "error", "batch"]]
    table += [[cell or "" for cell in (*row[:3], "2027-01-20", row[3], "7")] for row in ROWS]
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows([[row[at] for at in order] for row in table])

    assert ROWS == rows_of(out.getvalue().encode())


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2027-01-20", date(2027, 1, 20)),
        ("2027-01-20T00:00:00.000Z", date(2027, 1, 20)),
        ("2027-01-20 10:00:00", date(2027, 1, 20)),
        ("01/20/2027", date(2027, 1, 20)),
        ("20/1/2027", date(2027, 1, 20)),
        ("20.01.2027", date(2027, 1, 20)),
        ("1/20/27 11:59 PM", date(2027, 1, 20)),
        ("01/01/2027", date(2027, 1, 1)),
        ("2027/1/20", date(2027, 1, 20)),
        ("2027-01-20T23:30:00-05:00", date(2027, 1, 20)),
        ("20-Jan-2027", date(2027, 1, 20)),
        ("20-JAN-27", date(2027, 1, 20)),
        ("20 January 2027", date(2027, 1, 20)),
        ("January 20th, 2027", date(2027, 1, 20)),
        ("Wed, 20 Jan 2027 00:00:00 GMT", date(2027, 1, 20)),
        ("1800403200.000", date(2027, 1, 20)),
        ("1800403200000", date(2027, 1, 20)),
        ("1800403200", date(2027, 1, 20)),
        ("20270120", date(2027, 1, 20)),
        ("Wed Jan 20 2027 00:00:00 GMT+0000 (UTC)", date(2027, 1, 20)),
    ],
)
def test_every_spelling_of_an_expiration_date_is_read(text: str, day: date) -> None:
    read = read_result(FILE.replace("2027-01-20", f'"{text}"').encode(), "r.csv")

    assert (day, None) == read.rows.select("expires_on", "expires_form").row(0)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("2027-02-30", "9999-99-99"),
        ("03/04/2027", "99/99/9999"),
        ("28/01/27", "99/99/99"),
        ("next year", "AAAA AAAA"),
        ("2027-01-20 Jane Doe", "9999-99-99 AAAA AAA"),
        ("4242424242424242", "9(16)"),
        ("٢٠٢٧ – ∞", "9999 ? ?"),
        ("x" * 9000, "A(96)"),
    ],
)
def test_of_an_expiration_date_that_cannot_be_read_the_form_is_kept(text: str, form: str) -> None:
    read = read_result(FILE.replace("2027-01-20", text[:8000]).encode(), "r.csv")

    assert (None, form) == read.rows.select("expires_on", "expires_form").row(0)


@pytest.mark.parametrize(
    ("others", "is_day_first", "day"),
    [
        (["28/01/2027"], None, date(2027, 4, 3)),
        (["01/28/2027"], None, date(2027, 3, 4)),
        (["01/28/2027", "28/01/2027"], None, None),
        (["05/04/2027"], None, None),
        ([], True, date(2027, 4, 3)),
        ([], False, date(2027, 3, 4)),
    ],
)
def test_which_number_is_the_day_is_shown_by_the_file_or_agreed_and_never_guessed(
    others: list[str], is_day_first: bool | None, day: date | None
) -> None:
    days = read_days(["03/04/2027", *others], is_day_first=is_day_first)

    assert day == days["03/04/2027"].day
    assert all(days[text].day is not None for text in others if "28" in text)


def test_a_last_4_that_lost_its_zeros_in_a_spreadsheet_gets_them_back() -> None:
    assert "0034" == read_result(FILE.replace("4242", "34").encode(), "r.csv").rows["last_4"][0]


def test_a_quoted_newline_inside_an_error_stays_inside_it() -> None:
    read = read_result(
        (HEADER + ",,,,\"{ cuid: 'c-2',\n  errors: [] }\"\n" + LINK).encode(), "r.csv"
    )

    assert [1, 2] == read.rows["position"].to_list()
    assert "{ cuid: 'c-2',\n  errors: [] }" == read.rows["error"][0]
    assert () == read.problems


def test_a_quote_that_never_closes_spoils_its_own_row_only() -> None:
    read = read_result((HEADER + ',,,,"{cut\n' + LINK + ERROR).encode(), "r.csv")

    assert [None, "c-1", None] == read.rows["cuid"].to_list()
    assert (results.QUOTING,) == read.problems


@pytest.mark.parametrize("missing", range(1, len(ERROR + LINK)))
def test_a_truncated_file_keeps_its_whole_rows_and_makes_no_half_link(missing: int) -> None:
    read = read_result((FILE + ERROR + LINK)[:-missing].encode(), "r.csv")

    assert ROWS == read.rows.head(2).select("cuid", "last_4", "url", "error").rows()
    assert {None, "https://links.example/a"} == set(read.rows["url"])


def test_a_truncated_gzip_gives_what_can_be_unpacked_and_says_so() -> None:
    content = gzip.compress((HEADER + LINK * 500).encode(), mtime=0)

    read = read_result(content[: len(content) - 12], "r.csv.gz")

    assert results.GZIP_DAMAGED in read.problems
    assert read.rows.height > 0


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", results.EMPTY),
        (b"  \n", results.EMPTY),
        (b"<html><body>Please log in</body></html>", results.NOT_A_RESULT),
        (b"PK\x03\x04" + bytes(range(256)), results.NOT_A_RESULT),
        (b"cardholder.cuid,service_card.pan\n1,2\n", results.NOT_A_RESULT),
    ],
)
def test_a_file_that_is_no_result_has_no_rows_and_says_why(content: bytes, problem: str) -> None:
    read = read_result(content, "r.csv")

    assert (0, True) == (read.rows.height, problem in read.problems)


def test_a_header_alone_is_as_empty_as_an_empty_file() -> None:
    read = read_result(HEADER.encode(), "r.csv")

    assert (0, (results.EMPTY,)) == (read.rows.height, read.problems)


def test_last_four_digits_that_cannot_be_read_are_those_of_no_card() -> None:
    read = read_result(FILE.replace("4242", "42 (Visa)").encode(), "r.csv")

    assert ["????", None] == read.rows["last_4"].to_list()


def test_a_bomb_is_not_unpacked_beyond_the_limit() -> None:
    bomb = gzip.compress(bytes(results.LIMIT + 1024), 9)

    assert results.TOO_LARGE in read_result(bomb, "r.csv.gz").problems


CELLS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12).map(str.strip)


@given(
    st.lists(st.tuples(CELLS, CELLS), max_size=20),
    st.sampled_from([",", ";", "\t", "|"]),
    st.booleans(),
)
def test_whatever_stands_in_the_cells_every_row_comes_through(
    cells: list[tuple[str, str]], delimiter: str, quoted: bool
) -> None:
    out = io.StringIO()
    writer = csv.writer(
        out, delimiter=delimiter, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
    )
    writer.writerow(["cuid", "last_4", "url", "expiration_date", "error"])
    writer.writerows([["", "", "", "", json.dumps([left, right])] for left, right in cells])

    read = read_result(out.getvalue().encode(), "r.csv")

    assert [json.dumps([left, right]) for left, right in cells] == read.rows["error"].to_list()


@given(st.binary(max_size=400) | st.binary(max_size=200).map(lambda tail: FILE.encode() + tail))
def test_any_bytes_give_a_result_and_never_raise(content: bytes) -> None:
    ResultTable.validate(read_result(content, "r.csv").rows)


@given(st.lists(st.sampled_from(["a,b\n", '"a,",b\r\n', 'a,"\n', '",b\n', "a\n", "\n", '"a"b,c'])))
def test_whole_lines_have_the_records_that_reading_one_by_one_gives(lines: list[str]) -> None:
    header = csv_records.ResultHeader(",", {"cuid": 0, "error": 1}, width=2)

    records = csv_records._whole_lines(lines, header)

    assert records is None or (records, []) == csv_records._split(lines, header, None)


def test_files_read_together_give_what_each_gives_alone() -> None:
    contents = [
        FILE.encode(),
        b"",
        HEADER.encode(),
        FILE.replace("2027-01-20", "01/20/2027").encode(),
        LINK.encode(),
    ]

    together = tabulate([read_cells(content, "r.csv") for content in contents])

    for content, one in zip(contents, together, strict=True):
        alone = read_result(content, "r.csv")
        assert alone.rows.equals(one.rows)
        assert alone._replace(rows=one.rows) == one


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-20T10:00:00-08:00",
        "2026-11-20 10:00:00.5-0800",
        "Fri Nov 20 2026 10:00:00 GMT-0800 (PST)",
        "2026-11-20T18:00Z",
        "11/20/2026 06:00 PM",
        "1795197600",
        "1795197600000",
    ],
)
def test_a_time_of_the_partners_is_read_into_utc(text: str) -> None:
    assert datetime(2026, 11, 20, 18, tzinfo=UTC) == read_moment(text)


@pytest.mark.parametrize("text", ["", "2026-11-20", "soon", "2026-11-20T99:00:00Z", "None"])
def test_what_says_no_time_has_none(text: str) -> None:
    assert read_moment(text) is None
