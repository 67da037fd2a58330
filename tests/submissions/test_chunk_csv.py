import csv
from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.runs.header import TemplateError, default_header, header_from_template
from flows.submissions.chunk_csv import lines, write_chunk
from schemas.portal import CUID, FIRST_NAME, NICKNAME, PAN, columns
from tests.builders import GOOD, portal_rows, share_of

CELLS = (
    st.none()
    | st.sampled_from(['5" Main St', "Apt 4, Floor 2", '"', ","])
    | st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=12)
)  # normalising leaves no control characters and no empty text


@given(st.lists(CELLS, min_size=1, max_size=20))
@settings(max_examples=share_of(4))
def test_a_stock_csv_reader_reads_back_what_was_written(cells: list[str | None]) -> None:
    rows = portal_rows(*({FIRST_NAME: cell, NICKNAME: cell} for cell in cells))

    text = write_chunk(lines(rows, columns()), default_header()).decode("utf-8")

    read = list(csv.DictReader(StringIO(text, newline="")))
    assert [row[FIRST_NAME] or None for row in read] == cells
    assert [row[NICKNAME] or None for row in read] == cells
    assert all(len(row) == len(columns()) for row in read)


def test_the_header_is_interface_2_6_and_nulls_are_empty_not_quoted() -> None:
    rows = portal_rows({NICKNAME: None})

    written = write_chunk(lines(rows, columns()), default_header()).decode().split("\n")

    assert written[0] == ",".join(columns())
    assert written[1] == ",".join(GOOD.get(name, "") for name in columns())
    assert written[2] == ""


def test_the_portals_own_template_gives_names_and_order() -> None:
    template = ",".join(reversed([name.replace("service_card", "acme_card") for name in columns()]))

    header = header_from_template("\ufeff" + template + "\r\n", "template.csv")

    assert header.order == tuple(reversed(columns()))
    assert header.line.decode().split(",")[-2:] == ["acme_card.pan", "cardholder.cuid\n"]


def test_a_template_that_lacks_a_column_is_refused_by_name() -> None:
    template = ",".join(name for name in columns() if name not in (CUID, PAN)) + ",acme.colour"

    with pytest.raises(TemplateError) as error:
        header_from_template(template, "template.csv")

    assert error.value.fields == {
        "name": "template.csv",
        "missing": "cardholder.cuid, service_card.pan",
        "unknown": "acme.colour",
    }
