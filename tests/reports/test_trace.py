"""Where a card stands by its book, and what to do next; a single link is an attempt like any other."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import polars as pl
import pytest

from flows.book.attempts import ATTEMPT
from flows.book.book import Book
from flows.book.departures import NOBODY
from flows.book.given_up import NOBODY as UNDECIDED
from flows.book.kept_links import NONE_KEPT
from flows.book.stages import NO_STAGES, Stages
from flows.extensions.partner_api.link_stages import FOLLOWED, REPORTED
from flows.reports.cardholder import SINGLE, UNSENT, Attempt, single_attempt
from flows.reports.cardholder_status import CardStatus, Renewals, card_statuses
from schemas.reasons import DYING
from schemas.records import SingleAnswered, SingleAsked
from tests.stages import stages_with

TODAY = date(2026, 11, 20)
RUN = "bank-20261101-00000001"
MOMENT = datetime(2026, 11, 2, tzinfo=UTC)
SEEN = Attempt(MOMENT, "bank", RUN, 7, "4242", "2811", "suppressed")


def attempt(turn: int, state: str, **facts: object) -> dict[str, object]:
    """Return one attempt of the card as a book has it."""
    return {
        "turn": turn,
        "run": RUN,
        "as_of": TODAY - timedelta(30),
        "row": 7,
        "chunk": 2,
        "holder": "C1",
        "cuid": "C1",
        "last_4": "4242",
        "twin": 0,
        "expiration": "2811",
        "state": state,
        "decided": False,
        "renewal": False,
        "expires_on": date(2027, 1, 1) if state == "linked" else None,
        "channel": "file",
        "tries": 1,
        "sendings": 1,
        **facts,
    }


def statuses(
    *attempts: dict[str, object],
    seen: tuple[Attempt, ...] = (),
    stages: Stages = NO_STAGES,
    renewals: Renewals | None = None,
) -> list[CardStatus]:
    tries = pl.DataFrame([*attempts], ATTEMPT)
    book = Book("bank", 0, TODAY, tries, NOBODY, lambda: stages, UNDECIDED, NONE_KEPT)
    return card_statuses(book, "C1", seen, TODAY, renewals)


@pytest.mark.parametrize(
    ("happened", "stood", "then"),
    [
        ([attempt(1, "linked")], "has a link until 2027-01-01", ""),
        (
            [attempt(1, "linked", expires_on=date(2026, 12, 4))],
            "has a link until 2026-12-04",
            "cardlink renew bank",
        ),
        (
            [attempt(1, "linked", expires_on=date(2026, 12, 5))],
            "has a link until 2026-12-05",
            "",
        ),
        (
            [attempt(1, "linked", expires_on=date(2026, 11, 20))],
            "has a link until 2026-11-20",
            "cardlink renew bank",
        ),
        (
            [attempt(1, "linked", expires_on=date(2026, 11, 19))],
            "its link expired on 2026-11-19",
            "cardlink renew bank",
        ),
        (
            [attempt(1, "linked"), attempt(2, "error", reason="card.pan.luhn")],
            "until 2027-01-01; the row that was to replace it was refused: card.pan.luhn",
            "cardlink resubmit bank --replacing",
        ),
        (
            [
                attempt(1, "linked", expires_on=date(2026, 11, 2)),
                attempt(9, "awaiting", wait="uploaded"),
            ],
            "was uploaded and has no answer yet",
            "fetch the result of chunk 2, then: cardlink ingest bank",
        ),
        (
            [attempt(1, "awaiting", wait="waiting")],
            "waits for its upload",
            f'cardlink upload {RUN} 2 --to "FOLDER"',
        ),
        ([attempt(1, "awaiting", wait="held")], "is on hold", f"cardlink outbox release {RUN} 2"),
        (
            [attempt(1, "awaiting", wait="answered")],
            "has no answer in its chunk's result",
            f"cardlink report {RUN}",
        ),
        (
            [attempt(1, "awaiting", wait="answered", trouble="LINK_EXPIRED")],
            "has an answer that does not count: a link had already expired when its result arrived",
            "decide that it expired, then resubmit the rows",
        ),
        (
            [attempt(1, "awaiting", wait=SINGLE, channel=SINGLE)],
            "unknown outcome",
            "ask the partner before requesting it again",
        ),
        (
            [attempt(1, "error", reason="card.request.unavailable")],
            "was refused by the partner: card.request.unavailable",
            f"send it again as it is: cardlink resubmit {RUN} --row 7",
        ),
        (
            [attempt(1, "rejected", reason="address.postal_code.missing")],
            "was refused by us: address.postal_code.missing",
            "fix it at the source (five digits with leading zeros",
        ),
        (
            [attempt(1, "error", reason="card.card.exists")],
            "was refused by the partner",
            f"naming {RUN}, chunk 2",
        ),
        (
            [attempt(1, "cancelled")],
            "its chunk was cancelled",
            f"cardlink resubmit {RUN} --row 7",
        ),
    ],
)
def test_a_card_stands_where_its_book_has_it(
    happened: list[dict[str, object]], stood: str, then: str
) -> None:
    [status] = statuses(*happened)

    assert stood in status.stands
    assert (then in str(status.then)) if then else status.then == ""


@pytest.mark.parametrize(
    ("tries", "origin"),
    [
        (
            [attempt(1, "linked", since=MOMENT)],
            f"linked: since 2026-11-02 00:00, by {RUN} row 7, through a file; attempts: 1, sent: 1",
        ),
        (
            [
                attempt(1, "linked", since=MOMENT, name_check=1),
                attempt(2, "changed", content=2, name_check=2, tries=0, sendings=0),
            ],
            f"changed: by {RUN} row 7 of 2026-11-02 00:00, through a file; attempts: 1, sent: 1",
        ),
        (
            [attempt(1, "awaiting", since=MOMENT, wait="held")],
            f"on hold: by {RUN} row 7 of 2026-11-02 00:00, through a file; attempts: 1, sent: 0",
        ),
    ],
)
def test_a_moment_before_a_state_is_not_shown_as_its_beginning_nor_a_held_row_as_sent(
    tries: list[dict[str, object]], origin: str
) -> None:
    [status] = statuses(*tries)

    assert origin == status.origin


def test_a_status_says_since_when_by_which_row_and_channel_and_after_how_many_attempts() -> None:
    tries = [attempt(1, "error", reason="card.pan.luhn"), attempt(2, "linked", since=MOMENT, row=9)]

    [status] = statuses(*tries)

    assert ("linked", MOMENT, RUN, 9, "file", 2, 2, "") == (
        status.standing,
        status.since,
        status.run,
        status.row,
        status.channel,
        status.tries,
        status.sendings,
        status.who,
    )


def test_a_renewal_is_advised_only_where_there_is_one() -> None:
    ending = attempt(1, "linked", expires_on=TODAY)
    cases: dict[str, Renewals] = {
        "due": {"4242": None},
        "left out": {"4242": DYING},
        "replaced": {},
    }

    advised = {name: str(statuses(ending, renewals=case)[0].then) for name, case in cases.items()}

    assert "cardlink renew bank" in advised["due"]
    assert "card.expiration.before_link" in advised["left out"]
    assert "renew bank" not in advised["left out"]
    assert "" == advised["replaced"]


@pytest.mark.parametrize(
    ("seen", "came"), [(MOMENT, f"was seen opened on {MOMENT:%Y-%m-%d}"), (None, "is opened")]
)
def test_a_link_was_seen_opened_on_a_day_where_a_check_saw_it(
    seen: datetime | None, came: str
) -> None:
    link = attempt(1, "linked")
    names = ("run", "row", "holder", "last_4", "twin", "expiration")
    opened = {**{name: link[name] for name in names}, "opened": True, "opened_at": seen}
    followed = pl.DataFrame([opened], FOLLOWED)

    [status] = statuses(link, stages=stages_with(followed=followed))

    assert f"has a link until 2027-01-01, which {came}" == status.stands


def test_a_link_by_which_no_card_was_placed_says_why() -> None:
    link = attempt(1, "linked")
    names = ("run", "row", "holder", "last_4", "twin", "expiration")
    failed = {**{name: link[name] for name in names}, "opened": True, "failed": "PROCESS_FAILURE"}
    followed = pl.DataFrame([failed], FOLLOWED)

    [status] = statuses(link, stages=stages_with(followed=followed))

    assert "has a link until 2027-01-01; placing the card failed: PROCESS_FAILURE" == status.stands


def test_a_placed_card_needs_nothing_although_its_link_has_ended() -> None:
    ended = attempt(1, "linked", expires_on=TODAY - timedelta(1))
    says = {"cuid": "C1", "reported_placed": True, "completed_on": date(2026, 11, 9)}
    placed = pl.DataFrame([says], REPORTED)

    [status] = statuses(ended, stages=stages_with(reported=placed))

    assert ("is placed since 2026-11-09", "") == (status.stands, status.then)


def test_every_card_of_a_cardholder_stands_by_itself_and_of_a_reissued_one_the_newest() -> None:
    known = statuses(
        attempt(1, "linked"),
        attempt(2, "error", last_4="1111", reason="card.pan.luhn"),
        attempt(3, "linked", expiration="3001"),
    )

    assert {("4242", "3001"), ("1111", "2811")} == {
        (status.last_4, status.expiration) for status in known
    }


def test_a_card_that_is_active_in_two_runs_says_in_which() -> None:
    [status] = statuses(attempt(1, "linked"), attempt(2, "linked", run="bank-20261102-00000002"))

    runs = f"{RUN}, bank-20261102-00000002"
    assert status.stands.endswith(f"; it is active in 2 runs: {runs}")


@pytest.mark.parametrize(
    ("seen", "stood", "then"),
    [
        (SEEN._replace(reasons=("card.link.standing",)), "was not sent: card.link.standing", ""),
        (SEEN._replace(state=UNSENT, run=""), "was not requested", "cardlink link bank"),
    ],
)
def test_a_card_that_no_run_sent_or_refused_stands_by_what_last_happened_to_it(
    seen: Attempt, stood: str, then: str
) -> None:
    [status] = statuses(seen=(seen,))

    assert stood in status.stands
    assert then in str(status.then)


@pytest.mark.parametrize(
    ("outcome", "state"), [("linked", "linked"), ("refused", "error"), ("unsent", UNSENT)]
)
def test_a_link_asked_for_by_itself_is_an_attempt_like_any_other(outcome: str, state: str) -> None:
    requested = SingleAsked(
        row=7, cuid="C1", last_4="4242", expiration="2811", at=MOMENT, by="tester"
    )
    answer = SingleAnswered.model_validate(
        {"outcome": outcome, "at": MOMENT + timedelta(seconds=2), "reasons": ["a.b.c"]}
    )

    attempts = [single_attempt(SEEN, requested, known) for known in (answer, None)]

    assert [(MOMENT, 7, state, SINGLE), (MOMENT, 7, "awaiting", SINGLE)] == [
        (single.at, single.row, single.state, single.sent) for single in attempts
    ]
