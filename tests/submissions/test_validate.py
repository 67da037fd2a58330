"""Checking: each rule refuses what it must, lets the rest pass, and never shows a value."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, get_args

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandera.errors import SchemaErrors
from pandera.polars import DataFrameSchema

from flows.errors import BugError
from flows.submissions.normalise import normalise
from flows.submissions.validate import fast_schema, validate
from schemas.actions import ASK
from schemas.issuer import RuleSettings, Severity
from schemas.portal import (
    ADDRESS1,
    CITY,
    COUNTRY,
    CUID,
    CVV,
    CVV_HASH,
    EMAIL,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    MONTH,
    NAME_ON_CARD,
    NICKNAME,
    PAN,
    PHONE,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
    columns,
)
from schemas.reasons import reason
from schemas.rule import Rule, remarks
from schemas.rules import RULES
from tests.builders import portal_rows, share_of

DAY = date(2026, 11, 20)
OF_ROWS = RuleSettings.model_fields.keys() - {"other_cuid"}  # a rule of a row among others
SEVERITIES = sorted(
    name
    for name in OF_ROWS
    if get_args(RuleSettings.model_fields[name].annotation) == get_args(Severity)
)
HASH_007 = "Yp9M+TN7DQx28wXYYPmIlM+ownlRa0JXR1FMqHEN65c="
ONTARIO = {COUNTRY: "CA", SUBNATIONAL: "ON", POSTAL_CODE: "M5V 2T6"}

REQUIRED = {
    PAN: "card.pan",
    YEAR: "card.expiration_year",
    MONTH: "card.expiration_month",
    ADDRESS1: "address.address1",
    CITY: "address.city",
    SUBNATIONAL: "address.subnational",
    COUNTRY: "address.country",
    POSTAL_CODE: "address.postal_code",
    FIRST_NAME: "address.first_name",
    LAST_NAME: "address.last_name",
    IS_PRIMARY: "address.is_primary",
}
PLACEHOLDERS = [
    (CUID, "cardholder.cuid", "NULL"),
    (CITY, "address.city", "N/A"),
    (ADDRESS1, "address.address1", "-"),
    (FIRST_NAME, "address.first_name", "TEST"),
    (LAST_NAME, "address.last_name", "XXX"),
]
CUIDS_WITH_A_CARD = [
    "4111111111111111-01",
    "0004111111111111111",
    "CIF4111111111111111",
    "4111111111111111X",
    "12-4111111111111111",
    "4111-1111-1111-1111-01",
    "ID 4111 1111 1111 1111 7",
    "424242424242424201",
    "４１１１１１１１１１１１１１１１",
    "94242424242424242",
    "4111:1111:1111:1111",
    "424242000000000001",
]

# One way to break each rule: the change to a good row, then column, code and severity of the
# verdict.
BREAKS: list[tuple[Mapping[str, str | None], str, str, str]] = [
    *(({column: None}, column, f"{stem}.missing", "reject") for column, stem in REQUIRED.items()),
    *(
        ({column: cell}, column, f"{stem}.placeholder", "reject")
        for column, stem, cell in PLACEHOLDERS
    ),
    ({CVV: None}, CVV, "card.cvv.missing", "warn"),
    ({NAME_ON_CARD: None}, NAME_ON_CARD, "card.name_on_card.missing", "warn"),
    ({NAME_ON_CARD: "Ada 2"}, NAME_ON_CARD, "card.name_on_card.format", "warn"),
    ({CUID: "c-4242424242424242"}, CUID, "cardholder.cuid.card_number", "reject"),
    ({CUID: "c.4242.4242_4242/4242"}, CUID, "cardholder.cuid.card_number", "reject"),
    ({CUID: "x 4242-4242-4242-4242"}, CUID, "cardholder.cuid.card_number", "reject"),
    ({CUID: "5555555555554444"}, CUID, "cardholder.cuid.card_number", "reject"),
    ({CUID: "6200 0000 0000 0005"}, CUID, "cardholder.cuid.card_number", "reject"),
    *(
        ({CUID: cuid}, CUID, "cardholder.cuid.card_number", "reject")
        for cuid in CUIDS_WITH_A_CARD
    ),
    ({CUID: "a\nb"}, CUID, "cardholder.cuid.format", "reject"),
    ({CUID: "C-\u20661"}, CUID, "cardholder.cuid.direction", "reject"),
    *(({CUID: f"{char}1"}, CUID, "cardholder.cuid.formula", "warn") for char in "=+-@"),
    ({PAN: "424242424242424"}, PAN, "card.pan.format", "reject"),
    ({PAN: "4.24E+15"}, PAN, "card.pan.format", "reject"),
    ({PAN: "٤٢٤٢٤٢٤٢٤٢٤٢٤٢٤٢"}, PAN, "card.pan.format", "reject"),
    ({PAN: "4242424242424241"}, PAN, "card.pan.luhn", "reject"),
    ({YEAR: "9"}, YEAR, "card.expiration_year.format", "reject"),
    ({MONTH: "13"}, MONTH, "card.expiration_month.format", "reject"),
    ({MONTH: "00"}, MONTH, "card.expiration_month.format", "reject"),
    ({YEAR: "26", MONTH: "10"}, YEAR, "card.expiration.expired", "reject"),
    ({YEAR: "26", MONTH: "12"}, YEAR, "card.expiration.soon", "warn"),
    ({YEAR: "98"}, YEAR, "card.expiration.far", "reject"),
    ({CVV: "12"}, CVV, "card.cvv.format", "reject"),
    ({CVV: None, CVV_HASH: "abc"}, CVV_HASH, "card.cvv_hash.format", "reject"),
    ({CVV: "123", CVV_HASH: HASH_007}, CVV_HASH, "card.cvv_hash.mismatch", "reject"),
    ({COUNTRY: "Atlantis"}, COUNTRY, "address.country.unknown", "reject"),
    ({SUBNATIONAL: "ON"}, SUBNATIONAL, "address.subnational.unknown", "reject"),
    ({POSTAL_CODE: "2108"}, POSTAL_CODE, "address.postal_code.format", "reject"),
    (ONTARIO | {POSTAL_CODE: "D5V 2T6"}, POSTAL_CODE, "address.postal_code.format", "reject"),
    ({POSTAL_CODE: "10001"}, POSTAL_CODE, "address.postal_code.mismatch", "reject"),
    (ONTARIO | {POSTAL_CODE: "V6B 1A1"}, POSTAL_CODE, "address.postal_code.mismatch", "reject"),
    ({EMAIL: "ada@example"}, EMAIL, "address.email.format", "warn"),
    ({EMAIL: "ada@example.com, eve@example.com"}, EMAIL, "address.email.format", "warn"),
    ({PHONE: "call me"}, PHONE, "address.phone_number.format", "warn"),
    ({IS_PRIMARY: "true"}, IS_PRIMARY, "address.is_primary.format", "reject"),
]  # fmt: skip


def test_a_row_that_breaks_a_rule_gets_its_verdict_and_the_good_row_none() -> None:
    rows = portal_rows({}, *(change for change, *_ in BREAKS))

    verdicts = validate(rows, DAY, RuleSettings())

    assert [] == verdicts.filter(row=1).rows()
    for row, (_, column, code, severity) in enumerate(BREAKS, 2):
        assert [(row, column, code, severity)] == verdicts.filter(
            row=row, column=column, severity=severity
        ).rows()


@pytest.mark.parametrize(
    "change",
    [
        ONTARIO,
        {YEAR: "26", MONTH: "11", "rules": "soon off"},
        {CUID: "4242"},
        {CUID: "0012345678901"},
        {CUID: "5555555555554445"},
        {CUID: "S1-00000042"},
        {LAST_NAME: "Null"},
        {LAST_NAME: "Test"},
        {NAME_ON_CARD: "J. O'Neil-Smith"},
        {CVV: "0000"},
        {CVV: None, CVV_HASH: HASH_007},
        {CVV: "007", CVV_HASH: HASH_007},
        {COUNTRY: "usa"},
        {POSTAL_CODE: "02108-1234"},
        {SUBNATIONAL: "PR", POSTAL_CODE: "00601"},
        {SUBNATIONAL: "AP", POSTAL_CODE: "96201"},
        {COUNTRY: "CA", SUBNATIONAL: "NU", POSTAL_CODE: "X0A 0H0"},
        {EMAIL: "ada.o'neil+x@mail.example.co"},
        {PHONE: "+1 (617) 555-0100"},
        {PHONE: "6175550100"},
    ],
)
def test_a_row_that_keeps_the_rules_passes(change: Mapping[str, str | None]) -> None:
    rules = RuleSettings(expires_soon="off")
    rows = portal_rows({name: cell for name, cell in change.items() if name != "rules"})

    verdicts = validate(rows, DAY, rules)

    assert [] == verdicts.rows()


def test_a_card_is_good_to_the_end_of_its_month() -> None:
    rows = portal_rows({YEAR: "26", MONTH: "11"})

    last_day, day_after = (
        validate(rows, day, RuleSettings(expires_soon="off"))
        for day in (date(2026, 11, 30), date(2026, 12, 1))
    )

    assert [] == last_day["code"].to_list()
    assert ["card.expiration.expired"] == day_after["code"].to_list()


def test_soon_is_as_long_as_a_link_lives() -> None:
    rows = portal_rows(
        {YEAR: "26", MONTH: "12"}, {YEAR: "27", MONTH: "01"}, {YEAR: "27", MONTH: "02"}
    )

    warned = [
        validate(rows, DAY, RuleSettings(link_life_months=life))["row"].to_list()
        for life in (0, 2, 3)
    ]

    assert [[], [1], [1, 2]] == warned


@pytest.mark.parametrize(
    ("setting", "change", "code"),
    [
        ("luhn", {PAN: "1234123412341234"}, "card.pan.luhn"),
        ("cvv_missing", {CVV: None}, "card.cvv.missing"),
        ("address_mismatch", {POSTAL_CODE: "10001"}, "address.postal_code.mismatch"),
        ("expires_soon", {YEAR: "26", MONTH: "11"}, "card.expiration.soon"),
        ("email", {EMAIL: "x"}, "address.email.format"),
        ("phone", {PHONE: "x"}, "address.phone_number.format"),
        ("name_on_card", {NAME_ON_CARD: "7"}, "card.name_on_card.format"),
    ],
)
def test_a_setting_decides_whether_a_rule_rejects_warns_or_is_off(
    setting: str, change: Mapping[str, str | None], code: str
) -> None:
    rows = portal_rows(change)

    told = [
        validate(rows, DAY, RuleSettings.model_validate({setting: way}))
        .select("code", "severity")
        .rows()
        for way in ("reject", "warn", "off")
    ]

    assert [[(code, "reject")], [(code, "warn")], []] == told


@pytest.mark.parametrize(
    ("challenge", "changes", "codes"),
    [
        ("CVV", [{CVV: None}], {"card.cvv.missing"}),
        (
            "ZIP Code",
            [{POSTAL_CODE: None}, {POSTAL_CODE: "10001"}],
            {"address.postal_code.missing", "address.postal_code.mismatch"},
        ),
        ("PAN Last 4", [{PAN: None}], {"card.pan.missing"}),
        ("PAN Last 5", [{PAN: None}], {"card.pan.missing"}),
        (
            "Expiration Date",
            [{YEAR: None}, {MONTH: None}],
            {"card.expiration_year.missing", "card.expiration_month.missing"},
        ),
    ],
)
def test_a_row_without_the_answer_of_a_challenge_is_refused_whatever_its_setting_says(
    challenge: str, changes: Sequence[Mapping[str, str | None]], codes: set[str]
) -> None:
    lenient = dict.fromkeys(SEVERITIES, "off")
    settings = RuleSettings.model_validate({**lenient, "challenges": [challenge]})

    verdicts = validate(portal_rows(*changes), DAY, settings)

    rejected = verdicts.filter(pl.col("code").is_in(codes), severity="reject")
    assert codes == set(rejected["code"])


def test_a_hash_answers_a_challenge_for_the_cvv() -> None:
    settings = RuleSettings(challenges=("CVV",))

    verdicts = validate(portal_rows({CVV: None, CVV_HASH: HASH_007}), DAY, settings)

    assert [] == verdicts.rows()


def test_an_only_challenge_and_a_setting_that_one_overrules_are_remarked() -> None:
    settings = RuleSettings(challenges=("CVV",), cvv_missing="warn")

    only_one, overruled = remarks(RULES, settings)

    assert "strongly recommends two" in only_one
    assert 'cvv_missing = "warn" does not count for card.cvv.missing' in overruled
    assert [] == list(remarks(RULES, RuleSettings(challenges=("CVV", "ZIP Code"))))


def test_a_cell_has_one_reason_the_first_it_breaks() -> None:
    rows = portal_rows({PAN: "0000000000000000", POSTAL_CODE: "0000", COUNTRY: "NULL", MONTH: None})

    verdicts = validate(rows, DAY, RuleSettings()).filter(severity="reject")

    assert verdicts.height == verdicts["column"].n_unique()
    assert {COUNTRY, MONTH, PAN, POSTAL_CODE} == set(verdicts["column"])


def test_a_placeholder_is_called_so_whatever_shape_its_column_wants() -> None:
    wanting = dict.fromkeys(
        (PAN, YEAR, MONTH, SUBNATIONAL, COUNTRY, POSTAL_CODE, IS_PRIMARY), "N/A"
    )
    rows = portal_rows(wanting, {PAN: "0000000000000000", POSTAL_CODE: "00000"})

    verdicts = validate(rows, DAY, RuleSettings())

    assert 9 == verdicts.height
    assert {"placeholder"} == {code.rpartition(".")[2] for code in verdicts["code"]}


def test_an_unreadable_month_is_not_also_called_soon() -> None:
    rows = portal_rows({YEAR: "26", MONTH: "13"})

    verdicts = validate(rows, DAY, RuleSettings())

    assert ["card.expiration_month.format"] == verdicts["code"].to_list()


def test_verdicts_come_in_the_order_of_rows() -> None:
    rows = portal_rows({CITY: None}, {PAN: None}, {}, {CITY: None, PAN: None})

    verdicts = validate(rows, DAY, RuleSettings())

    assert [1, 2, 4, 4] == verdicts["row"].to_list()


def test_a_block_without_rows_has_no_verdicts() -> None:
    verdicts = validate(portal_rows(), DAY, RuleSettings())

    assert {
        "row": pl.UInt32,
        "column": pl.String,
        "code": pl.String,
        "severity": pl.String,
    } == dict(verdicts.schema)
    assert 0 == verdicts.height


def test_the_environment_cannot_switch_the_rules_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PANDERA_VALIDATION_ENABLED", "False")
    rows = portal_rows({CITY: None})

    verdicts = validate(rows, DAY, RuleSettings())

    assert ["address.city.missing"] == verdicts["code"].to_list()


@pytest.mark.parametrize("spoil", ["column missing", "wrong type"])
def test_a_frame_of_the_wrong_shape_is_our_bug_and_shows_no_cell(spoil: str) -> None:
    rows = portal_rows({})
    wrong = (
        rows.drop(CITY)
        if spoil == "column missing"
        else rows.with_columns(pl.col(PAN).cast(pl.Int64))
    )

    with pytest.raises(BugError) as caught:
        validate(wrong, DAY, RuleSettings())

    told = "".join(traceback.format_exception(caught.value))
    assert "4242424242424242" not in told
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_every_rule_has_a_hint_and_an_action_of_ours() -> None:
    codes = [rule.code for rule in RULES]

    without = [code for code in codes if not reason(code).hint or reason(code).action == ASK]

    assert len(codes) == len(set(codes))
    assert [] == without


def test_placeholders_are_the_issuers_to_name() -> None:
    rows = portal_rows({LAST_NAME: "Dummy (x) #1"}, {LAST_NAME: "NULL"})

    verdicts = validate(rows, DAY, RuleSettings(placeholders=("Dummy (x) #1",)))

    assert [(1, "address.last_name.placeholder")] == verdicts.select("row", "code").rows()


def luhn_by_hand(number: str) -> bool:
    digits = [int(digit) for digit in reversed(number)]
    return sum(d if at % 2 == 0 else d * 2 - 9 * (d > 4) for at, d in enumerate(digits)) % 10 == 0


@settings(max_examples=share_of(0.4), deadline=None)
@given(st.lists(st.integers(0, 10**10 - 1).map("400000{:010d}".format), min_size=10, max_size=40))
def test_luhn_by_table_is_luhn_by_hand(numbers: list[str]) -> None:
    rows = portal_rows(*({PAN: number} for number in numbers))

    refused = set(validate(rows, DAY, RuleSettings()).filter(code="card.pan.luhn")["row"])

    assert {at for at, number in enumerate(numbers, 1) if not luhn_by_hand(number)} == refused


@settings(max_examples=12, deadline=None)
@given(st.lists(st.none() | st.text(max_size=20), min_size=len(columns()), max_size=len(columns())))
def test_no_cell_makes_checking_stumble_and_each_row_is_judged_alone(
    cells: list[str | None],
) -> None:
    odd = dict(zip(columns(), cells, strict=True))

    alone, among = (
        validate(portal_rows(*changes), DAY, RuleSettings()) for changes in ([odd], [odd, {}])
    )

    assert alone.equals(among)


def test_the_example_of_a_rule_breaks_it_first() -> None:
    strict = RuleSettings.model_validate(dict.fromkeys(SEVERITIES, "reject"))
    rows = portal_rows({}, *(rule.example for rule in RULES))

    verdicts = validate(rows, DAY, strict)

    assert [] == verdicts.filter(row=1).rows()
    for row, rule in enumerate(RULES, 2):
        broken = verdicts.filter(row=row, column=rule.column)
        assert [(row, rule.column, rule.code, "reject")] == broken.rows()


def test_what_a_rule_narrows_is_a_rule() -> None:
    assert set() == {rule.narrows for rule in RULES if rule.narrows} - {rule.code for rule in RULES}


@settings(max_examples=share_of(1), deadline=None)
@given(st.lists(st.sampled_from(RULES), min_size=1, max_size=4))
def test_a_row_that_breaks_a_narrow_rule_breaks_the_rule_it_narrows(broken: list[Rule]) -> None:
    rows = portal_rows(*(rule.example for rule in broken))
    by_code = {rule.code: rule.expression(DAY, RuleSettings()) for rule in RULES}

    for rule in RULES:
        if rule.narrows:
            narrow, broad = (
                rows.select(by_code[code]).to_series() for code in (rule.code, rule.narrows)
            )
            assert not (~narrow & broad).any()


def test_pandera_judges_every_row_and_keeps_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    caught: list[SchemaErrors] = []
    heights: list[int] = []
    ask = DataFrameSchema.validate

    def spy(schema: DataFrameSchema, frame: pl.DataFrame, **options: Any) -> Any:
        heights.append(frame.height)
        try:
            return ask(schema, frame, **options)
        except SchemaErrors as errors:
            caught.append(errors)
            raise

    monkeypatch.setattr(DataFrameSchema, "validate", spy)
    rows = portal_rows({}, {CITY: "4242 4242 4242 4242"}, *(change for change, *_ in BREAKS))

    validate(rows, DAY, RuleSettings())

    every, *screened = heights  # rows that do not keep a screen are judged by the rules behind it
    assert every == rows.height > max(screened) >= min(screened) > 0
    assert [0] * len(caught) == [errors.failure_cases.height for errors in caught]
    assert not any("4242" in str(errors) for errors in caught)


def test_every_rule_is_asked_of_all_rows_or_of_those_that_do_not_keep_its_columns_screen() -> None:
    fast = fast_schema(RULES, DAY, RuleSettings())

    codes = [code for part in (fast, *fast.behind) for code in part.verdicts["code"]]
    assert columns() == tuple(fast.columns or ())
    assert len(fast.screens) == len(fast.behind)
    assert [] == [part.behind for part in fast.behind if part.behind]
    assert sorted(codes) == sorted(rule.code for rule in RULES)


def test_pandera_decides_about_a_row_with_the_shape_of_a_screen_that_breaks_no_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed: list[int] = []
    ask = DataFrameSchema.validate
    rows = portal_rows({}, {CITY: "Ward 20261120123456789012"})

    def spy(schema: DataFrameSchema, frame: pl.DataFrame, **options: Any) -> Any:
        done = ask(schema, frame, **options)  # raises where a check fails
        passed.append(frame.height)
        return done

    monkeypatch.setattr(DataFrameSchema, "validate", spy)

    assert validate(rows, DAY, RuleSettings()).is_empty()
    assert [1] == passed


LATIN_1 = "".join(chr(code) for code in range(0xC0, 0x100) if chr(code).isalpha())
# cp1252 lacks five of the bytes that follow a lead byte
LATIN = "".join(
    chr(code)
    for code in range(0xC0, 0x180)
    if chr(code).isalpha() and not {0x81, 0x8D, 0x8F, 0x90, 0x9D} & {*chr(code).encode()}
)


@pytest.mark.slow
@settings(deadline=None, max_examples=share_of(1))
@given(
    st.tuples(st.lists(st.sampled_from("abc" + LATIN), min_size=1, max_size=5), st.just("cp1252"))
    | st.tuples(
        st.lists(st.sampled_from("abc" + LATIN_1), min_size=1, max_size=5), st.just("latin-1")
    )
)
def test_text_read_in_a_wrong_encoding_is_named_by_how_often_it_was(
    read: tuple[list[str], str],
) -> None:
    letters, code = read
    name = "n".join(letters)
    once = _read_as(f"b{name}c", code)
    twice = _read_as(once, code)
    rows = portal_rows({CITY: f"b{name}c"}, {CITY: once}, {CITY: twice}, {CITY: "Jos\ufffd Lee"})

    verdicts = validate(normalise(rows, RuleSettings()), DAY, RuleSettings())

    kinds = dict(verdicts.select("row", pl.col("code").str.split(".").list.last()).iter_rows())
    expected = {} if name.isascii() else {2: "garbled", 3: "garbled_twice"}
    assert {**expected, 4: "replaced"} == kinds


def _read_as(text: str, code: str) -> str:
    """Return UTF-8 read in another encoding, the bytes that cp1252 lacks as latin-1 has them."""
    raw = text.encode()
    return "".join(
        bytes([byte]).decode(code, "ignore") or bytes([byte]).decode("latin-1") for byte in raw
    )


@pytest.mark.parametrize(
    "name",
    [
        "Zoë",
        "SÃO JOÃO",
        "CÔTÉ",
        "Ångström",
        "Åsa",
        "Łukasz",
        "Nguyễn Thị",
        "D’Arcy",
        "Ö. Ä.",
        "小龙",
        "Č. Šimůnek",
        "Ÿ",
    ],
)
def test_letters_of_any_alphabet_are_neither_garbled_nor_invisible(name: str) -> None:
    rows = portal_rows({FIRST_NAME: name, CITY: name, ADDRESS1: f"12 {name}"})

    assert [] == validate(rows, DAY, RuleSettings()).rows()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("José".encode().decode("cp1252"), "garbled"),
        ("À Ñ ł".encode().decode("latin-1"), "garbled"),
        ("D’Arcy".encode().decode("cp1252"), "garbled"),
        ("Ã lvarez", "garbled"),
        ("Garc├¡a", "garbled"),
        ("Ann\u200bLee", "invisible"),
        ("Ann \u202eeeL", "invisible"),
        ("Ann\u00adLee", "invisible"),
    ],
)
def test_damaged_text_is_warned_of_or_refused_as_the_settings_say(text: str, kind: str) -> None:
    rows = portal_rows({CITY: text})

    found = [
        validate(rows, DAY, RuleSettings.model_validate({kind: how}))
        for how in ("warn", "reject", "off")
    ]

    code = f"address.city.{kind}"
    assert [[(1, CITY, code, "warn")], [(1, CITY, code, "reject")], []] == [
        one.rows() for one in found
    ]


def test_the_length_of_a_column_is_a_setting() -> None:
    rows = portal_rows({CITY: "Äb" * 15}, {CITY: "b" * 31}, {ADDRESS1: "b" * 255})

    verdicts = validate(rows, DAY, RuleSettings(max_length={CITY: 30}))

    assert [
        (2, CITY, "address.city.length", "reject"),
        (3, ADDRESS1, "address.address1.length", "reject"),
    ] == (verdicts.rows())


def test_a_card_number_in_a_text_is_refused_and_a_phone_number_is_none() -> None:
    rows = portal_rows(
        {NICKNAME: "my 4111-1111-1111-1111"},
        {PHONE: "+1 (617) 555-0123"},
        {ADDRESS1: "Apt 4111111111111111"},
    )

    verdicts = validate(rows, DAY, RuleSettings())

    assert [(1, "card.nickname.card_number"), (3, "address.address1.card_number")] == (
        verdicts.select("row", "code").rows()
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"example": {}},
        {"column": "nickname"},
        {"example": {"nickname": "x"}},
        {"severity": "nickname"},
    ],
)
def test_a_rule_that_could_not_work_is_an_error_at_its_entry(wrong: dict[str, Any]) -> None:
    entry: dict[str, Any] = {
        "column": CITY,
        "holds": pl.lit(value=True),
        "example": {CITY: "x"},
        "severity": "luhn",
    }
    Rule("made.up.right", **entry)

    with pytest.raises(
        ValueError, match=r"made\.up\.wrong: (a rule needs an example|no such column .*: nickname)"
    ):
        Rule("made.up.wrong", **entry | wrong)
