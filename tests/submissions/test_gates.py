from typing import Any

import pytest

from flows.submissions.gates import (
    CHANGED_EXTRACT,
    OPENABLE,
    Built,
    IneligibleRateError,
    LeaversError,
    NewcomersError,
    RejectRateError,
    RowFallError,
    RowJumpError,
    SeenBeforeError,
    TrailerMismatchError,
    WrongCardsError,
    refusals,
)
from flows.submissions.plan import check_step
from flows.submissions.row_counts import fewest_rows
from flows.submissions.turnover import NO_TURNOVER, Turnover
from schemas.issuer import Issuer
from schemas.manifest import Counts
from schemas.reasons import UNKNOWN_STATUS
from tests.facts import manifest
from tests.night import issuer

LIMITS = {"max_reject_rate": 0.1, "max_row_jump": 0.5}


def bank(**changes: Any) -> Issuer:
    return issuer(limits=LIMITS | changes.pop("limits", {}), **{"test": False, **changes})


def gated(name: str, **facts: Any) -> Built:
    """Return a night that only the gate of this name refuses."""
    nights: dict[str, dict[str, Any]] = {
        "reject-rate": {"rejected": 11},
        "ineligible-rate": {"ineligible": 51},
        "seen-before": {"seen": 51},
        "row-jump": {"before": (10, 20, 30)},
        "unknown-status": {"unknown": {("status", "Z"): 2, ("code", "Y"): 1}},
        "drift": {"drift": ("rows without a city", "fewer codes")},
        "one-value": {"one_value": ("one name", "one street")},
        "leavers": {"turnover": Turnover(known=100, left=31)},
        "newcomers": {"turnover": Turnover(known=100, new=72)},
    }
    return night(**nights[name], **facts)


def night(read: int = 100, rejected: int = 0, before: tuple[int, ...] = (), **facts: Any) -> Built:
    counts = Counts(
        lines=read + 1,
        read=read,
        submitted=read - rejected,
        rejected=rejected,
        duplicate=0,
        suppressed=0,
        ineligible=facts.get("ineligible", 0),
        trailer=facts.pop("trailer", None),
    )
    unknown = facts.get("unknown", {})
    reasons = {"card.link.standing": facts.get("seen", 0), UNKNOWN_STATUS: sum(unknown.values())}
    return Built(
        manifest(0).model_copy(update={"counts": counts, "reasons": reasons}),
        before,
        facts.get("test_cards", 0),
        facts.get("real_cards", read),
        drift=facts.get("drift", ()),
        one_value=facts.get("one_value", ()),
        turnover=facts.get("turnover", NO_TURNOVER),
        unknown_values=unknown,
    )


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
        (night(before=(200, 200, 200)), None),
        (night(before=(67, 67, 67)), None),
        (night(before=(66, 66, 66)), RowJumpError),
        (night(before=(10, 10)), None),
        (night(test_cards=1), WrongCardsError),
        (night(seen=100), None),
    ],
)
def test_a_gate_that_does_not_hold_refuses_the_run(
    tried: Built, refused: type[Exception] | None
) -> None:
    found = next(refusals(tried, bank()), None)

    assert type(found) is (refused or type(None))


@pytest.mark.parametrize(("rows", "refuses"), [(49, False), (50, False), (51, True)])
def test_as_many_rows_may_not_be_eligible_as_the_limit_says(rows: int, *, refuses: bool) -> None:
    limits = {"max_ineligible_rate": 0.5}

    refused = [*refusals(night(ineligible=rows), bank(limits=limits))]

    assert [IneligibleRateError] * refuses == [type(each) for each in refused]


def test_a_real_card_at_a_test_issuer_refuses_the_run() -> None:
    found = next(refusals(night(real_cards=1, test_cards=99), bank(test=True)))

    assert isinstance(found, WrongCardsError)


STRICT = {
    "max_ineligible_rate": 0.5,
    "max_seen_before": 0.5,
    "drift": "refuse",
}


REJECTS = check_step(manifest(0).source.key)


@pytest.mark.parametrize("name", sorted({*OPENABLE} - {CHANGED_EXTRACT, "sequence-gap"}))
def test_a_gate_is_opened_by_its_own_name_alone(name: str) -> None:
    issuer = bank(limits=STRICT)
    others = [gate for gate in OPENABLE if gate != name]

    shut, opened, others_opened = (
        len([*refusals(gated(name), issuer, names)]) for names in ((), (name,), others)
    )

    assert (1, 0, 1) == (shut, opened, others_opened)


@pytest.mark.parametrize(
    ("tried", "told"),
    [
        (night(trailer=101), {"record": "header record", "read": 100, "trailer": 101}),
        (night(test_cards=3), {"count": 3, "kind": "test", "test": "false"}),
        (gated("reject-rate"), {"refused": 11, "read": 100, "limit": 0.1, "rejects": REJECTS}),
        (
            gated("ineligible-rate"),
            {"ineligible": 51, "read": 100, "limit": 0.5, "rejects": REJECTS},
        ),
        (gated("seen-before"), {"seen": 51, "read": 100, "limit": "50%", "others": 100}),
        (gated("row-jump"), {"read": 100, "runs": 3, "median": 20}),
        (gated("unknown-status"), {"rows": 3, "read": 100, "values": "code Y: 1, status Z: 2"}),
        (gated("drift"), {"how": "rows without a city; fewer codes"}),
    ],
)
def test_what_a_gate_says_are_the_numbers_it_judged_by(tried: Built, told: dict[str, Any]) -> None:
    [error] = refusals(tried, bank(limits=STRICT))

    assert {"extract": manifest(0).source.key, **told} == error.fields


def test_an_opened_gate_lets_the_run_pass() -> None:
    tried = night(rejected=50, before=(10, 10, 10))

    assert [] == [*refusals(tried, bank(), opened=["reject-rate", "row-jump"])]


@pytest.mark.parametrize(
    ("settings", "seen", "refused"),
    [
        ({"limits": {"max_seen_before": 0.5}}, 50, False),
        ({"limits": {"max_seen_before": 0.5}}, 51, True),
        ({"resend": {"seen_before": "refuse"}}, 0, False),
        ({"resend": {"seen_before": "refuse"}}, 1, True),
        ({"resend": {"seen_before": "refuse"}, "full_portfolio": True}, 100, False),
    ],
)
def test_rows_seen_before_refuse_a_run_above_the_share_an_issuer_allows(
    settings: dict[str, Any], seen: int, refused: bool
) -> None:
    found = [
        next(refusals(night(seen=seen), bank(**settings), opened), None)
        for opened in ((), ("seen-before",))
    ]

    assert [SeenBeforeError if refused else type(None), type(None)] == [type(one) for one in found]


@pytest.mark.parametrize(
    ("settings", "before", "least"),
    [
        # a portfolio hardly changes
        ({"full_portfolio": True}, (300, 301, 302), 248),
        ({"full_portfolio": True}, (10_000, 10_010, 9_990), 8_990),
        ({"full_portfolio": True}, (300, 301), 0),
        ({"full_portfolio": True}, (8, 8, 8), 0),
        # the numbers of deltas vary as much as they did, and on each day of a week
        ({}, (300, 301, 302, 299, 300, 303, 297), 222),
        ({}, (300, 200, 250, 310, 280, 400, 120), 0),
        ({}, (1_000, 800, 900, 950, 1_000, 1_100, 700), 450),
        ({}, (300, 301, 302, 299, 300, 303), 0),
        # as the settings say
        ({"limits": {"max_row_fall": 0.05}}, (100, 100, 100), 95),
        ({"limits": {"max_row_jump": 1.0}}, (300,) * 14, 0),
    ],
)
def test_how_few_rows_are_too_few_is_learned_from_the_last_runs(
    settings: dict[str, Any], before: tuple[int, ...], least: int
) -> None:
    limits = bank(**settings).limits

    assert least == fewest_rows(
        before, limits, full_portfolio=settings.get("full_portfolio", False)
    )


@pytest.mark.parametrize(("read", "refused"), [(247, 1), (248, 0), (249, 0)])
def test_an_extract_has_too_few_rows_below_the_least_number(read: int, refused: int) -> None:
    told = [
        error.fields
        for error in refusals(night(read, before=(300, 301, 302)), bank(full_portfolio=True))
    ]

    extract = manifest(0).source.key
    numbers = {"read": read, "runs": 3, "lowest": 300, "highest": 302, "least": 248}
    assert [{"extract": extract, **numbers}] * refused == told


def test_an_extract_of_too_few_rows_passes_where_its_gate_is_opened() -> None:
    cut = night(200, before=(300, 301, 302))

    refused = [
        [type(error) for error in refusals(cut, bank(full_portfolio=True), opened)]
        for opened in ([], ["row-jump"])
    ]

    assert [[RowFallError], []] == refused


@pytest.mark.parametrize(
    ("known", "left", "limit", "is_refused"),
    [
        (60, 30, 0.1, True),
        (60, 13, 0.1, False),
        (60, 14, 0.1, True),
        (40, 40, 0.1, True),
        (1, 1, 0.1, False),
        (5, 2, 0.1, False),
        (1000, 130, 0.1, False),
        (1000, 131, 0.1, True),
        (1000, 1000, 1.0, False),
        (100, 1, 0.0, True),
        (0, 0, 0.0, False),
    ],
)
def test_as_many_cards_may_leave_as_the_limit_says_or_chance_explains(
    known: int, left: int, limit: float, *, is_refused: bool
) -> None:
    leaving = night(turnover=Turnover(known=known, left=left))

    refused = [*refusals(leaving, bank(limits={"max_leavers": limit}))]

    assert [LeaversError] * is_refused == [type(each) for each in refused]


@pytest.mark.parametrize(
    ("known", "new", "limit", "is_refused"),
    [
        (100, 71, 0.5, False),
        (100, 72, 0.5, True),
        (0, 100, 0.5, False),
        (100, 100, 1.0, False),
        (100, 19, 0.1, False),
        (100, 20, 0.1, True),
    ],
)
def test_as_many_cards_of_a_later_portfolio_may_be_new_as_the_limit_says(
    known: int, new: int, limit: float, *, is_refused: bool
) -> None:
    growing = night(turnover=Turnover(known=known, new=new))

    refused = [*refusals(growing, bank(limits={"max_newcomers": limit}))]

    assert [NewcomersError] * is_refused == [type(each) for each in refused]
