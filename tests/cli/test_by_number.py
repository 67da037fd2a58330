"""A matter is shown and decided about by its number, and about what was shown alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.database.errors import DatabaseDeniedError
from tests.cli.test_mend import bank_in, cardlink, told
from tests.cli.test_shown_rows import refused_rows
from tests.night import Bench, issuer

WHY = ("--reason", "account closed")


@pytest.fixture
def bank(tmp_path: Path) -> Bench:
    limits = {"max_reject_rate": 1.0, "max_row_jump": 9.0}
    return replace(bank_in(tmp_path), issuer=issuer(limits=limits))


def work(folder: Path) -> dict[str, dict[str, Any]]:
    return {line["kind"]: line for line in told(folder, "worklist", "bank")["worklist"]}


def test_a_line_has_the_numbers_of_its_matters_and_they_stay_until_it_is_over(
    bank: Bench, tmp_path: Path
) -> None:
    refused_rows(bank, "bank-20261120.csv", "a", "b")
    first = work(tmp_path)["rows to correct"]["numbers"]
    refused_rows(bank, "bank-20261121.csv", "c")

    line = work(tmp_path)["rows to correct"]
    printed = cardlink(tmp_path, "worklist", "bank").stdout

    assert ("1", "1-2") == (first, line["numbers"])
    assert ["1", "2"] == sorted(each["numbers"] for each in line["each"])
    assert "rows to correct 1-2 (bank; due" in printed
    assert " decide bank 1-2 give-up --reason " in printed


def test_all_about_a_matter_is_shown_by_row_numbers_and_no_contents(
    bank: Bench, tmp_path: Path
) -> None:
    refused_rows(bank, "bank-20261120.csv", "cuid-a", "cuid-b")
    work(tmp_path)

    facts = told(tmp_path, "show", "bank", "1")
    printed = cardlink(tmp_path, "show", "bank", "1").stdout

    assert ([1, 2], 2) == (facts["row_numbers"], facts["rows"])
    assert "1-2" in printed
    assert "address.postal_code" in printed
    assert "give-up: They need no link" in printed
    assert "mend give-up" in printed
    assert "cuid-a" not in json.dumps(facts) + printed


def test_a_choice_is_carried_out_on_some_of_the_matters_of_a_line(
    bank: Bench, tmp_path: Path
) -> None:
    refused_rows(bank, "bank-20261120.csv", "a", "b")
    refused_rows(bank, "bank-20261121.csv", "c")
    work(tmp_path)

    tried = cardlink(tmp_path, "decide", "bank", "2", "give-up", *WHY, "--dry-run")
    done = told(tmp_path, "decide", "bank", "2", "give-up", *WHY)
    again = cardlink(tmp_path, "decide", "bank", "2", "give-up", *WHY)

    assert (0, 1) == (tried.exit_code, done["cards"])
    assert " decide bank 2 give-up" in tried.stderr
    mixed = cardlink(tmp_path, "decide", "bank", "1-2", "give-up", *WHY)
    assert (0, "1") == (again.exit_code, work(tmp_path)["rows to correct"]["numbers"])
    assert "bank: done already, by " in again.stdout
    assert "bank 2: it is over, and 1 is open. Nothing was done." in mixed.stderr


@pytest.mark.parametrize("numbers", ["18-15", "1-999999999"])
def test_a_range_that_is_none_decides_nothing(bank: Bench, tmp_path: Path, numbers: str) -> None:
    refused_rows(bank, "bank-20261120.csv", "a", "b")
    work(tmp_path)

    done = cardlink(tmp_path, "decide", "bank", numbers, "give-up", *WHY)

    assert 2 == done.exit_code
    assert f"{numbers} is no range of matters; nothing was done." in done.stderr


def test_what_was_not_shown_cannot_be_decided_and_what_cannot_be_chosen_is_said(
    bank: Bench, tmp_path: Path
) -> None:
    refused_rows(bank, "bank-20261120.csv", "a", "b")
    work(tmp_path)

    unknown = cardlink(tmp_path, "decide", "bank", "7", "give-up", *WHY)
    strange = cardlink(tmp_path, "decide", "bank", "1", "abandon", *WHY)

    assert "bank has no open matter 7." in unknown.stderr
    assert "bank 1 has no choice 'abandon' now; it has give-up." in strange.stderr


def test_a_database_that_may_not_be_written_still_lists(
    bank: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused_rows(bank, "bank-20261120.csv", "a", "b")

    def refused(*_: object, **__: object) -> None:
        raise DatabaseDeniedError(place="here", code="42501")

    monkeypatch.setattr("flows.operations.matters.enter", refused)
    line = work(tmp_path)["rows to correct"]

    assert ("", 2) == (line["numbers"], line["rows"])
    assert "mend give-up" in line["decisions"][-1]["command"]
