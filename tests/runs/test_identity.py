from datetime import UTC, date, datetime

import pytest

from flows.runs.identity import business_date, canonical, differences

DROPPED = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "zone", "expected"),
    [
        ("cards-20261120.csv", "UTC", date(2026, 11, 20)),
        ("2026-11-19_cards.csv.gz", "UTC", date(2026, 11, 19)),
        ("cards.csv", "UTC", date(2026, 11, 21)),
        ("cards.csv", "America/New_York", date(2026, 11, 20)),
        ("cards-20260231.csv", "UTC", date(2026, 11, 21)),
        ("cards-1202611209.csv", "UTC", date(2026, 11, 21)),
    ],
)
def test_the_business_date_is_the_names_else_the_day_of_the_drop(name: str, zone: str, expected: date) -> None:
    assert business_date(f"bank/extracts/{name}", DROPPED, zone) == expected


def test_equal_documents_are_equal_bytes() -> None:
    assert canonical({"b": 1, "a": {"d": "é", "c": 2}}) == canonical({"a": {"c": 2, "d": "é"}, "b": 1})


def test_changed_settings_are_named_by_their_dotted_place() -> None:
    old = {"rules": {"luhn": "reject", "cvv": "warn"}, "portal": {"armor": False}}
    new = {"rules": {"luhn": "warn", "cvv": "warn"}, "portal": {}}

    assert differences(old, new) == ["portal.armor", "rules.luhn"]
