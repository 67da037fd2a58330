"""Sheets of Excel workbooks: texts, dates and small numbers as they are; what Excel cut is refused."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from datetime import date, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import xlsxwriter
from click.testing import CliRunner

from flows.cli.main import main
from flows.configuration import load_issuer
from flows.errors import CardlinkError
from flows.extracts import workbook
from flows.extracts.rows import open_rows
from flows.extracts.workbook import ExcelMissingError, NumberCellError, WorkbookError
from schemas.source import SourceSettings
from tests.extracts.mainframe import card_number

HEADER = ("CUSTOMER_ID", "CARD_NUMBER", "EXPIRY_DATE", "FIRST_NAME", "LAST_NAME", "STREET", "CITY")
HEADERS = (*HEADER, "STATE", "ZIP")


def customer(number: int) -> tuple[Any, ...]:
    name = (f"C-{number:04d}", card_number(number), date(2036, 1 + number % 12, 28), "Ann", "Smith")
    return (*name, f"{number} Elm Street", "Boston", "MA", "02108")


def book(rows: Sequence[Sequence[Any]], *more: str) -> bytes:
    """Write a workbook with a sheet Cards, and empty ones."""
    content = BytesIO()
    with xlsxwriter.Workbook(content, {"in_memory": True}) as written:
        sheet = written.add_worksheet("Cards")
        form = written.add_format({"num_format": "mm/yy"})
        for row, cells in enumerate(rows):
            for column, cell in enumerate(cells):
                if isinstance(cell, date):
                    sheet.write_datetime(row, column, cell, form)
                elif isinstance(cell, str):
                    sheet.write_string(row, column, cell)
                else:
                    sheet.write(row, column, cell)
        for name in more:
            written.add_worksheet(name)
    return content.getvalue()


def read(content: bytes, **changes: Any) -> pl.DataFrame:
    source = SourceSettings.model_validate({"format": "xlsx"} | changes)
    blocks = list(open_rows(BytesIO(content), source, "cards.xlsx"))
    assert 0 == sum(block.refused.height for block in blocks)
    return pl.concat(block.rows for block in blocks)


def test_cells_are_read_by_their_kind_and_rows_keep_their_numbers() -> None:
    rows = [
        ("NAME", "CARD", "DAY", "FLAG", "AMOUNT"),
        ('Ann "A", Li', "0000123", date(2036, 11, 30), True, 2108),
        (),
        ("José\nGarcía", "4", datetime(2036, 11, 30, 12, 30), False, 1.5),
    ]

    cells = read(book(rows))

    assert [
        (1, 2, 'Ann "A", Li', "0000123", "2036-11-30", "TRUE", "2108"),
        (2, 4, "José García", "4", "2036-11-30 12:30:00", "FALSE", "1.5"),
    ] == cells.rows()


def test_a_card_number_that_excel_keeps_as_a_number_is_refused_with_the_cause() -> None:
    rows = [("NAME", "CARD", "X"), ("Ann", "4", "x"), ("Li", 4000000000000002, "x")]

    with pytest.raises(NumberCellError, match=r"Cell B3 .* its last digits may be lost") as error:
        read(book(rows))

    assert "40000" not in str(error.value.text)


def test_of_several_sheets_the_named_one_is_read() -> None:
    content = book([("A", "B"), ("1", "2")], "Notes")

    assert [("1", "2")] == read(content, sheet="Cards").drop("row", "line").rows()
    with pytest.raises(WorkbookError, match=r"2 sheets, .* 'Cards', 'Notes'"):
        read(content)
    with pytest.raises(WorkbookError, match="no sheet 'Kards'"):
        read(content, sheet="Kards")


def archive(size: int) -> bytes:
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("xl/workbook.xml", bytes(size))
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"A,B\n1,2\n", "no workbook"),
        (book([("A", "B"), ("1", "2")])[:-200], "no workbook"),
        (archive(10), "no workbook"),
        (archive(3 << 20), "unpacked it has more than"),
    ],
)
def test_what_is_no_workbook_or_a_bomb_is_refused(
    monkeypatch: pytest.MonkeyPatch, content: bytes, problem: str
) -> None:
    monkeypatch.setattr(workbook, "LARGEST_UNPACKED", 1 << 20)

    with pytest.raises(WorkbookError, match=problem):
        read(content)


def test_a_damaged_part_is_seen_before_a_row_is_read() -> None:
    content = bytearray(book([("A", "B"), *[("1", "2")] * 500]))
    content[len(content) // 2] ^= 0xFF

    with pytest.raises(CardlinkError):
        read(bytes(content))


def test_without_the_extra_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workbook, "find_spec", lambda _: None)

    with pytest.raises(ExcelMissingError, match=r"pip install 'cardlink\[excel\]'"):
        read(book([("A", "B"), ("1", "2")]))


def test_init_reads_a_workbook_and_every_row_of_it_would_be_sent(tmp_path: Path) -> None:
    (tmp_path / "cards.xlsx").write_bytes(book([HEADERS, *map(customer, range(1, 31))]))

    done = CliRunner().invoke(
        main,
        ["--config", str(tmp_path), "init", "bank", "--from", str(tmp_path / "cards.xlsx")],
    )

    assert "30 of 30 rows in 1 chunk would be sent" in done.stdout
    assert "xlsx" == load_issuer(tmp_path, "bank").source.format
