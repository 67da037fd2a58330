"""What a request keeps of a dry run, and how another dry run differs from it."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from flows.extensions.governance.two_persons import LONGEST, _different, as_shown
from schemas.expressions import PUBLISHED

NOON = datetime(2026, 11, 20, 12, 0, 0, 500, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fact", "shown"),
    [
        (datetime(2026, 11, 20, 12, 0, 0, 501, tzinfo=UTC), "now"),
        (datetime(2026, 11, 20, 12, 0, 0, 499, tzinfo=UTC), "2026-11-20T12:00:00.000499+00:00"),
        ("2026-11-20T12:00:00+00:00", "now"),
        ("2026-11-20T11:59:59+00:00", "2026-11-20T11:59:59+00:00"),
        (date(2026, 11, 21), "2026-11-21"),
        ({"rows": (1, 2), "by": "anna"}, {"rows": [1, 2]}),
        (frozenset({2, 1}), [1, 2]),
        (f"card {PUBLISHED[0]}", "card [masked]"),
    ],
)
def test_a_fact_is_kept_without_its_moment_its_author_and_card_numbers(
    fact: object, shown: object
) -> None:
    assert shown == as_shown(fact, NOON)


def test_a_long_list_is_kept_as_its_number_and_digest() -> None:
    short = as_shown(list(range(LONGEST)), NOON)
    shown = as_shown(list(range(LONGEST + 1)), NOON)
    other = as_shown([*range(LONGEST), 0], NOON)

    assert list(range(LONGEST)) == short
    assert LONGEST + 1 == shown["number"]
    assert shown != other


def test_differences_are_named_from_what_to_what() -> None:
    before = {"rows": 20, "chunks": [{"number": 1, "state": "held"}]}
    after = {"rows": 22, "chunks": [{"number": 1, "state": "held"}, {"number": 2}]}

    difference = "it was made for other facts: chunks.2.number: nothing -> 2; rows: 20 -> 22"
    assert [difference] == list(_different("facts", before, after))
    assert [] == list(_different("facts", before, before))
