"""Settings that are governed: what is stored of them, what counts as a change, who must agree."""

from __future__ import annotations

from typing import Any

import pytest

from flows.extensions.governance.changes import (
    LONGEST,
    MOST,
    Change,
    TomlSettings,
    _in_words,
    changes,
    in_words,
    settings_of,
)
from flows.extensions.governance.in_force import Compared, Recorded
from tests.night import NOON, issuer

HEADER = "cuid,pan"


def toml(**changed: Any) -> TomlSettings:
    return settings_of(issuer(**changed), HEADER)


def settings(**changed: Any) -> dict[str, Any]:
    return toml(**changed).values


def changed_to(before: dict[str, Any], after: TomlSettings) -> list[Change]:
    """Return the changes of settings in force that a TOML has."""
    return changes(before, after.values, after.defaults)


def test_every_setting_of_every_table_is_there_by_its_dotted_name() -> None:
    names = set(settings(service={"base_url": "https://api.example.com"}))

    assert {
        "portal.fingerprints",
        "portal.header",
        "limits.max_reject_rate",
        "store.verdict_tag",
        "service.base_url",
        "four_eyes.acts",
        "schedule.cron",
    } <= names


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("portal.fingerprints", "settings"),
        ("portal.allowed_hosts", "settings"),
        ("service.base_url", "settings"),
        ("limits.max_reject_rate", "settings"),
        ("four_eyes.hours", "settings"),
        ("test", "settings"),
        ("columns.cardholder.cuid", "mapping"),
        ("rules.luhn", "mapping"),
        ("full_portfolio", "mapping"),
        ("schedule.cron", None),
        ("portal.rows_per_chunk", None),
    ],
)
def test_a_change_is_of_the_act_that_its_name_says(name: str, act: str | None) -> None:
    assert act == Change(name, 1, 2).act


def test_a_change_says_from_what_to_what() -> None:
    before = settings(limits={"max_reject_rate": 0.05})
    after = toml(limits={"max_reject_rate": 0.2}, service={"base_url": "https://x.example"})

    assert [
        "limits.max_reject_rate: 0.05 -> 0.2",
        'service.base_url: nothing -> "https://x.example"',
    ] == [str(change) for change in changed_to(before, after)]


def test_a_service_that_is_taken_out_is_a_change_and_its_defaults_are_none() -> None:
    used = toml(service={"base_url": "https://x.example"})

    removed = [change.name for change in changed_to(used.values, toml())]
    added = [change.name for change in changed_to(settings(), used)]

    assert "service.base_url" in removed
    assert ["service.base_url"] == added


def test_a_setting_that_comes_with_its_default_is_no_change() -> None:
    ours = toml()
    earlier = {name: value for name, value in ours.values.items() if name != "limits.max_drift"}
    lowered = toml(limits={"max_drift": 0.9, "max_reject_rate": 0.5, "max_error_rate": 0.5})

    assert [] == changed_to(earlier, ours)
    assert ["limits.max_drift"] == [change.name for change in changed_to(earlier, lowered)]


def test_a_column_that_is_mapped_otherwise_is_one_change_and_a_lookup_is_a_digest() -> None:
    before = settings(columns={"cardholder.cuid": "ID"})
    after = toml(columns={"cardholder.cuid": {"from": "ID", "lookup": {"a": "b"}}})

    [change] = changed_to(before, after)

    assert "columns.cardholder.cuid" == change.name
    assert change.after["lookup"].startswith("1 texts, sha256 ")


@pytest.mark.parametrize(
    ("acts", "names"),
    [
        ((), []),
        (("release",), ["four_eyes.acts"]),
        (("settings",), ["four_eyes.acts", "limits.max_reject_rate"]),
        (("mapping",), ["four_eyes.acts", "rules.luhn"]),
    ],
)
def test_who_must_agree_is_judged_by_the_settings_that_are_left(
    acts: tuple[str, ...], names: list[str]
) -> None:
    before = settings(four_eyes={"acts": acts}, limits={"max_reject_rate": 0.05})
    after = toml(
        four_eyes={"acts": ["purge"]}, limits={"max_reject_rate": 1.0}, rules={"luhn": "off"}
    )

    last = Recorded(
        number=1, entry=1, at=NOON, by="anna", reason="x", what="found", settings=before
    )
    comparison = Compared(after.values, last, changed_to(before, after))
    assert names == [change.name for change in comparison.needing_two]


@pytest.mark.parametrize("more", [0, 1])
def test_changes_are_named_up_to_so_many_and_the_others_counted(more: int) -> None:
    changed = [Change(f"n{number}", 1, 2) for number in range(MOST + more)]

    assert bool(more) is ("and 1 more" in in_words(changed))


def test_a_value_is_shortened_where_it_is_longer_than_its_limit() -> None:
    texts = ["x" * (LONGEST + more) for more in (0, 1)]

    assert [texts[0], f"{texts[0]}…"] == [_in_words([text]) for text in texts]
