"""Which rows of a portfolio go out, against a model in plain Python that reads like the rule."""

from __future__ import annotations

from datetime import date, timedelta
from typing import NamedTuple

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.book.attempts import ATTEMPT as BOOKED
from flows.book.attempts import in_order
from flows.book.fold import fold
from flows.runs.cards import FINGERPRINTS, add_fingerprints, holder
from flows.runs.frames import shaped
from flows.submissions.prior_state import PriorState, ResendPolicy, prior_state, resend_policy
from schemas.portal import ADDRESS1, CUID, FIRST_NAME, POSTAL_CODE
from schemas.reasons import AWAITED, CHANGED, REFUSED, STANDING
from schemas.settings import Portfolio
from tests.builders import portal_rows
from tests.night import issuer

TODAY = date(2026, 11, 20)
ROW = {
    CUID: pl.String,
    "last_4": pl.String,
    "expiration": pl.String,
    "name_check": pl.UInt32,
    "address_check": pl.UInt32,
    "reissue_check": pl.UInt32,
}


class Card(NamedTuple):
    """What an extract says of a card."""

    cuid: str
    last_4: str
    expiration: str
    name: int
    address: int
    reissue: int | None = None


class Tried(NamedTuple):
    """One attempt at a card: as it was sent, and what came of it."""

    card: Card
    state: str
    ends: date | None


cards = st.builds(
    Card,
    st.sampled_from(["a", "b"]),
    st.sampled_from(["1111", "4242"]),
    st.sampled_from(["2712", "2812", "3012"]),
    st.integers(1, 2),
    st.integers(1, 2),
    st.none(),
)
ends = st.integers(-5, 40).map(lambda days: TODAY + timedelta(days))
tried = st.one_of(
    st.builds(Tried, cards, st.just("linked"), ends),
    st.builds(Tried, cards, st.sampled_from(["error", "awaiting"]), st.none()),
)
portfolios = st.builds(
    Portfolio,
    changes=st.lists(st.sampled_from(["name", "address", "expiration"]), unique=True).map(tuple),
    renew_within_days=st.integers(0, 30),
    resend_errors=st.booleans(),
)


def why_not(card: Card, attempts: list[Tried], portfolio: Portfolio) -> str | None:
    """Say in plain Python why a card is not sent."""
    mine = [one for one in attempts if one.card[:2] == card[:2]]
    if not mine:
        return None
    expirations = sorted({one.card.expiration for one in mine})
    same = card.expiration if card.expiration in expirations else expirations[0]
    tries = [one for one in mine if one.card.expiration == same]
    refused_row = tries[-1].card if tries[-1].state == "error" else None
    if any(one.state == "awaiting" for one in tries):
        return AWAITED
    if all(is_change(card, known, portfolio) for known in (linked_as(tries), tries[-1].card)):
        return None
    until = max((one.ends for one in tries if one.ends), default=None)
    if until and until > TODAY + timedelta(days=portfolio.renew_within_days):
        return STANDING
    if refused_row is None or portfolio.resend_errors:
        return None
    return None if is_change(card, refused_row, portfolio) else REFUSED


def linked_as(tries: list[Tried]) -> Card:
    """Return the card as it last got a link; as it was last tried where it has none."""
    return next((one.card for one in reversed(tries) if one.state == "linked"), tries[-1].card)


def is_change(card: Card, known: Card, portfolio: Portfolio) -> bool:
    """Say whether a card is another than a known one, in what a portfolio calls a change."""
    return any(getattr(card, name) != getattr(known, name) for name in portfolio.changes)


def of(portfolio: Portfolio, as_of: date = TODAY) -> ResendPolicy:
    return resend_policy(issuer(full_portfolio=True, portfolio=portfolio), as_of)


def frame(attempts: list[Tried]) -> pl.DataFrame:
    """Return attempts as a book has them, in order."""
    rows = [
        (card.cuid, card.last_4, card.expiration, state, end, card.name, card.address, card.reissue)
        for card, state, end in attempts
    ]
    names = ["cuid", "last_4", "expiration", "state", "expires_on", *FINGERPRINTS]
    sent = pl.DataFrame(rows, {name: BOOKED[name] for name in names}, orient="row")
    identified = sent.with_columns(holder=holder(sent), twin=0, decided=False, as_of=TODAY)
    return shaped(identified, BOOKED)


def known(
    frames: list[pl.DataFrame], newest: date = date.min, today: date = date.min
) -> PriorState:
    """Return what a book of these attempts, run after run, says of its cards."""
    numbered = [
        attempts.with_columns(turn=pl.lit(turn, pl.Int32)) for turn, attempts in enumerate(frames)
    ]
    return prior_state(fold(in_order(numbered)), newest, today)


def asked(wanted: list[Card]) -> pl.DataFrame:
    return pl.DataFrame(wanted, ROW, orient="row")


@settings(deadline=None)
@given(st.lists(tried, max_size=12), st.lists(cards, max_size=6), portfolios, st.integers(0, 12))
def test_a_card_is_held_back_exactly_where_the_plain_rule_says_so(
    attempts: list[Tried], wanted: list[Card], portfolio: Portfolio, cut: int
) -> None:
    expected = [why_not(card, attempts, portfolio) for card in wanted]

    found = known([frame(attempts[:cut]), frame(attempts[cut:])]).suppressed(
        asked(wanted), TODAY, of(portfolio)
    )

    assert expected == found.to_list()


def why_seen(card: Card, attempts: list[Tried], changed: str) -> str | None:
    """Say in plain Python why a card is not sent outside of a portfolio."""
    same = [one for one in attempts if one.card[:3] == card[:3]]
    if card.reissue and any(one.card.reissue for one in same):
        same = [one for one in same if one.card.reissue == card.reissue]
    if not same:
        return None
    awaited = any(one.state == "awaiting" for one in same)
    alive = any(one.ends and one.ends >= TODAY for one in same)
    link = same[-1].card if awaited else linked_as(same)
    is_other = card[3:5] not in (link[3:5], same[-1].card[3:5])
    if is_other and (awaited or (alive and changed != "send")):
        return CHANGED
    if awaited:
        return AWAITED
    return STANDING if alive and not is_other else None


@settings(deadline=None)
@given(
    st.lists(tried, max_size=12),
    st.lists(cards, max_size=6),
    st.integers(0, 12),
    st.sampled_from([(None,), (1, 2, 3)]),
    st.sampled_from(["ask", "send", "hold"]),
)
def test_outside_a_portfolio_exactly_the_cards_that_have_or_await_a_link_are_held_back(
    attempts: list[Tried],
    wanted: list[Card],
    cut: int,
    reissues: tuple[int | None, ...],
    changed: str,
) -> None:
    def reissued(at: int, card: Card) -> Card:
        return card._replace(reissue=reissues[at % len(reissues)])

    attempts = [one._replace(card=reissued(at, one.card)) for at, one in enumerate(attempts)]
    wanted = [reissued(at, card) for at, card in enumerate(wanted)]

    found = known([frame(attempts[:cut]), frame(attempts[cut:])]).suppressed(
        asked(wanted), TODAY, resend_policy(issuer(resend={"changed": changed}), TODAY)
    )

    assert [why_seen(card, attempts, changed) for card in wanted] == found.to_list()


@pytest.mark.parametrize(
    ("last_day", "why"), [(-1, [None, None]), (0, [STANDING, None]), (1, [STANDING, STANDING])]
)
def test_a_link_holds_its_card_back_on_its_last_day_also_for_an_older_extract(
    last_day: int, why: list[str | None]
) -> None:
    card = Card("a", "4242", "2712", 1, 1)
    world = [frame([Tried(card, "linked", TODAY + timedelta(days=last_day))])]
    older = TODAY - timedelta(days=3)

    found = [
        known(world, today=today).suppressed(asked([card]), older, resend_policy(issuer(), older))
        for today in (TODAY, TODAY + timedelta(days=1))
    ]

    assert why == [verdicts.item() for verdicts in found]


@pytest.mark.parametrize(
    ("last_day", "why"), [(29, None), (30, None), (31, STANDING), (None, REFUSED)]
)
def test_a_portfolio_renews_a_link_up_to_so_many_days_before_its_end(
    last_day: int | None, why: str | None
) -> None:
    card = Card("a", "4242", "2712", 1, 1)
    state = "linked" if last_day is not None else "error"
    ends = TODAY + timedelta(days=last_day) if last_day is not None else None
    policy = of(Portfolio(renew_within_days=30, resend_errors=False))

    found = known([frame([Tried(card, state, ends)])]).suppressed(asked([card]), TODAY, policy)

    assert why == found.item()


def test_a_card_whose_cuid_we_generated_is_known_by_name_and_address() -> None:
    ours = Card("cl-0123456789ab-7", "4242", "2712", 1, 1)
    state = known([frame([Tried(ours, "awaiting", None)])])
    wanted = [
        ours._replace(cuid="cl-ba9876543210-3"),
        ours._replace(cuid="cl-ba9876543210-4", name=2),
    ]

    found = state.suppressed(asked(wanted), TODAY, resend_policy(issuer(), TODAY))

    assert [AWAITED, None] == found.to_list()


def test_a_card_without_a_reissue_mark_is_the_card_that_had_one() -> None:
    card = Card("a", "4242", "2712", 1, 1, 7)
    state = known(
        [
            frame(
                [
                    Tried(card, "awaiting", None),
                    Tried(card._replace(cuid="b", reissue=None), "awaiting", None),
                ]
            )
        ]
    )
    wanted = [card._replace(reissue=None), card._replace(cuid="b"), card._replace(reissue=8)]

    found = state.suppressed(asked(wanted), TODAY, resend_policy(issuer(), TODAY))

    assert [AWAITED, AWAITED, None] == found.to_list()


def test_of_several_issues_one_whose_reissue_mark_is_unknown_is_any_of_its_expiration() -> None:
    first = Card("a", "4242", "2712", 1, 1, 7)
    unknown = first._replace(expiration="2812", reissue=None)
    state = known([frame([Tried(first, "error", None), Tried(unknown, "awaiting", None)])])
    wanted = [unknown._replace(reissue=9), unknown._replace(expiration="3012")]

    found = state.suppressed(asked(wanted), TODAY, resend_policy(issuer(), TODAY))

    assert [AWAITED, None] == found.to_list()


def test_an_issue_that_none_of_several_is_stands_as_the_first_of_them() -> None:
    names, last_day = "abcdefgh", TODAY + timedelta(days=60)
    links = [
        Tried(Card(name, "4242", end, 1, 1), "linked", last_day)
        for name in names
        for end in ("2712", "2812")
    ]
    others = asked([Card(name, "4242", "3012", 1, 1) for name in names])

    found = known([frame(links)]).suppressed(others, TODAY, of(Portfolio(changes=())))

    assert [STANDING] * len(names) == found.to_list()


def test_a_row_whose_reissue_mark_is_unknown_is_held_back_where_any_issue_of_its_expiration_is() -> (
    None
):
    first = Card("a", "4242", "2712", 1, 1, 7)
    second = first._replace(reissue=8)
    state = known([frame([Tried(first, "error", None), Tried(second, "awaiting", None)])])
    rows = asked([first, second, first._replace(reissue=None)])

    found = state.suppressed(rows, TODAY, resend_policy(issuer(), TODAY))

    assert [None, AWAITED, AWAITED] == found.to_list()


def test_what_an_older_extract_says_otherwise_is_no_change() -> None:
    card = Card("a", "4242", "2712", 1, 1)
    world = [frame([Tried(card, "linked", TODAY + timedelta(days=60))])]
    moved = asked([card._replace(address=2)])
    late = TODAY - timedelta(days=1)

    found = [
        known(world, newest).suppressed(moved, late, of(Portfolio(), late)).to_list()
        for newest in (late, TODAY)
    ]

    assert [[None], [STANDING]] == found


def test_a_row_that_was_corrected_on_its_way_is_no_change_neither_as_it_was_nor_as_it_became() -> (
    None
):
    card = Card("a", "4242", "2712", 1, 1)
    ends = TODAY + timedelta(days=60)
    remediated = frame([Tried(card._replace(address=2), "linked", ends)]).with_columns(
        origin=pl.lit(7, pl.UInt32)
    )
    wanted = asked([card, card._replace(address=2), card._replace(address=3)])

    state = known([frame([Tried(card, "error", None)]), remediated])

    assert [STANDING, STANDING, None] == state.suppressed(wanted, TODAY, of(Portfolio())).to_list()


def test_what_a_later_night_sent_makes_an_earlier_correction_a_change_again() -> None:
    card = Card("a", "4242", "2712", 1, 1)
    ends = TODAY + timedelta(days=60)
    remediated = frame([Tried(card._replace(address=2), "linked", ends)]).with_columns(
        origin=pl.lit(7, pl.UInt32)
    )
    later = frame([Tried(card._replace(address=3), "linked", ends)])

    state = known([frame([Tried(card, "error", None)]), remediated, later])

    found = state.suppressed(
        asked([card._replace(address=2), card._replace(address=3)]), TODAY, of(Portfolio())
    )
    assert [None, STANDING] == found.to_list()


def test_the_checks_of_name_and_address_are_the_same_in_every_version() -> None:
    found = add_fingerprints(
        portal_rows({}, {FIRST_NAME: "Augusta"}, {ADDRESS1: "2 Main St"}, {POSTAL_CODE: None})
    )

    assert [
        (3726195952, 2956981497),
        (3387972635, 2956981497),
        (3726195952, 355966869),
        (3726195952, 1112311849),
    ] == found.select("name_check", "address_check").rows()


def test_a_column_that_moves_into_the_next_is_a_change() -> None:
    rows = portal_rows(
        {ADDRESS1: "1 Main", "service_card.address.address2": "St"}, {ADDRESS1: "1 Main St"}
    )

    first, second = add_fingerprints(rows)["address_check"]

    assert first != second


def test_a_card_costs_a_few_bytes() -> None:
    count = 100_000
    made = pl.DataFrame({"cuid": pl.int_range(count, eager=True).cast(pl.String)}).with_columns(
        last_4=pl.lit("4242"), expiration=pl.lit("2712"), state=pl.lit("linked"), expires_on=TODAY,
        origin=None, twin=0, decided=False, name_check=pl.lit(1), address_check=pl.lit(2), reissue_check=None,
    )  # fmt: skip

    state = known([shaped(made.with_columns(holder="cuid", twin=0, decided=False), BOOKED)])

    assert count == len(state)
    assert 30 > (state._cards.nbytes + state._facts.estimated_size()) / count


def test_a_row_that_is_as_its_link_again_is_held_back_while_that_lasts_then_sent() -> None:
    card = Card("a", "4242", "2712", 1, 1)
    refused = Tried(card._replace(name=2), "error", None)
    portfolio = Portfolio(changes=("name",), renew_within_days=0, resend_errors=False)
    wanted = asked([card, refused.card])

    found = [
        known([frame([Tried(card, "linked", ends), refused])])
        .suppressed(wanted, TODAY, of(portfolio))
        .to_list()
        for ends in (TODAY + timedelta(days=1), TODAY)
    ]

    assert [[STANDING, STANDING], [None, REFUSED]] == found
