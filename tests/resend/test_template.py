"""The correction template: one line per row and reason, in words, without a card number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from flows.reports.bank_words import BankWords
from flows.resend import template as resend_template
from flows.resend.template import template
from flows.results.partner_terms import KINDS, OTHER, UNREADABLE
from flows.results.row_states import RUN_ROW
from schemas.corrections import AT_SOURCE, WRONG, Template
from schemas.portal import CITY, POSTAL_CODE, YEAR, columns
from schemas.reasons import HINTS, LINES, ROWS
from tests.memory_bench import memory_bench

RUN = "bank-20261120-3f9c21aa"


def lines(*reasons: str, cuid: str = "c-1") -> list[dict[str, str]]:
    """Return the template of one row with these reasons."""
    cells = (1, None, cuid, "4242", "rejected", list(reasons), 2, None)
    row = pl.DataFrame([cells], RUN_ROW, orient="row")
    found = template(row, RUN, BankWords(None))
    Template.validate(found)
    return found.to_dicts()


def test_each_reason_is_a_line_with_what_is_wrong_and_what_is_accepted() -> None:
    found = lines(f"{CITY}|address.city.missing", f"{POSTAL_CODE}|address.postal_code.mismatch")

    assert [
        (CITY, "city is missing", "a city"),
        (POSTAL_CODE, "postal code does not fit the rest"),
    ] == [
        (found[0]["column"], found[0]["wrong"], found[0]["accepted"]),
        (found[1]["column"], found[1]["wrong"]),
    ]


def test_the_partners_errors_name_the_column_their_code_speaks_of() -> None:
    found = lines("address.postal_code.format", "partner.error.unreadable")

    assert [POSTAL_CODE, None] == [one["column"] for one in found]


@pytest.mark.parametrize(
    "reason", [f"{YEAR}|card.expiration.expired", "card.pan.unsupported", "|line.fields.too_few"]
)
def test_what_only_the_source_can_correct_says_so(reason: str) -> None:
    assert lines(reason)[0]["accepted"].startswith("correct it at the source")


def test_every_kind_of_the_partner_and_of_lines_has_its_words() -> None:
    partner = {*KINDS, OTHER, UNREADABLE}
    ours = {entry.code.rpartition(".")[2] for entry in (*LINES, *ROWS)}

    assert set() == (partner | ours) - set(WRONG)


def test_a_kind_without_words_is_not_accepted() -> None:
    assert "city is not accepted" == lines(f"{CITY}|address.city.new_kind")[0]["wrong"]


def test_every_field_a_hint_is_for_has_its_column() -> None:
    fields = [
        subject for subject in HINTS if subject.partition(".")[0] in ("address", "cardholder")
    ]

    found = [lines(f"{subject}.missing")[0]["column"] for subject in fields]

    assert set(columns()) - AT_SOURCE >= set(found)


def test_of_the_runs_with_rows_to_correct_the_newest_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = [f"bank-{day}-00000000{again}" for day in (20261119, 20261120) for again in ("", "-r10")]
    runs.insert(3, "bank-20261120-00000000-r9")
    rows = pl.DataFrame({"run": runs, "row": 1}, {"run": pl.String, "row": pl.UInt32})
    book = SimpleNamespace(parts=lambda: [rows], nameless=rows.clear())
    monkeypatch.setattr(resend_template, "read_book", lambda *_: book)
    monkeypatch.setattr(resend_template, "_to_correct", lambda _, part, __: part)
    monkeypatch.setattr(resend_template, "words_of", lambda _: {})
    monkeypatch.setattr(resend_template, "run_rows", lambda _: [rows[:1]])
    monkeypatch.setattr(resend_template, "template", lambda _, run, __: run)

    of_runs: list[Any] = list(resend_template.template_of_all_runs(memory_bench().context))

    assert runs[::-1] == of_runs
