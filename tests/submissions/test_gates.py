from typing import Any

import pytest

from flows.submissions.gates import (
    GateFacts,
    RejectRateError,
    RowJumpError,
    TrailerMismatchError,
    WrongCardsError,
    refusal,
)
from schemas.issuer import Limits
from schemas.manifest import Counts

LIMITS = Limits(max_reject_rate=0.1, max_row_jump=0.5)


def night(read: int = 100, rejected: int = 0, before: tuple[int, ...] = (), **facts: Any) -> GateFacts:
    counts = Counts(
        lines=read + 1,
        read=read,
        submitted=read - rejected,
        rejected=rejected,
        duplicate=0,
        suppressed=0,
        trailer=facts.pop("trailer", None),
    )
    return GateFacts("cards.csv", counts, before, facts.get("test_cards", 0), facts.get("real_cards", read))


@pytest.mark.parametrize(
    ("tried", "refused"),
    [
        (night(), None),
        (night(trailer=100), None),
        (night(trailer=101), TrailerMismatchError),
        (night(rejected=10), None),
        (night(rejected=11), RejectRateError),
        (night(before=(100, 100, 150)), None),
        (night(before=(201, 201, 201)), RowJumpError),
        (night(before=(60, 66, 60)), RowJumpError),
        (night(before=(10, 10)), None),
        (night(test_cards=1), WrongCardsError),
    ],
)
def test_a_gate_that_does_not_hold_refuses_the_run(tried: GateFacts, refused: type[Exception] | None) -> None:
    found = refusal(tried, LIMITS, test=False)

    assert type(found) is (refused or type(None))


def test_a_real_card_at_a_test_issuer_refuses_the_run() -> None:
    found = refusal(night(real_cards=1, test_cards=99), LIMITS, test=True)

    assert isinstance(found, WrongCardsError)


def test_an_opened_gate_lets_the_run_pass() -> None:
    tried = night(rejected=50, before=(10, 10, 10))

    assert refusal(tried, LIMITS, test=False, opened=["reject-rate", "row-jump"]) is None
