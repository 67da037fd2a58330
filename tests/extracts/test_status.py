"""What `[status]` decides of each row, and which of its values are shown."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import date
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from flows.errors import CardlinkError
from flows.extracts.mapping import MappedRows, map_rows, plan_mapping
from flows.extracts.status import UndecidedError
from flows.extracts.status_words import label, speaks_of_status
from schemas.portal import CUID, MONTH, PAN, columns
from tests.night import issuer

DAY = date(2026, 11, 20)
MAPPED = {name: {"constant": "x"} for name in columns()}
LISTS = {"A": "send", "P": "leave_out", "D": "delete"}


def told_apart(cells: dict[str, list[str | None]], **settings: Any) -> MappedRows:
    """Map rows with these columns by an issuer's settings."""
    frame = pl.DataFrame(cells, schema=dict.fromkeys(cells, pl.String)).with_row_index("row", 1)
    rows = frame.with_columns(line=pl.col("row") + 1)
    bank = issuer(columns=MAPPED, **settings)
    return map_rows(rows, plan_mapping([*cells], bank, "a.csv", {}, as_of=DAY))


def fates(cells: dict[str, list[str | None]], **settings: Any) -> str:
    """Return the fate of each row: Sent, Left out, Deleted or Unknown."""
    mapped = told_apart(cells, **settings)
    frames = {"S": mapped.sent, "L": mapped.left_out, "D": mapped.deleted, "U": mapped.unknown}
    by_row = {row: fate for fate, frame in frames.items() for row in frame["row"].to_list()}
    return "".join(by_row[row] for row in sorted(by_row))


def test_values_send_leave_out_or_delete_and_others_are_unknown() -> None:
    column = {"send": ["A", ""], "leave_out": "P", "delete": ["C", "L"]}
    cells = {"CARD_STATUS": ["A", " A ", None, "P", "C", "L", "c", "X"]}

    mapped = told_apart(cells, status={"CARD_STATUS": column})

    assert "SSSLDDUU" == fates(cells, status={"CARD_STATUS": column})
    assert Counter({("CARD_STATUS", "c"): 1, ("CARD_STATUS", "X"): 1}) == mapped.values
    assert ["CARD_STATUS: c", "CARD_STATUS: X"] == mapped.unknown["found"].to_list()


def test_a_row_with_an_unknown_status_says_in_which_columns_without_a_cell() -> None:
    status = {name: {"send": "A", "unknown": "reject"} for name in ("BLOCK", "STATE")}

    mapped = told_apart({"BLOCK": ["Z", "A", "Z"], "STATE": ["A", "Smith", "Lost"]}, status=status)

    expected = ["BLOCK: Z", "STATE: AAAAA (not shown)", "BLOCK: Z | STATE: Lost"]
    assert expected == mapped.unknown["found"].to_list()


@pytest.mark.parametrize(
    ("unknown", "fate"),
    [("refuse", "U"), ("reject", "U"), ("send", "S"), ("leave_out", "L"), ("delete", "D")],
)
def test_the_settings_say_what_an_unknown_value_does(unknown: str, fate: str) -> None:
    status = {"S": {"send": "A", "unknown": unknown}}

    mapped = told_apart({"S": ["A", "Z"]}, status=status)

    assert f"S{fate}" == fates({"S": ["A", "Z"]}, status=status)
    assert (unknown == "refuse") == bool(mapped.values)


@given(st.lists(st.tuples(*[st.sampled_from("APDX")] * 3), min_size=1, max_size=8))
def test_a_row_of_several_columns_is_sent_where_all_send_it_and_deleted_where_one_deletes(
    rows: list[tuple[str, ...]],
) -> None:
    column = {"send": "A", "leave_out": "P", "delete": "D"}
    names = ("CARD", "ACCOUNT", "CUSTOMER")
    cells: dict[str, list[str | None]] = {
        name: [row[place] for row in rows] for place, name in enumerate(names)
    }

    expected = "".join(
        next(fate for value, fate in zip("DPXA", "DLUS", strict=True) if value in row)
        for row in rows
    )

    assert expected == fates(cells, status=dict.fromkeys(names, column))


@pytest.mark.parametrize(
    ("form", "days"),
    [
        ("YYYYMMDD", ["20261120", "20261121", "", "00000000", "99991231", "19990101"]),
        (
            "DD/MM/YYYY",
            ["20/11/2026", "21/11/2026", None, "00/00/0000", "31/12/9999", "1/1/1999"],
        ),
        ("MM/DD/YY", ["11/20/26", "11/21/26", " ", "0", "12/31/69", "01/01/99"]),
        ("DD-MON-YYYY", ["20-NOV-2026", "21-Nov-2026", "", "", "01-DEC-2026", "01-Jan-1999"]),
    ],
)
def test_a_day_of_closing_deletes_once_it_has_come(form: str, days: list[str | None]) -> None:
    deleted = fates({"CLOSED_DT": days}, status={"CLOSED_DT": {"date": form}})
    left_out = {"date": form, "past": "leave_out", "delete": "x"}

    assert "DSSSSD" == deleted
    assert "L" == fates({"CLOSED_DT": days[:1]}, status={"CLOSED_DT": left_out})


def test_a_day_in_another_form_is_unknown() -> None:
    status = {"DOD": {"date": "MM/DD/YYYY"}}

    assert "UUU" == fates({"DOD": ["31/01/2026", "20260131", "dead"]}, status=status)


def test_in_fixed_format_a_column_is_a_place() -> None:
    status = {"block": {"at": [4, 5], "send": "", "delete": "41"}}
    source = {"format": "fixed", "width": 9}

    assert "SDU" == fates(
        {"record": ["123  6789", "123416789", "123526789"]}, status=status, source=source
    )


def test_undecided_columns_refuse_before_a_row_is_read_and_ignored_ones_count_as_used() -> None:
    with pytest.raises(UndecidedError) as caught:
        told_apart({"S": ["A"], "T": ["B"]}, status={"S": "undecided", "T": "undecided"})

    assert "S, T undecided in [status]" in str(caught.value)
    assert "S" == fates({"S": ["A"]}, status={"S": "ignored"}, source={"strict": True})


@pytest.mark.parametrize(("column", "goes_on"), [(PAN, False), (MONTH, False), (CUID, True)])
def test_an_undecided_column_refuses_and_a_check_goes_on_where_it_is_optional(
    column: str, *, goes_on: bool
) -> None:
    bank = issuer(columns=MAPPED | {column: "undecided"}, status={"S": "undecided"})
    noted: list[CardlinkError] = []

    with pytest.raises(UndecidedError) as caught:
        plan_mapping(["S"], bank, "a.csv", {})
    with suppress(UndecidedError):
        plan_mapping(["S"], bank, "a.csv", {}, note=noted.append)

    expected = f"{column} undecided in [columns]; S undecided in [status]"
    assert expected in str(caught.value)
    assert goes_on == bool(noted)


@pytest.mark.parametrize(
    "column",
    [
        {},
        {"send": "A", "delete": "A"},
        {"date": "MMYY"},
        {"send": "A", "past": "delete"},
        {"send": "A", "at": [5, 4]},
        "maybe",
    ],
)
def test_a_column_that_decides_nothing_or_twice_is_refused(column: Any) -> None:
    with pytest.raises(ValidationError):
        issuer(status={"S": column})


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("A", "A"),
        ("41", "41"),
        ("", "empty"),
        ("CLOSED", "CLOSED"),
        ("Lost card", "Lost card"),
        ("Décédé", "Décédé"),
        ("SMITH", "AAAAA (not shown)"),
        ("4242424242424242", "999999999999... (not shown)"),
        ("LOST BY SMITH", "AAAA AA AAAA... (not shown)"),
        ("lost Иван", "AAAA AAAA (not shown)"),
        ("lost ٤٢٤٢", "AAAA ???? (not shown)"),
        ("王芳", "AA (not shown)"),
        ("ABC", "AAA (not shown)"),
    ],
)
def test_only_codes_of_two_characters_and_words_of_status_are_shown(value: str, shown: str) -> None:
    assert shown == label(value)


@pytest.mark.parametrize(
    "header",
    [
        "ACTION",
        "MAINT_CD",
        "BLK-CD",
        "DEL_FLAG",
        "DECEASED_IND",
        "CLOSED_DT",
        "HOTLIST_FLG",
        "LIFECYCLE",
        "CARD_STATE",
        "ETAT_CARTE",
        "Estatus",
        "statutCarte",
        "DT_OBITO",
        "FECHA_BAJA",
        "Sperrkennzeichen",
        "SITUACAO_CARTAO",
        "DtFalecimento",
        "CARDSTATUS",
        "dateOfDeath",
        "Gekündigt_am",
        "Verstorben",
        "fecha_defuncion",
        "date_cloture",
    ],
)
def test_headers_that_speak_of_status_are_known_in_five_languages(header: str) -> None:
    assert speaks_of_status(header)


@pytest.mark.parametrize(
    "header",
    [
        "STATE",
        "ESTADO",
        "ADDR_STATE",
        "CITY",
        "LAST_NAME",
        "PRODUCT",
        "EXP_DATE",
        "BRANCH",
        "ADRESSE",
    ],
)
def test_headers_of_addresses_names_and_products_do_not(header: str) -> None:
    assert not speaks_of_status(header)
