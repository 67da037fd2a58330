"""What a delivery of links consists of, told from frames alone."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import polars as pl
import pytest

from flows.extensions.deliveries.changes import (
    CARD,
    DELTA,
    ISSUE,
    delta,
    perhaps_delivered,
    replayed,
    undecided_withdrawals,
)
from flows.extensions.deliveries.delivered import CHANGE, WITHDRAWN

TODAY = date(2026, 11, 20)
NONE = pl.DataFrame(schema=CHANGE)


def links(*numbers: int, **facts: Any) -> pl.DataFrame:
    """Return changes that deliver these links of one card, or as the facts say."""
    known = {
        "cuid": "c-1",
        "last_4": "4242",
        "expiration": "2911",
        "change": "new",
        "until": TODAY + timedelta(days=9),
        "delivery": 1,
        **facts,
    }
    return pl.DataFrame([{**known, "link": number} for number in numbers], CHANGE)


def alive(*numbers: int, **facts: Any) -> pl.DataFrame:
    return links(*numbers, **facts).select(*ISSUE, "until", "link")


def changes(
    living: pl.DataFrame,
    delivered: pl.DataFrame = NONE,
    pending: pl.DataFrame = NONE,
    reported: pl.DataFrame | None = None,
    left: str = "",
) -> list[tuple[int, str, str]]:
    """Return link, change and why; `reported`: the cards that were sent, else all."""
    sent = pl.concat([delivered, pending]) if reported is None else reported
    stopped = pl.DataFrame(
        [("c-1", "4242", left)] if left else [],
        {**dict.fromkeys(CARD, pl.String()), "standing": pl.String()},
        orient="row",
    )
    told = delta(living, delivered, pending, sent.select(*ISSUE), stopped, TODAY)
    assert list(DELTA) == told.columns
    return told.select("link", "change", "why").rows()


GONE = (7, WITHDRAWN)
NEW = (7, "new", "no other link")


@pytest.mark.parametrize(
    ("delivered", "pending", "expected"),
    [
        (NONE, NONE, [NEW]),
        (links(7), NONE, []),
        # whether the receiver has it is not known
        (NONE, links(7), [NEW]),
        (links(7), links(7, change=WITHDRAWN), [NEW]),
        (links(7), links(7, change="replaced"), []),
    ],
)
def test_a_living_link_is_sent_until_the_receiver_surely_has_it(
    delivered: pl.DataFrame, pending: pl.DataFrame, expected: list[tuple[int, str, str]]
) -> None:
    assert expected == changes(alive(7), delivered, pending)


@pytest.mark.parametrize(
    ("delivered", "pending", "expected"),
    [
        (links(7), NONE, [(*GONE, "contradicted")]),
        # somebody may have it, though nobody confirmed it
        (NONE, links(7), [(*GONE, "contradicted")]),
        (links(7), links(7, change=WITHDRAWN), [(*GONE, "contradicted")]),
        (NONE, links(7, change=WITHDRAWN), []),
    ],
)
def test_a_link_that_ended_is_withdrawn_until_the_receiver_surely_lacks_it(
    delivered: pl.DataFrame, pending: pl.DataFrame, expected: list[tuple[int, str, str]]
) -> None:
    assert expected == changes(alive(), delivered, pending)


@pytest.mark.parametrize(
    ("days", "why"), [(-1, "expired"), (0, "contradicted"), (1, "contradicted")]
)
def test_a_link_has_expired_on_the_day_after_its_last(days: int, why: str) -> None:
    delivered = links(7, until=TODAY + timedelta(days=days))

    assert [(*GONE, why)] == changes(alive(), delivered)


def test_of_several_reasons_to_withdraw_a_link_the_one_that_says_most_is_given() -> None:
    old = links(7, until=TODAY - timedelta(days=1))

    replaced = changes(alive(8), old, left="left")
    expired = changes(alive(), old, left="left")
    left = changes(alive(), links(7), left="left")
    unreported = changes(alive(), links(7), reported=NONE)

    assert [(*GONE, "replaced"), (8, "replaced", "replaces a link withdrawn")] == replaced
    assert [(*GONE, "expired")] == expired
    assert [(*GONE, "left")] == left
    assert [(*GONE, "no longer reported")] == unreported


@pytest.mark.parametrize("until", [TODAY - timedelta(days=1), TODAY + timedelta(days=9)])
def test_the_link_of_a_card_with_another_expiry_replaces_that_of_the_one_before(
    until: date,
) -> None:
    replaced = changes(alive(8, expiration="3111"), links(7, until=until))

    assert [(*GONE, "replaced"), (8, "replaced", "replaces a link withdrawn")] == replaced


@pytest.mark.parametrize("other", [{"last_4": "1111"}, {"cuid": "c-2"}])
def test_a_link_of_another_card_replaces_none(other: dict[str, str]) -> None:
    not_replaced = changes(alive(8, **other), links(7))

    assert [(*GONE, "contradicted"), (8, "new", "no other link")] == not_replaced


def test_a_link_that_the_receiver_has_already_replaces_none_of_another_expiry() -> None:
    has_both = pl.concat([links(7), links(8, expiration="3111")])

    assert [(*GONE, "contradicted")] == changes(alive(8, expiration="3111"), has_both)


def test_the_last_change_of_a_link_counts() -> None:
    told = replayed(pl.concat([links(7, 8), links(7, change=WITHDRAWN), links(9)]))

    assert {7: WITHDRAWN, 8: "new", 9: "new"} == dict(told.select("link", "change").rows())


@pytest.mark.parametrize(
    ("why", "is_undecided"),
    [
        ("left", True),
        ("contradicted", True),
        ("no longer reported", True),
        ("given up", False),
        ("forgotten", False),
        ("receiver retired", False),
        ("expired", False),
        ("replaced", False),
    ],
)
def test_a_link_that_ended_or_was_decided_about_is_withdrawn_without_a_decision(
    why: str, *, is_undecided: bool
) -> None:
    withdrawn = links(7, change=WITHDRAWN).with_columns(why=pl.lit(why))

    found = undecided_withdrawals(withdrawn, NONE)

    assert is_undecided == (found.height == 1)


def test_what_a_delivery_has_withdrawn_that_nobody_confirmed_was_decided() -> None:
    withdrawn = links(7, 8, change=WITHDRAWN).with_columns(why=pl.lit("left"))

    found = undecided_withdrawals(withdrawn, links(7, change=WITHDRAWN))

    assert [8] == found["link"].to_list()


def test_a_receiver_may_have_what_nobody_confirmed_and_each_link_once() -> None:
    found = perhaps_delivered(links(7), pl.concat([links(7, 8), links(9, change=WITHDRAWN)]))

    assert [7, 8] == sorted(found["link"])
