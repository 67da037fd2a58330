from io import BytesIO

import openpyxl
import polars as pl

from flows.reports.tally import KINDS
from flows.reports.workbook import Sheet, run_workbook, workbook
from schemas.breaks import break_of
from tests.facts import facts

SHEETS = [
    "Run", "To do", "Control totals", "Open items", "Links by expiry", "Reasons", "Error texts",
    "Breaks", "Chunks", "Trend",
]  # fmt: skip


def test_a_spreadsheet_reads_every_sheet_of_the_report() -> None:
    summary, chunks = facts(3, missing=1, rejected=4)

    book = openpyxl.load_workbook(BytesIO(run_workbook(summary, chunks)))

    assert book.sheetnames == SHEETS
    names = [cell.value for cell in book["Chunks"]["B"]]
    assert names == ["name", *chunks["name"]]
    rows = {
        name.value: number.value
        for name, number in zip(book["Run"]["A"], book["Run"]["B"], strict=True)
    }
    assert (rows["rows read"], rows["rows linked"], rows["rows awaiting"]) == (3004, 1900, 1000)


def test_a_text_that_looks_like_a_formula_a_link_or_a_number_stays_text() -> None:
    hostile = [
        '=HYPERLINK("https://evil.example")',
        "+1+1",
        "-2",
        "@SUM(A1)",
        "https://evil.example",
        "0042",
    ]

    content = workbook({"Texts": Sheet(["text"], [[text] for text in hostile])})

    sheet = openpyxl.load_workbook(BytesIO(content))["Texts"]
    cells = list(sheet["A"][1:])
    assert [cell.value for cell in cells] == [*(f"'{text}" for text in hostile[:4]), *hostile[4:]]
    assert {cell.data_type for cell in cells} == {"s"}
    assert [cell.hyperlink for cell in cells] == [None] * len(hostile)


def test_error_texts_and_file_names_of_the_partner_are_no_formulas_in_the_workbook() -> None:
    shapes = pl.DataFrame(
        [("=1+1", "card.pan.other", 1, "=cmd|' /C calc'!A0")], schema=KINDS, orient="row"
    )
    summary, chunks = facts(
        1, shapes=shapes, breaks=frozenset({break_of("FOREIGN_FILE", 1, "=1+1.csv")})
    )

    book = openpyxl.load_workbook(BytesIO(run_workbook(summary, chunks)))

    assert {cell.data_type for sheet in book for row in sheet.iter_rows() for cell in row} <= {
        "s",
        "n",
    }


def test_the_same_facts_are_the_same_bytes() -> None:
    summary, chunks = facts(2)

    assert run_workbook(summary, chunks) == run_workbook(summary, chunks)
