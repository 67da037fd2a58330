"""Where a card stands by everything that happened to it, and what to do next."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from flows.reports.cardholder import (
    CANCELLED,
    SINGLE,
    UNSENT,
    Attempt,
    card_statuses,
    single_attempt,
)
from schemas.records import SingleAnswered, SingleAsked

TODAY = date(2026, 11, 20)
RUN = "bank-20261101-00000001"


def attempt(day: int, state: str, **facts: object) -> Attempt:
    """Return what happened to one card on a day of November."""
    sent = Attempt(
        datetime(2026, 11, day, tzinfo=UTC), "bank", RUN, 7, "4242", "2811", state, chunk=2
    )
    return sent._replace(**facts)  # type: ignore[arg-type]  # facts of Attempt


@pytest.mark.parametrize(
    ("happened", "stood", "then"),
    [
        ([attempt(1, "linked", expires_on=date(2027, 1, 1))], "has a link until 2027-01-01", ""),
        (
            [attempt(1, "linked", expires_on=date(2026, 12, 1))],
            "has a link until 2026-12-01",
            "cardlink renew bank",
        ),
        (
            [attempt(1, "linked", expires_on=date(2026, 11, 19))],
            "its link expired on 2026-11-19",
            "cardlink renew bank",
        ),
        ([attempt(1, "linked")], "has a link", ""),
        (
            [
                attempt(1, "linked", expires_on=date(2027, 1, 1)),
                attempt(2, "error", reasons=("card.pan.luhn",)),
            ],
            "has a link until 2027-01-01",
            "",
        ),
        (
            [
                attempt(1, "linked", expires_on=date(2026, 11, 2)),
                attempt(9, "awaiting", sent="uploaded"),
            ],
            "was uploaded and has no answer yet",
            "fetch the result of chunk 2, then: cardlink ingest bank",
        ),
        (
            [attempt(1, "awaiting", sent="waiting")],
            "waits for its upload",
            f"cardlink outbox fetch {RUN} 2 --to FOLDER",
        ),
        ([attempt(1, "awaiting", sent="held")], "is on hold", f"cardlink outbox release {RUN} 2"),
        (
            [attempt(1, "awaiting", sent="answered")],
            "has no answer in its chunk's result",
            f"cardlink report {RUN}",
        ),
        (
            [attempt(1, "awaiting", sent="answered", trouble="LINK_EXPIRED")],
            "has an answer that does not count: a link had already expired when its result arrived",
            "decide that it expired, then resubmit the rows",
        ),
        (
            [attempt(1, "awaiting", sent=SINGLE)],
            "unknown outcome",
            "ask the partner before requesting it again",
        ),
        (
            [attempt(1, "error", reasons=("card.request.unavailable",)), attempt(2, "suppressed")],
            "was refused by the partner: card.request.unavailable",
            f"send it again as it is: cardlink resubmit {RUN} --row 7",
        ),
        (
            [attempt(1, "rejected", reasons=("address.postal_code.missing",))],
            "was refused by us: address.postal_code.missing",
            "fix it at the source (five digits with leading zeros",
        ),
        (
            [attempt(1, "error", reasons=("card.card.exists",))],
            "was refused by the partner",
            f"naming {RUN}, chunk 2",
        ),
        ([attempt(1, CANCELLED)], "its chunk was cancelled", f"cardlink resubmit {RUN} --row 7"),
        (
            [attempt(1, "suppressed", reasons=("card.link.standing",))],
            "was not sent: card.link.standing",
            "",
        ),
        ([attempt(1, UNSENT, run="")], "was not requested", "cardlink link bank"),
    ],
)
def test_a_card_stands_by_its_living_link_else_by_what_last_happened_to_it(
    happened: list[Attempt], stood: str, then: str
) -> None:
    [status] = card_statuses(happened, TODAY)

    assert stood in status.stands
    assert (then in str(status.then)) if then else status.then == ""


def test_every_card_of_a_cardholder_stands_by_itself() -> None:
    cards = [
        attempt(1, "linked"),
        attempt(2, "error", last_4="1111"),
        attempt(3, "linked", expiration="3001"),
    ]

    statuses = card_statuses(cards, TODAY)

    assert [("4242", "2811"), ("1111", "2811"), ("4242", "3001")] == [
        (status.last_4, status.expiration) for status in statuses
    ]


@pytest.mark.parametrize(
    ("outcome", "state"), [("linked", "linked"), ("refused", "error"), ("unsent", UNSENT)]
)
def test_a_link_asked_for_by_itself_is_an_attempt_like_any_other(outcome: str, state: str) -> None:
    moment = datetime(2026, 11, 2, tzinfo=UTC)
    requested = SingleAsked(
        row=7, cuid="C1", last_4="4242", expiration="2811", at=moment, by="tester"
    )
    answer = SingleAnswered.model_validate(
        {"outcome": outcome, "at": moment + timedelta(seconds=2), "reasons": ["a.b.c"]}
    )

    attempts = [single_attempt(attempt(1, ""), requested, known) for known in (answer, None)]

    assert [(moment, 7, state, SINGLE), (moment, 7, "awaiting", SINGLE)] == [
        (single.at, single.row, single.state, single.sent) for single in attempts
    ]
