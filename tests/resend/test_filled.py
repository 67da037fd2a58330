"""A filled-in template: what spreadsheets do is let pass, everything else is refused by its
line.
"""

from __future__ import annotations

import csv
from io import StringIO

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.resend.filled_template import (
    CorrectionsRefusedError,
    CorrectionsUnreadableError,
    by_run,
    misplaced,
    read_filled,
)
from schemas.corrections import AT_SOURCE, Filled, Template
from schemas.portal import CITY, PAN, POSTAL_CODE, columns

RUN = "bank-20261120-3f9c21aa"
HEAD = "run,row,cuid,last_4,column,code,wrong,accepted,correction"
TEST_CARD = "4242424242424242"


def filled(*lines: str, head: str = HEAD, ends: str = "\n") -> bytes:
    """Return a template of these lines."""
    return ends.join([head, *lines, ""]).encode()


def line(row: object, column: str, correction: str, cuid: str = "") -> str:
    """Return one line of a template."""
    return f"{RUN},{row},{cuid},,{column},address.city.missing,city is missing,a city,{correction}"


def cells(content: bytes) -> list[tuple[int, str, str]]:
    """Return row, column, correction of what is read."""
    return read_filled(content, "c.csv", RUN).select("row", "column", "correction").rows()


def refusal(content: bytes) -> str:
    """Return which lines a file is refused for."""
    with pytest.raises(CorrectionsRefusedError) as refused:
        read_filled(content, "c.csv", RUN)
    return str(refused.value.fields["lines"])


def test_only_filled_in_cells_are_corrections() -> None:
    found = cells(filled(line(2, CITY, "Boston"), line(3, CITY, ""), line(4, POSTAL_CODE, "02108")))

    assert [(2, CITY, "Boston"), (4, POSTAL_CODE, "02108")] == found


def test_a_template_of_two_runs_is_read_by_run_and_refused_by_the_lines_of_the_file() -> None:
    own = [line(2, CITY, "Boston"), line(4, PAN, "Salem")]
    other = line(3, CITY, '"Old\nSalem"').replace(RUN, "bank-20261121-3f9c21aa")

    parts = by_run(filled(own[0], other, own[1], line(5, CITY, "")), "c.csv")

    assert [RUN, "bank-20261121-3f9c21aa"] == [*parts]
    assert "line 5: card fields are corrected at the source" == refusal(parts[RUN])
    [(row, _, _)] = read_filled(parts["bank-20261121-3f9c21aa"], "c.csv", "bank-20261121-3f9c21aa")[
        ["row", "column", "correction"]
    ].rows()
    assert 3 == row


def test_in_a_template_of_several_runs_a_correction_names_its_run() -> None:
    with pytest.raises(CorrectionsRefusedError, match="line 2: it names no run"):
        by_run(filled(line(2, CITY, "Boston").replace(RUN, "")), "c.csv")


def test_what_a_spreadsheet_makes_of_it_reads_the_same() -> None:
    plain = cells(filled(line(2, CITY, "Boston"), line(4, POSTAL_CODE, "02108")))
    head = "Correction;Column;ROW;cuid;;"
    lines = [f'"Boston";"{CITY}";"2";"";;', f"'02108;{POSTAL_CODE.upper()};4;'=x;;", ";;;;;", ""]

    saved = "\ufeff".encode() + filled("", *lines, head=head, ends="\r\n")
    marked = b"sep=;\r\n" + filled(*lines, head=head, ends="\r\n")

    assert (plain, plain) == (cells(saved), cells(marked))


def test_an_empty_mark_clears_a_field_and_is_kept_as_it_is() -> None:
    assert [(2, CITY, "(empty)")] == cells(filled(line(2, CITY, "(empty)")))


@pytest.mark.parametrize("column", sorted(AT_SOURCE))
def test_card_fields_are_corrected_at_the_source_only(column: str) -> None:
    assert (
        refusal(filled(line(2, column, "29"))) == "line 2: card fields are corrected at the source"
    )


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (line(2, "address.town", "Boston"), "it names no column of the portal"),
        (line(2, "", "Boston"), "it names no column of the portal"),
        (line("two", CITY, "Boston"), "it has no row number"),
        (line(0, CITY, "Boston"), "it has no row number"),
        (line(2, CITY, "x" * 501), "the correction has more than 500 characters"),
        (line(2, CITY, "Boston").replace("3f9c21aa", "00000000"), "it belongs to another run"),
        (line(2, CITY, TEST_CARD), "something in it looks like a card number"),
        (line(2, CITY, "", cuid="4242 4242 4242 4242"), "something in it looks like a card number"),
        (
            line(2, CITY, "4242\u00a04\u20132424242 42424 2"),
            "something in it looks like a card number",
        ),
        (
            line(2, CITY, "").replace("a city", f"was {TEST_CARD}!"),
            "something in it looks like a card number",
        ),
    ],
)
def test_anything_else_is_refused_by_its_line(bad: str, why: str) -> None:
    assert refusal(filled(line(1, CITY, "Boston"), bad)) == f"line 3: {why}"


def test_two_different_corrections_of_one_cell_are_refused_and_two_equal_ones_are_one() -> None:
    same = [line(2, CITY, "Boston"), line(2, CITY, "Boston")]

    assert [(2, CITY, "Boston")] == cells(filled(*same))
    assert (
        refusal(filled(*same, line(2, CITY, "Salem")))
        == "line 4: line 2 corrects the same cell differently"
    )


def test_no_refusal_shows_a_cell() -> None:
    content = filled(
        line(2, PAN, TEST_CARD), line(3, "secret", "geheim"), line("x", CITY, "geheim")
    )

    assert not {TEST_CARD, "geheim", "secret"} & set(refusal(content).replace(":", " ").split())


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "it is empty"),
        (b"\xff\xfe" + "row".encode("utf-16-le"), "it is not text in UTF-8"),
        (b"row,column\n1,x\n", "its header lacks correction"),
        (
            b"row,column,correction,pan\n1,x,y,z\n",
            "its header has columns that the template lacks, or one twice",
        ),
        (b"row,column,correction\n1,x,y,z\n", "line 2 has more fields than the header"),
        (b'row,column,correction\n1,x,"y"z\n', "the quotes of line 2 do not fit"),
    ],
)
def test_what_is_no_template_says_why(content: bytes, found: str) -> None:
    with pytest.raises(CorrectionsUnreadableError) as refused:
        read_filled(content, "c.csv", RUN)

    assert refused.value.fields == {"name": "c.csv", "problem": found}


def test_a_line_that_speaks_of_another_row_than_its_cuid_says_is_found() -> None:
    rows = pl.DataFrame(
        {"row": [1, 2, 3], "cuid": ["a", "007", None], "last_4": ["1111", "0034", None]}
    )
    lines = [
        f"{RUN},1,a,1111,{CITY},,,,x",
        f"{RUN},2,7,34,{CITY},,,,x",  # a spreadsheet took the zeros
        f"{RUN},2,a,,{POSTAL_CODE},,,,x",
        f"{RUN},3,b,,{CITY},,,,x",
        f"{RUN},4,,,{CITY},,,,x",
    ]

    found = misplaced(read_filled(filled(*lines), "c.csv", RUN), rows.cast({"row": pl.UInt32}))

    other = "the row has another cuid or last_4"
    assert [(4, other), (5, other), (6, "no such row in the run")] == [tuple(one) for one in found]


@settings(deadline=None)
@given(
    st.dictionaries(
        st.tuples(
            st.integers(1, 9),
            st.sampled_from([name for name in columns() if name not in AT_SOURCE]),
        ),
        st.text(
            st.characters(
                codec="utf-8", exclude_categories=["Cc", "Cs", "Nd"], exclude_characters="'\ufffd"
            ),
            max_size=9,
        ),
        max_size=6,
    ),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_whatever_is_filled_in_is_read_as_it_was_written(
    corrections: dict[tuple[int, str], str], delimiter: str, ends: str
) -> None:
    out = StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator=ends)
    writer.writerow(list(Template.dtypes()))
    for (row, column), text in corrections.items():
        line = {"run": RUN, "row": row, "column": column, "correction": text}
        writer.writerow([line.get(name, "") for name in Template.dtypes()])

    found = read_filled(out.getvalue().encode("utf-8-sig"), "c.csv", RUN)

    Filled.validate(found)
    written = {
        (row, column): text.strip() for (row, column), text in corrections.items() if text.strip()
    }
    assert written == {
        (row, column): text
        for row, column, text in found.select("row", "column", "correction").rows()
    }


def test_a_number_of_any_length_is_refused_as_no_row_number() -> None:
    assert (
        refusal(filled(line("1" * 5000, CITY, "Boston")))
        == "line 2: something in it looks like a card number"
    )
    assert refusal(filled(line("4294967296", CITY, "Boston"))) == "line 2: it has no row number"
    assert [(4294967295, CITY, "Boston")] == cells(filled(line("4294967295", CITY, "Boston")))


def test_a_correction_may_have_as_many_characters_as_the_limit() -> None:
    assert [(2, CITY, "x" * 500)] == cells(filled(line(2, CITY, "x" * 500)))


@pytest.mark.parametrize(("bad", "more"), [(10, ""), (11, "; and 1 more"), (12, "; and 2 more")])
def test_a_refusal_names_ten_lines_and_counts_the_others(bad: int, more: str) -> None:
    lines = refusal(filled(*(line("x", CITY, f"Boston {at}") for at in range(bad))))

    named = "; ".join(f"line {at}: it has no row number" for at in range(2, 12))
    assert f"{named}{more}" == lines
