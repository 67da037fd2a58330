"""A reject in the bank's words: its columns, what was found in shape, what its own format expects."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.reports.bank_words import BankWords
from flows.reports.wording import first_spans, ranges
from flows.submissions.shapes import found_in
from schemas.corrections import column_of
from schemas.manifest import Layout, SourceColumn
from schemas.portal import (
    CITY,
    CUID,
    FIRST_NAME,
    MONTH,
    PAN,
    PHONE,
    POSTAL_CODE,
    YEAR,
    columns,
)
from schemas.reasons import (
    ENDS_BEFORE_LINK,
    LETTERS,
    LINES,
    NETWORK_NOT_TAKEN,
    NOT_WANTED,
    UNKNOWN_STATUS,
)
from schemas.rules import RULES
from schemas.tables import Rejects
from tests.builders import portal_rows
from tests.night import local_bench, portal_csv

DIGIT_RUN = re.compile(r"[0-9](?:[^0-9A-Za-z(]?[0-9]){11}")
LUHN = "card.pan.luhn"
DATED = {"from": "EXP", "format": "MMYY"}
MAPPINGS: dict[str, dict[str, Any]] = {
    "headers of its own": {name: f"BANK_{at}" for at, name in enumerate(columns())},
    "one date for both": {name: f"BANK_{at}" for at, name in enumerate(columns())}
    | {YEAR: DATED, MONTH: DATED},
    "cut out of longer texts": {
        name: {"from": f"BANK_{at}", "slice": [1, -1]} for at, name in enumerate(columns())
    },
}


def bank_csv(mapping: dict[str, Any], *changes: dict[str, str | None]) -> bytes:
    """Return the portal's rows under the headers of a mapping."""
    rows = portal_rows(*changes)
    if mapping[YEAR] == DATED:
        rows = rows.with_columns(pl.concat_str(MONTH, YEAR, ignore_nulls=True).alias(YEAR))
        rows = rows.drop(MONTH)
    headers = {
        name: spec if isinstance(spec, str) else spec["from"] for name, spec in mapping.items()
    }
    return portal_csv(
        rows.rename({name: headers[name] for name in rows.columns if name in headers})
    )


def rejects(folder: Path, mapping: dict[str, Any], extract: bytes) -> list[dict[str, Any]]:
    """Return rejects.csv of a run with this mapping."""
    bench = local_bench(folder, columns=mapping)
    run = bench.submit(bench.drop_bytes(extract), opened=["reject-rate", "one-value"]).manifest.run
    text = bench.report(run, "rejects.csv")
    listed = pl.read_csv(BytesIO(text), schema_overrides=Rejects.dtypes())
    return Rejects.validate(listed).to_dicts()


@pytest.mark.parametrize("kind", MAPPINGS)
def test_every_rule_is_reported_by_its_line_and_the_banks_column_without_a_digit_of_a_card(
    tmp_path: Path, kind: str
) -> None:
    examples = [dict(rule.example) for rule in RULES if rule.severity == "reject"]

    listed = rejects(tmp_path, MAPPINGS[kind], bank_csv(MAPPINGS[kind], *examples))

    assert {2 + at for at in range(len(examples))} >= {reject["line"] for reject in listed}
    for reject in listed:
        assert reject["line"] == reject["row"] + 1
        assert reject["source"].startswith("EXP" if "EXP" in reject["source"] else "BANK_")
        assert reject["wrong"].startswith(reject["source"])
        words = [str(cell) for name, cell in reject.items() if name != "cuid"]
        assert not DIGIT_RUN.search(" | ".join(words))


def test_where_a_challenge_may_ask_for_it_the_setting_that_would_take_a_row_says_so() -> None:
    words = BankWords(None)

    settings = [words.cause(None, code, None).setting for code in ("card.cvv.missing", LUHN)]

    assert [
        '`cvv_missing = "warn"` in [rules], unless `challenges` asks for it',
        '`luhn = "warn"` in [rules]',
    ] == settings


def test_letters_instead_of_a_date_are_one_line_in_the_format_of_the_source(tmp_path: Path) -> None:
    mapping = MAPPINGS["one date for both"]
    extract = bank_csv(mapping, {YEAR: "CD", MONTH: "AB"}, {}, {})

    listed = rejects(tmp_path, mapping, extract)

    assert [(2, "EXP", "EXP has the wrong form", "shape AAAA", "MMYY, such as 0927")] == [
        (cells["line"], cells["source"], cells["wrong"], cells["found"], cells["expected"])
        for cells in listed
    ]


def test_a_repair_that_one_row_turned_off_names_its_line_and_the_setting(tmp_path: Path) -> None:
    mapping = MAPPINGS["headers of its own"]
    short: list[dict[str, str | None]] = [{POSTAL_CODE: "2108"} for _ in range(19)]

    listed = rejects(tmp_path, mapping, bank_csv(mapping, *short, {POSTAL_CODE: "02108"}))

    assert {("shape 9999", "`pad = 5` in [columns]: line 21 kept its leading zero")} == {
        (cells["found"], str(cells["setting"]).partition(", so")[0]) for cells in listed
    }
    assert 19 == len(listed)


@pytest.mark.parametrize("masked", ["411111XXXXXX1111", "************1111", "4111-11**-****-1111"])
def test_a_masked_number_is_called_so(tmp_path: Path, masked: str) -> None:
    mapping = MAPPINGS["headers of its own"]

    listed = rejects(tmp_path, mapping, bank_csv(mapping, {PAN: masked}, {}))

    assert ["BANK_1 is a masked number"] == [cells["wrong"] for cells in listed]


def test_a_line_of_the_wrong_size_says_how_many_fields_it_has_and_needs(tmp_path: Path) -> None:
    mapping = MAPPINGS["headers of its own"]
    header, first, second = bank_csv(mapping, {}, {}).decode().splitlines()
    extract = "\n".join([header, f"{first},", second, ""]).encode()

    listed = rejects(tmp_path, mapping, extract)

    assert [
        (None, "the line has too many fields", "21 fields", "20 fields, as the header has")
    ] == [(cells["source"], cells["wrong"], cells["found"], cells["expected"]) for cells in listed]


@pytest.mark.parametrize(
    ("names", "warned"),
    [
        (["Garc?a", "Jos?", "Ann"], {1, 2}),  # a mark within a word
        (["Jos?", "Zoë", "Ann"], {1}),  # the column has accents
        (["Jos?", "Zoe", "Ann"], set()),  # nothing says that it lost letters
    ],
)
def test_question_marks_are_lost_letters_where_the_whole_column_says_so(
    tmp_path: Path, names: list[str], warned: set[int]
) -> None:
    bench = local_bench(tmp_path, rules={"lost_letters": "warn"})
    rows = portal_rows(*({FIRST_NAME: name} for name in names))

    manifest = bench.submit(bench.drop_bytes(portal_csv(rows))).manifest

    code = "address.first_name.lost_letters"
    of_name = pl.col("reasons").list.contains(f"{FIRST_NAME}|{code}")
    parts = bench.stored(manifest.run).ledger(["row", "reasons"], of_name)
    assert warned == {row for part in parts for row in part["row"]}


def test_every_reason_of_ours_has_words_without_any_layout() -> None:
    codes = [rule.code for rule in RULES] + [entry.code for entry in (*LINES, *LETTERS)]

    causes = [BankWords(None).cause(None, code, None) for code in codes]

    assert all(cause.wrong and cause.expected for cause in causes)
    assert {None} == {cause.source for cause in causes}


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("join.row.missing", "its row in the second file is missing"),
        ("join.row.ambiguous", "its row in the second file is there more than once, and differs"),
        ("segment.order.orphan", "the record stands before the row that it belongs to"),
        ("segment.order.repeated", "the record appears more than once"),
        ("segment.type.unknown", "its record type is not known"),
    ],
)
def test_a_row_in_several_records_or_files_is_spoken_of_as_such(code: str, wrong: str) -> None:
    assert wrong == BankWords(None).cause(None, code, None).wrong


def test_only_a_shape_is_named_as_one() -> None:
    codes = [
        "card.pan.length",
        "card.cvv.format",
        "line.fields.more",
        UNKNOWN_STATUS,
        "card.pan.luhn",
    ]
    what = ["9(15)", "3 characters", "12 fields", "BLK_CD: S", None]
    columns = [pl.Series("column", [None] * 5, pl.String), pl.Series("code", codes)]

    listed = BankWords(None).causes(pl.DataFrame([*columns, pl.Series("found", what)]))

    assert ["shape 9(15)", *what[1:]] == listed["found"].to_list()


@pytest.mark.parametrize(
    ("found", "source"), [("BLK_CD: S", "BLK_CD"), ("A: Z | B: Lost", "A + B"), (None, None)]
)
def test_an_unknown_status_is_told_by_its_columns_and_the_setting(
    found: str | None, source: str | None
) -> None:
    cause = BankWords(None).cause(None, UNKNOWN_STATUS, found)

    assert source == cause.source
    assert f"{source or 'the line'} has a value that [status] does not name" == cause.wrong
    assert "`send`, `leave_out` or `delete` in [status]" == cause.setting


@pytest.mark.parametrize(
    ("code", "setting"),
    [
        (NOT_WANTED, "`where` in [eligible]"),
        (NETWORK_NOT_TAKEN, "`networks` in [eligible]"),
        (ENDS_BEFORE_LINK, "`ending_cards` in [eligible]"),
    ],
)
def test_what_is_not_eligible_by_a_setting_names_it(code: str, setting: str) -> None:
    assert setting == BankWords(None).cause(None, code, None).setting


def test_what_is_expected_is_what_the_source_can_hold() -> None:
    layout = Layout(
        size=4,
        columns={
            CITY: SourceColumn(names=("PLACE",), place="part 1, split at ','"),
            FIRST_NAME: SourceColumn(names=("NAME",), form="LAST, FIRST"),
            CUID: SourceColumn(names=("A", "B")),
            PHONE: SourceColumn(names=("KIND",), texts=("P", "S"), more_texts=3),
        },
    )
    words = BankWords(layout)

    causes = [
        words.cause(name, f"address.{kind}", None)
        for name, kind in [
            (CITY, "city.missing"),
            (FIRST_NAME, "first_name.unmapped"),
            (PHONE, "phone_number.format"),
        ]
    ]

    assert [
        ("PLACE (part 1, split at ',')", "a city"),
        ("NAME", "LAST, FIRST, such as DOE, JANE"),
        ("KIND", "one of P, S and 3 more"),
    ] == [(cause.source, cause.expected) for cause in causes]
    assert "A + B" == words.cause(CUID, "cardholder.cuid.format", None).source


@settings(deadline=None)
@given(st.text(max_size=60), st.sampled_from(columns()))
def test_a_shape_has_no_letter_or_digit_of_the_cell(text: str, column: str) -> None:
    frame = pl.DataFrame({"cell": [text]})

    shape = frame.select(found_in(pl.lit(column), pl.col("cell"))).item()

    assert shape is None or not DIGIT_RUN.search(shape)
    signs = re.sub(r"\([0-9]+\)|[0-9]+ characters(, not ASCII)?|empty|\.\.\.$", "", shape or "")
    assert set(re.sub(r"[^A-Za-z0-9]", "", signs)) <= {"A", "9"}


def test_numbers_that_follow_each_other_are_a_range_wherever_they_are() -> None:
    assert "1-2, 4, 6-8" == ranges([1, 2, 4, 6, 7, 8])


@given(st.sets(st.integers(1, 60)))
def test_ranges_name_each_number_once(numbers: set[int]) -> None:
    text = ranges(sorted(numbers))

    spans = [span.partition("-") for span in text.split(", ") if span]
    named = [n for first, _, last in spans for n in range(int(first), int(last or first) + 1)]
    assert sorted(numbers) == named
    few, more = first_spans(text, 3) if text else ("", 0)
    assert len(ranges([]) + few) <= len(text)
    assert more <= len(numbers)


def test_every_rules_column_is_the_one_of_its_code() -> None:
    assert [rule.column for rule in RULES] == [column_of(rule.code) for rule in RULES]
