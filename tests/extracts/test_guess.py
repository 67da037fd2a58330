import gzip
import io
import re
import tomllib
from collections.abc import Callable
from datetime import date
from io import BytesIO
from typing import Any

import pytest

from flows.extensions.init.draft import first_draft
from flows.extensions.init.sample import read_lines
from flows.extracts.errors import HeaderError, NotCsvError
from flows.extracts.mapping import plan_mapping
from flows.extracts.reader import Extract
from schemas import portal
from schemas.issuer import Issuer
from schemas.portal import REQUIRED
from schemas.source import SourceSettings
from schemas.status import undecided
from tests.builders import quick
from tests.extracts import damaged

REST = {
    "issuer": "first-bank",
    "root": "s3://b",
    "portal": {"fingerprints": ["A" * 40], "allowed_hosts": ["l.example"]},
}
HEADER = (
    "CUST_ID,Card No,EXP,First Name,LAST_NAME,CVV2,Addr1,Addr2,City,State,Zip Code,Country,"
    "E-Mail,Primary,BRANCH"
)
ROW = "C1,4242424242424242,{},Zoë,Smith,123,12 Main St,,Boston,MA,02108,US,z@example.com,TRUE,77"


def guess(data: bytes) -> str:
    return first_draft(io.BytesIO(data), "a.csv", date(2026, 11, 20)).toml


def tables(text: str, encoding: str = "utf-8") -> dict[str, Any]:
    """Guess, and read the guess back as TOML."""
    return tomllib.loads(guess(text.encode(encoding)))


def test_an_ordinary_extract_is_guessed_whole() -> None:
    guessed = tables(f"{HEADER}\n{ROW.format('1127')}\n")

    issuer = Issuer.model_validate(REST | guessed)

    assert {*REQUIRED} <= issuer.columns.keys()
    assert "Card No" == issuer.columns[portal.PAN]
    assert {"from": "EXP", "format": "MMYY"} == guessed["columns"][portal.MONTH]
    plan_mapping(HEADER.split(","), issuer, "a.csv", {})


def test_the_guess_contains_no_cell_and_names_unused_headers() -> None:
    text = guess(f"{HEADER}\n{ROW.format('1127')}\n".encode())

    assert "# not used: BRANCH" in text
    assert not any(
        cell in text for cell in ("4242", "Zoë", "Smith", "Main", "Boston", "02108", "1127")
    )


@pytest.mark.parametrize(
    ("header", "is_doubted"),
    [("ACTION_CD", True), ("Acct Status", True), ("DelFlag", True), ("BRANCH", False)],
)
def test_a_column_that_may_say_which_rows_count_is_undecided_until_a_person_says(
    header: str, *, is_doubted: bool
) -> None:
    guessed = tables(f"{HEADER.replace('BRANCH', header)}\n{ROW.format('1127')}\n")

    issuer = Issuer.model_validate(REST | guessed)

    assert ((header,) if is_doubted else ()) == undecided(issuer.status)


@pytest.mark.parametrize(
    ("header", "is_doubted"),
    [
        ("PRIMARY_CARDHOLDER_IND", True),
        ("IS_MAIN", True),
        ("Primary", False),
        ("isPrimary", False),
        ("ADDR_PRIMARY_FLAG", False),
    ],
)
def test_a_main_cardholder_is_no_primary_address_without_a_doubt(
    header: str, *, is_doubted: bool
) -> None:
    text = guess(f"{HEADER.replace('Primary', header)}\n{ROW.format('1127')}\n".encode())

    assert is_doubted == (f"Does {header} say whether the address is" in text)
    expected = "undecided" if is_doubted else header
    assert expected == tomllib.loads(text)["columns"][portal.IS_PRIMARY]
    assert f'"{portal.IS_PRIMARY}" = "{header}" #' in text or f'= "{header}"\n' in text


@pytest.mark.parametrize(
    ("column", "header", "cells"),
    [
        (portal.PAN, "ACCOUNT", ["4000000000000002", "4000000000000002"]),
        (portal.CUID, "CUST_ID", ["C1", "C1"]),
        (portal.MONTH, "EXP", ["01/11/2027", "01/12/2027"]),
        (portal.LAST_NAME, "LAST_NAME", ["Smith", "1"]),
        (portal.CVV, "CVV2", ["Ann", "Lee"]),
    ],
)
def test_a_column_in_doubt_is_undecided_with_its_question_above_and_its_answers_below(
    column: str, header: str, cells: list[str]
) -> None:
    names = HEADER.replace("Card No", "ACCOUNT") if header == "ACCOUNT" else HEADER
    place = names.split(",").index(header)
    rows = [ROW.format("1127").split(",") for _ in cells]
    for row, cell in zip(rows, cells, strict=True):
        row[place] = cell
    lines = guess("\n".join([names, *map(",".join, rows), ""]).encode()).splitlines()

    at = next(number for number, line in enumerate(lines) if f'"{column}" = "undecided"' in line)

    assert lines[at - 1].startswith("# ? ")
    assert lines[at + 1].startswith(("#   or: ", "#   or delete its line"))


@pytest.mark.parametrize("column", [portal.PAN, portal.CUID, portal.ADDRESS2])
def test_a_doubt_that_a_person_answers_is_open_no_more(column: str) -> None:
    draft = first_draft(BytesIO(damaged.GOOD.partition(b"\n")[2]), "a.csv", date(2026, 11, 20))
    doubts = {doubt.key: doubt for doubt in draft.doubts}

    answered = draft.answered(doubts[column], '"column_1"').toml

    assert f'"{column}" = "column_1" # as answered' in answered


@pytest.mark.parametrize(
    ("values", "form"),
    [
        (["1127", "0128"], "MMYY"),
        (["2711", "2801"], "YYMM"),
        (["11/27"], "MM/YY"),
        (["2027-11"], "YYYY-MM"),
        (["2027-11-30"], "YYYY-MM-DD"),
        (["11/2027"], "MM/YYYY"),
    ],
)
def test_the_form_of_a_date_is_the_one_that_fits_every_value(values: list[str], form: str) -> None:
    guessed = tables("\n".join([HEADER, *(ROW.format(value) for value in values)]) + "\n")

    assert form == guessed["columns"][portal.YEAR]["format"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_delimiter_and_encoding_are_found(delimiter: str, encoding: str) -> None:
    guessed = tables(f"{HEADER}\n{ROW.format('1127')}\n".replace(",", delimiter), encoding)

    settings = SourceSettings.model_validate(guessed["source"])
    assert delimiter == settings.delimiter
    assert encoding.removesuffix("-sig") == settings.encoding


def test_the_portals_own_header_is_mapped_to_itself() -> None:
    guessed = tables(damaged.GOOD.decode())

    assert {*portal.columns()} == guessed["columns"].keys()


@pytest.mark.parametrize("above", ["sep=,\n", "# made tonight\n", "Cardholders of First Bank\n"])
def test_lines_above_the_header_are_understood(above: str) -> None:
    guessed = tables(f"{above}{HEADER}\n{ROW.format('1127')}\n")

    settings = SourceSettings.model_validate(guessed["source"])
    assert ("#" if above.startswith("#") else None) == settings.comment
    assert (2 if above.startswith("C") else 1) == settings.header_rows


def test_a_name_with_the_surname_first_is_seen() -> None:
    guessed = tables("PAN,NAME,CITY\n4242424242424242,DOE/JANE,Boston\n")

    assert {"from": "NAME", "format": "LAST/FIRST"} == guessed["columns"][portal.LAST_NAME]


def test_an_extract_without_header_gets_names_and_a_question_for_all_but_the_card() -> None:
    text = guess(damaged.GOOD.partition(b"\n")[2])

    guessed = tomllib.loads(text)
    assert (0, "column_1") == (guessed["source"]["header_rows"], guessed["source"]["names"][0])
    assert text.count("# ? ") > 8
    assert "4242" not in text


def test_a_file_of_no_rows_is_refused_without_showing_it() -> None:
    with pytest.raises(HeaderError) as caught:
        guess(b"4242424242424242\nAnn Smith\n")

    assert not any(cell in str(caught.value) for cell in ("4242", "Ann"))


@pytest.mark.parametrize("cut", quick(4, [1, 2, 3, 7, 0, 4, 5, 6, 8, 9, 10, 11]))
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_a_beginning_cut_off_anywhere_is_enough(cut: int, encoding: str) -> None:
    data = f"{HEADER}\n{ROW.format('1127')}\nC2,,,Zoë Æon".encode(encoding)
    # half a character of UTF-16 is refused
    cut -= cut % len("\0".encode(encoding.replace("16", "16-le")))

    guessed = tomllib.loads(guess(data[: len(data) - cut]))

    assert encoding == SourceSettings.model_validate(guessed["source"]).encoding


@pytest.mark.parametrize(
    ("rows", "pack"),  # twenty thousand are longer than what else is looked at
    quick(2, [(1, bytes), (1, gzip.compress), (20_000, bytes), (20_000, gzip.compress)]),
)
@pytest.mark.parametrize(("end", "written"), [("\n", True), ("\r\n", True), ("", False)])
def test_whether_the_last_line_ends_in_a_newline_is_seen_at_the_end(
    pack: Callable[[bytes], bytes], end: str, written: bool, rows: int
) -> None:
    data = pack("\n".join([HEADER, *[ROW.format("1127")] * rows]).encode() + end.encode())

    guessed = tomllib.loads(guess(data))

    assert written == guessed["source"]["final_newline"]


def test_a_compressed_beginning_is_enough() -> None:
    data = gzip.compress(damaged.MANY)

    guessed = tomllib.loads(guess(data[:-200]))

    assert {*portal.columns()} == guessed["columns"].keys()


def test_a_web_page_is_no_extract() -> None:
    with pytest.raises(NotCsvError):
        guess(b"<html>")


def test_a_doubt_about_the_encoding_shows_in_shape_what_each_makes_of_both_kinds_of_lines() -> None:
    rows = ["1,José,A".encode("cp1252"), "2,Muñoz,B".encode(), b"3,Carl,C", "4,Zoë,D".encode()]

    guess = read_lines(BytesIO(b"\n".join([*rows, b""])), "utf-8", "a.csv").encoding

    assert ('"utf-8"', ('"cp1252"',)) == (guess.value, guess.others)
    assert ("AAA? | AAAAA | AAA", "AAAA | AAA?AA | AAA?") == guess.shown


def test_a_doubt_about_the_last_line_shows_it_in_shape() -> None:
    data = b"ID;CARD;EXP\n" + b"7;4242424242424242;1228\n" * 20 + b"TRL;19;x\n"

    doubts = {
        doubt.key: doubt for doubt in first_draft(BytesIO(data), "a.csv", date(2026, 7, 1)).doubts
    }

    assert ("AAA?99?A",) == doubts["trailer"].shown


EIGHT = [ROW.replace("C1", f"C{number}").format("1127") for number in range(1, 9)]


@pytest.mark.parametrize(
    ("header", "rows", "end"),
    [
        pytest.param(HEADER, EIGHT, "\r\r\n", id="CR CR LF"),
        pytest.param(f"{HEADER},", EIGHT, "\n", id="a delimiter behind the header alone"),
        pytest.param(HEADER, [f"{row}," for row in EIGHT], "\n", id="behind the rows alone"),
        pytest.param(HEADER, [*(f"{row}," for row in EIGHT), EIGHT[0]], "\n", id="but the last"),
        pytest.param(HEADER, [EIGHT[0].replace("12 ", '"12 '), *EIGHT], "\n", id="an open quote"),
    ],
)
def test_the_header_is_kept_where_lines_end_otherwise(
    header: str, rows: list[str], end: str
) -> None:
    guessed = tables("".join(f"{line}{end}" for line in (header, *rows)))

    assert 1 == guessed["source"]["header_rows"]
    assert not {"names", "comment"} & guessed["source"].keys()
    assert ("CUST_ID", "Zip Code") == (
        guessed["columns"][portal.CUID],
        guessed["columns"][portal.POSTAL_CODE],
    )


def test_of_a_name_that_is_there_twice_a_person_says_which_is_meant() -> None:
    header = HEADER.replace("First Name", "LAST_NAME")
    lines = [header, *EIGHT, EIGHT[0].replace("C1,", "CUST_IDA,")]

    draft = first_draft(io.BytesIO("\n".join(lines).encode()), "a.csv", date(2026, 11, 20))

    [doubt] = [doubt for doubt in draft.doubts if doubt.key == portal.LAST_NAME]
    assert ('"LAST_NAME_1"', ('"LAST_NAME_2"',)) == (doubt.value, doubt.others)
    assert "Is it LAST_NAME_1, or another?" == doubt.question
    assert "comment" not in tomllib.loads(draft.toml)["source"]


def test_names_that_cannot_be_those_of_the_rows_are_refused_and_never_set_aside() -> None:
    lines = [HEADER.removesuffix(",Primary,BRANCH"), *EIGHT]

    with pytest.raises(HeaderError, match="it names 13 columns, and most lines have 15 fields"):
        guess("\n".join(lines).encode())


def test_a_month_without_a_year_is_asked_for_where_no_column_has_a_name() -> None:
    rows = [ROW.replace("Zoë", f"Zoë{'e' * month}").format(f"{month:02}") for month in range(1, 9)]

    draft = first_draft(io.BytesIO("\n".join(rows).encode()), "a.csv", date(2026, 11, 20))

    assert {portal.YEAR, portal.MONTH} <= {doubt.key for doubt in draft.doubts}


@pytest.mark.parametrize(
    ("last", "trailer"),
    [("8 rows selected.", "row"), ("  8 record(s) selected. ", "record"), ("8 rows", "row")],
)
def test_what_a_client_says_of_its_rows_is_a_trailer_and_a_row_never_is(
    last: str, trailer: str
) -> None:
    text = "\n".join([HEADER, *EIGHT, "", last.strip(), "", ""])

    pattern = tables(text)["source"]["trailer"]

    assert ["8"] == re.findall(pattern, last.strip())
    assert not re.search(pattern, f"8 {trailer}s selected,4242424242424242,1127")


@pytest.mark.parametrize("word", ["END", "TOTAL", "T", "9999", "EOF"])
def test_a_guessed_comment_is_the_form_of_a_line_and_takes_no_row(word: str) -> None:
    lines = [HEADER, *EIGHT, f"{word} of file"]
    guessed = tables("\n".join(lines) + "\n")["source"]
    settings = SourceSettings.model_validate(guessed)
    first = EIGHT[0].replace("C1", f"{word}1")

    extract = Extract(BytesIO("\n".join([HEADER, first, *lines[1:], ""]).encode()), settings, "a")

    assert 9 == sum(block.rows.height for block in extract)
    assert {"header": 1, "comment": 1} == extract.set_aside


def test_a_record_above_rows_without_a_header_is_set_aside_by_its_form() -> None:
    lines = ["CUSTOMERS OF 2026-11-20", *EIGHT]

    settings = SourceSettings.model_validate(tables("\n".join(lines) + "\n")["source"])

    row = EIGHT[0].replace("C1", "CUSTOMER-1")
    extract = Extract(
        BytesIO("\n".join(["CUSTOMERS OF 2026-11-21", row, ""]).encode()), settings, "a"
    )
    assert (1, {"comment": 1}) == (sum(block.rows.height for block in extract), extract.set_aside)


def test_numbers_that_a_library_wrote_as_fractions_lose_what_it_added() -> None:
    lines = [HEADER, *(row.replace("4242,1127", "4242.0,1127.0") for row in EIGHT)]

    text = guess("".join(f"{line}\n" for line in lines).encode())

    assert '{ from = "Card No", strip_suffix = ".0" }' in text
    assert '{ from = "EXP", strip_suffix = ".0", format = "MMYY" }' in text
    assert '= "Zip Code" #' in text
