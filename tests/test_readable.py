"""What people see has no character that hides, turns text around, or runs in a spreadsheet."""

from __future__ import annotations

import csv
import io
import unicodedata

import openpyxl
import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

from flows.redaction import shown
from flows.reports.page import run_page
from flows.reports.tally import KINDS
from flows.reports.workbook import Sheet, workbook
from flows.runs.frames import csv_pieces
from tests.facts import facts

HOSTILE = "\u202egro.knil\u202c \x1b[0m\x07\u200b\ufeff\x85\u2028\u2066\U000e0041"
FORMULAS = ["=1+1", "+1", "-1", "@A1", "\t=1", "\r=1", " =1", "\u200b=1"]
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def hidden(text: str) -> list[str]:
    return [char for char in text if unicodedata.category(char) in HIDDEN]


def runs(text: str) -> bool:
    return text.strip().startswith(("=", "+", "-", "@"))


def in_csv(text: str) -> str:
    """Return a text as a list has it."""
    lists = csv_pieces([pl.DataFrame({"cuid": [text, "C-1", None]})], ["cuid"])
    content = b"".join(lists).decode()
    [_, [written], *others] = csv.reader(io.StringIO(content))
    assert [["C-1"], []] == [cells if cells != [""] else [] for cells in others]
    return written


@given(TEXTS.filter(str.strip))
@example(HOSTILE)
def test_a_cell_of_a_list_has_nothing_hidden_and_nothing_that_runs(text: str) -> None:
    written = in_csv(text)

    assert [] == hidden(written)
    assert not runs(written)


def test_formulas_of_all_kinds_are_texts_in_lists() -> None:
    written = [in_csv(text) for text in FORMULAS]

    assert [] == [text for text in written if runs(text)]


def test_what_is_plain_stays_as_it_is() -> None:
    plain = ["C-0001234", "Größe", "a=b", "Straße 1-3", "日本", "https://links.example.com/l/a-b_c"]

    assert plain == [in_csv(text) for text in plain]


def test_what_is_hidden_is_named() -> None:
    assert r"a\u202eb\u001b[0m\U000e0041" == in_csv("a\u202eb\x1b[0m\U000e0041")


def test_a_file_for_machines_has_its_cells_as_they_are() -> None:
    rows = pl.DataFrame({"cuid": ["=C\u202e"]})

    written = b"".join(csv_pieces([rows], ["cuid"], unchanged=True))

    assert "cuid\n=C\u202e\n" == written.decode()


def test_a_workbook_has_nothing_hidden_and_nothing_that_runs() -> None:
    content = workbook({"Texts": Sheet(["text"], [[text] for text in (HOSTILE, *FORMULAS)])})

    [_, *cells] = openpyxl.load_workbook(io.BytesIO(content))["Texts"]["A"]
    texts = [str(cell.value) for cell in cells]
    assert [] == [text for text in texts if hidden(text) or runs(text)]


def test_a_page_has_nothing_hidden() -> None:
    summary, chunks = facts(1)
    message = pl.DataFrame([(HOSTILE, "card.pan.other", 3, HOSTILE)], schema=KINDS, orient="row")

    page = run_page({**summary, "shapes": message.to_dicts()}, chunks)

    assert r"\u202egro.knil" in page
    assert [] == [char for char in hidden(page) if char != "\n"]


@given(TEXTS)
@example(HOSTILE)
def test_a_terminal_shows_nothing_hidden(text: str) -> None:
    assert [] == hidden(shown(text))
