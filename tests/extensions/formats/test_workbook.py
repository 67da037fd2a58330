"""Sheets of Excel workbooks: texts, dates and small numbers as they are; what Excel cut is refused."""

from __future__ import annotations

import calendar
import random
import zipfile
from collections.abc import Sequence
from datetime import date, datetime, timedelta
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
from flows.extensions.formats import workbook
from flows.extensions.formats.settings import FormatSettings
from flows.extensions.formats.workbook import ExcelMissingError, NumberCellError, WorkbookError
from flows.extracts.rows import open_rows
from schemas import portal
from schemas.cell_formats import date_cells_as, date_part
from tests.extensions.formats.mainframe import card_number
from tests.night import local_bench

HEADER = ("CUSTOMER_ID", "CARD_NUMBER", "EXPIRY_DATE", "FIRST_NAME", "LAST_NAME", "STREET", "CITY")
HEADERS = (*HEADER, "STATE", "ZIP")
EXPIRY = {"from": "EXPIRY_DATE", "format": "MM/YY"}
COLUMNS: dict[str, Any] = {
    "cardholder.cuid": "CUSTOMER_ID",
    "service_card.pan": "CARD_NUMBER",
    "service_card.address.first_name": "FIRST_NAME",
    "service_card.address.last_name": "LAST_NAME",
    "service_card.address.address1": "STREET",
    "service_card.address.city": "CITY",
    "service_card.address.subnational": "STATE",
    "service_card.address.postal_code": "ZIP",
    "service_card.address.country": {"constant": "US"},
    "service_card.address.is_primary": {"constant": "TRUE"},
}


def customer(number: int) -> tuple[Any, ...]:
    card = (card_number(number), date(2036, 1 + number % 12, 28))
    name = (("Ann", "Bea", "Cleo")[number % 3], ("Smith", "Jones", "Li")[number // 3 % 3])
    return (f"C-{number:04d}", *card, *name, f"{number} Elm Street", "Boston", "MA", "02108")


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
    source = FormatSettings.model_validate({"format": "xlsx"} | changes)
    extract = open_rows(BytesIO(content), source, "cards.xlsx")
    blocks = list(extract)
    assert extract.lines == extract.height + sum(extract.set_aside.values())
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


@pytest.mark.parametrize("form", ["MM/YY", "YYMM", "MON YYYY", "DD.MM.YYYY", "YYYY-MM-DD"])
def test_a_date_cell_is_read_under_the_format_that_texts_of_its_column_have(form: str) -> None:
    chance = random.Random(form)
    days = [date(2026 + chance.randrange(15), chance.randrange(1, 13), 1) for _ in range(60)]
    last = [day + timedelta(days=calendar.monthrange(day.year, day.month)[1] - 1) for day in days]
    written = [_written(day, form) for day in days]
    texts = pl.DataFrame({"EXP": [*map(str, days), *map("{} 00:00:00".format, last), *written]})

    read = texts.select(
        date_part(date_cells_as(pl.col("EXP"), form), form, target).alias(target)
        for target in (portal.MONTH, portal.YEAR)
    )

    year = 4 if "YYYY" in form else 2
    expected = [(f"{day.month:02d}", str(day.year)[-year:]) for day in days * 3]
    assert expected == read.rows()


def _written(day: date, form: str) -> str:
    parts = {"YYYY": "%Y", "YY": "%y", "MON": "%b", "MM": "%m", "DD": "%d"}
    for token, directive in parts.items():
        form = form.replace(token, day.strftime(directive).upper())
    return form


def test_a_day_within_a_month_is_no_expiry_without_a_day() -> None:
    december_27 = pl.select(date_cells_as(pl.lit("2026-12-27"), "MM/YY")).item()

    assert "2026-12-27" == december_27


def test_a_workbook_night_takes_dates_and_texts_in_one_column(tmp_path: Path) -> None:
    rows = [[*customer(number)] for number in range(10)]
    for row in rows:
        row[2] = row[2].replace(day=1)
    for row in rows[5:]:
        row[2] = f"{row[2]:%m/%y}"
    rows[4][2] = date(2026, 12, 27)
    columns = {f"service_card.expiration_{part}": EXPIRY for part in ("month", "year")}
    bench = local_bench(
        tmp_path,
        source={"format": "xlsx"},
        columns=COLUMNS | columns,
        limits={"max_reject_rate": 0.2},
    )
    bench.drop_bytes(book([HEADERS, *rows]), "cards.xlsx")

    run = bench.submit("cards.xlsx").manifest.run

    records = bench.ledger(run).sort("row")
    expected: list[str | None] = [f"36{1 + number % 12:02d}" for number in range(10)]
    expected[4] = None
    assert expected == records["expiration"].to_list()
    assert ["9999-99-99"] == records["found"][4].to_list()


def test_init_asks_where_the_days_of_date_cells_may_be_years(tmp_path: Path) -> None:
    rows = [
        (*customer(n)[:2], date(2026, 1 + n % 12, 27 + n % 2), *customer(n)[3:]) for n in range(30)
    ]
    (tmp_path / "cards.xlsx").write_bytes(book([HEADERS, *rows]))

    done = CliRunner().invoke(
        main,
        ["--config", str(tmp_path), "init", "bank", "--from", str(tmp_path / "cards.xlsx")],
    )

    assert "Are the days right? 27 are neither" in done.stdout


def test_init_reads_a_workbook_and_every_row_of_it_would_be_sent(tmp_path: Path) -> None:
    first_days = [
        (*cells[:2], cells[2].replace(day=1), *cells[3:], f"{number:03d}")
        for number, cells in enumerate(map(customer, range(1, 31)))
    ]
    (tmp_path / "cards.xlsx").write_bytes(book([(*HEADERS, "CVV"), *first_days]))

    done = CliRunner().invoke(
        main,
        ["--config", str(tmp_path), "init", "bank", "--from", str(tmp_path / "cards.xlsx")],
    )

    assert "30 of 30 rows in 1 chunk would be sent" in done.stdout
    assert load_issuer(tmp_path, "bank").source.is_workbook
