"""Where a card stands on a day: a table of states, the first that holds counts.

A link that can be opened counts before anything else, then an answer that is awaited, then the last
attempt. So a link ends, and its card is `expired`, without anything being written.

`Book.cards` (`book.py`) goes on from there: how far a card with a link came (`stages.py`), who has
left (`departures.py`), and who is given up (`given_up.py`), the last of which counts before all.
"""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Literal, NamedTuple

import polars as pl

from flows.book.attempts import ATTEMPT, CANCELLED, CHANGES, SINGLE
from flows.book.fold import Folded, is_changed, is_not_replaced, is_not_updated
from flows.book.issues import NO_DAYS, is_newest
from flows.book.kept_links import NONE_KEPT
from flows.runs.cards import CARD_WITHOUT_TWIN, is_among, last_day
from schemas.actions import FIX, NOTHING, RESUBMIT
from schemas.actions import NOT_ELIGIBLE as NOT_WORK
from schemas.ledger import AWAITING, ERROR, LINKED, REJECTED
from schemas.reasons import EXCLUDED_SINCE, NOT_ELIGIBLES, SET_ASIDE, reason

Who = Literal["operator", "partner", "issuer", ""]


class State(NamedTuple):
    """A state of a card: what it means, and who acts; "" where nobody has to."""

    name: str
    meaning: str
    who: Who | None  # None: as the reason of its last refusal says


NOT_SENT = State("not sent", "we refused its row, with our reason", None)
NOT_ELIGIBLE = State(
    "not eligible",
    "we did not send its row: it is not eligible for a link, or [status] leaves it out",
    "",
)
CANCELLED_CHUNK = State("cancelled", "its chunk was cancelled before the upload", "operator")
LOST = State("lost", "an operator decided that no usable answer comes", "operator")
ON_HOLD = State("on hold", "its chunk is on hold in the outbox", "operator")
TO_UPLOAD = State("to upload", "its chunk waits for the upload", "operator")
UNSETTLED = State("unsettled", "an answer came that does not count: a break", "operator")
UNKNOWN = State("unknown", "a single link was requested, with unknown outcome", "operator")
AWAITED = State("awaiting", "it was sent, and the answer is awaited", "partner")
REFUSED = State("refused", "the partner refused it, with a reason", None)
EXPIRED = State("expired", "its link ended, and no other came", "operator")
CHANGED_SINCE = State(
    "changed", "it has a link, but its name or address has changed since", "operator"
)
NOT_REPLACED = State(
    "not replaced", "it has a link, but the row that was to replace it was refused", "operator"
)
NOT_UPDATED = State("not updated", "it has a link, but we refused a newer row of it", "issuer")
HAS_LINK = State("linked", "it has a link that can be opened", "")
DELIVERED = State("delivered", "its link is in a delivery", "")
OPENED = State("opened", "its link was opened, as the partner says", "")
AUTHENTICATED = State(
    "authenticated", "its cardholder signed in to a merchant site, as the partner says", ""
)
FAILED = State(
    "failed", "its placement failed, as the partner says; its link can be used again", ""
)
PLACED = State("placed", "the card is placed; its link may have ended since", "")
GIVEN_UP = State("given up", "an operator decided that it needs no link", "")
LEFT = State(
    "left",
    "the issuer's extracts do not name it any more, mark it as deleted, or leave it out of a full "
    "portfolio by [status]",
    "",
)
# Most urgent first: a cardholder is in the most urgent state of its cards (`people.py`).
STATES = (
    LOST,
    UNSETTLED,
    UNKNOWN,
    CANCELLED_CHUNK,
    ON_HOLD,
    TO_UPLOAD,
    EXPIRED,
    REFUSED,
    AWAITED,
    NOT_SENT,
    CHANGED_SINCE,
    NOT_REPLACED,
    NOT_UPDATED,
    HAS_LINK,
    DELIVERED,
    OPENED,
    AUTHENTICATED,
    FAILED,
    PLACED,
    NOT_ELIGIBLE,
    GIVEN_UP,
    LEFT,
)
# a link that can be opened, and is still needed
USABLE = (
    *(HAS_LINK, CHANGED_SINCE, NOT_REPLACED, NOT_UPDATED),
    *(DELIVERED, OPENED, AUTHENTICATED, FAILED),
)
SERVED = (*USABLE, PLACED)  # the cardholder has a link, or needs none because the card is placed
# a card with which only another sending can do something
_TO_SEND = (EXPIRED, LOST, CANCELLED_CHUNK, REFUSED, CHANGED_SINCE, NOT_REPLACED, NOT_UPDATED)
BY_NAME = {state.name: state for state in STATES}
NAMES = pl.Enum([state.name for state in STATES])
_ACTORS: dict[str, Who] = {
    FIX: "issuer",
    RESUBMIT: "operator",
    NOTHING: "",
    NOT_WORK: "",
}  # else the partner
BLOCK = 100_000  # cards at once
_NEEDS_NONE = (*NOT_ELIGIBLES, *SET_ASIDE)  # reasons of rows that we do not send
_WAITING = {"held": ON_HOLD, "waiting": TO_UPLOAD, SINGLE: UNKNOWN}  # by what an attempt waits for


def standing(
    folded: Folded,
    today: date,
    kept: pl.DataFrame = NONE_KEPT,
    days: Mapping[int, date] = NO_DAYS,
) -> pl.DataFrame:
    """Return where each issue of each card stands on a day.

    `kept`: the links that stay as they are, by an operator's decision (KEPT). `days`: the business
    dates of extracts (`flows/book/issues.py`).

    Columns: those of the attempt that decides (ATTEMPT, with `tries` and `sendings` of all its
    attempts), `standing` (NAMES), `since` when, where that is known, `who` acts, `until` and
    `linked_at` (end of its last link, and when it came), `first` (the business date of its first
    attempt), `current`: it is the newest issue of its card, and `action`, what its reason asks for.
    """
    link = folded.attempt("link", "expires_on", "since")
    until = link["expires_on"]
    alive = (until >= today).fill_null(value=False)
    places = folded.places
    decisive = (
        places.with_columns(alive=alive)
        .select(pl.when("alive").then("link").otherwise(pl.coalesce("waiting", "last")))
        .to_series()
    )
    attempts = folded.attempts[decisive] if folded.attempts.height else folded.attempts
    first = folded.attempts["as_of"][places["first"]] if places.height else folded.attempts["as_of"]
    cards = attempts.drop("tries", "sendings").with_columns(
        places["tries"],
        places["sendings"],
        until.alias("until"),
        first.alias("first"),
        link["since"].alias("linked_at"),
        changed=is_changed(folded, kept),
        not_replaced=is_not_replaced(folded, kept),
        not_updated=is_not_updated(folded, kept),
    )
    named = cards.with_columns(_state(today).alias("standing"))
    is_expired = pl.col("standing") == EXPIRED.name
    ended = (pl.col("until") + timedelta(days=1)).cast(ATTEMPT["since"])
    named = named.with_columns(since=pl.when(is_expired).then(ended).otherwise("since"))
    who = _with_who(_with_refusals(named, folded)).with_columns(_nobody_for_ended_cards(today))
    current = is_newest(folded, who, days)
    return who.with_columns(current=current).drop("changed", "not_replaced", "not_updated")


def _with_refusals(cards: pl.DataFrame, folded: Folded) -> pl.DataFrame:
    """Return cards, those whose link is not replaced or updated with the reason of that row."""
    for state, place in ((NOT_REPLACED, "last"), (NOT_UPDATED, "row")):
        is_in_state = cards["standing"] == state.name
        if is_in_state.any():
            refused = Folded(folded.attempts, folded.places.filter(is_in_state))
            reasons = refused.attempt(place, "reason").to_series()
            reason = cards["reason"].scatter(is_in_state.arg_true(), reasons)
            cards = cards.with_columns(reason)
    return cards


def _nobody_for_ended_cards(today: date) -> pl.Expr:
    """Return `who` acts: nobody where a card would have to be sent again and has expired."""
    is_to_send = pl.col("standing").cast(pl.String).is_in([state.name for state in _TO_SEND])
    is_over = is_to_send & (last_day() < today).fill_null(value=False)
    return pl.when(is_over).then(pl.lit("")).otherwise("who").alias("who")


def with_state(cards: pl.DataFrame, state: State, of: pl.DataFrame) -> pl.DataFrame:
    """Return cards (`standing`), those in `of` (holder, last_4) in a state in which nobody acts."""
    if of.is_empty():
        return cards
    is_of = is_among(cards, of, CARD_WITHOUT_TWIN)
    return cards.with_columns(
        standing=pl.when(is_of).then(pl.lit(state.name, NAMES)).otherwise("standing"),
        who=pl.when(is_of).then(pl.lit(state.who)).otherwise("who"),
        action=pl.when(~is_of).then("action"),
    )


def with_excluded(cards: pl.DataFrame, of: pl.DataFrame) -> pl.DataFrame:
    """Return cards (`standing`), where nobody acts about those in `of` (holder, last_4) with which
    only another row or sending could do something: `[status]` leaves them out.
    """
    if of.is_empty():
        return cards
    to_send = [state.name for state in (*_TO_SEND, NOT_SENT)]
    is_over = pl.col("standing").cast(pl.String).is_in(to_send)
    is_over &= pl.lit(is_among(cards, of, CARD_WITHOUT_TWIN))
    return cards.with_columns(
        who=pl.when(is_over).then(pl.lit("")).otherwise("who"),
        reason=pl.when(is_over).then(pl.lit(EXCLUDED_SINCE)).otherwise("reason"),
        action=pl.when(is_over).then(pl.lit(NOTHING)).otherwise("action"),
    )


def _state(today: date) -> pl.Expr:
    """Return the state that the attempt which decides gives its card."""
    state = pl.col("state")
    is_ended = (pl.col("expires_on") < today).fill_null(value=False)
    table = [
        ((state == LINKED) & ~is_ended & pl.col("changed"), CHANGED_SINCE),
        ((state == LINKED) & ~is_ended & pl.col("not_replaced"), NOT_REPLACED),
        ((state == LINKED) & ~is_ended & pl.col("not_updated"), NOT_UPDATED),
        ((state == LINKED) & ~is_ended, HAS_LINK),
        (state == LINKED, EXPIRED),
        ((state == AWAITING) & pl.col("trouble").is_not_null(), UNSETTLED),
        *(((state == AWAITING) & (pl.col("wait") == wait), of) for wait, of in _WAITING.items()),
        (state == AWAITING, AWAITED),
        ((state == ERROR) & pl.col("decided"), LOST),
        (state == ERROR, REFUSED),
        (state == CANCELLED, CANCELLED_CHUNK),
        ((state == REJECTED) & pl.col("reason").is_in(_NEEDS_NONE), NOT_ELIGIBLE),
        (state.is_in([REJECTED, *CHANGES]), NOT_SENT),
    ]
    result = pl.lit(None, NAMES)
    for condition, named in reversed(table):
        result = pl.when(condition).then(pl.lit(named.name, NAMES)).otherwise(result)
    return result


def actor_of(code: str) -> Who:
    """Return who has to act about a refusal with that reason; "" where nobody has to."""
    return _ACTORS.get(reason(code).action, "partner")


def _with_who(cards: pl.DataFrame) -> pl.DataFrame:
    """Add `who` acts, and the `action` of the reason where that decides it.

    By blocks: the texts that both are chosen from would be the peak of the memory of all cards.
    """
    columns = cards.select("standing", "reason")
    blocks = [_who(block) for block in columns.iter_slices(BLOCK)]
    nobody = pl.DataFrame(schema={"who": pl.String, "action": pl.String})
    return cards.with_columns(pl.concat([nobody, *blocks], rechunk=True).get_columns())


def _who(cards: pl.DataFrame) -> pl.DataFrame:
    codes = cards["reason"].drop_nulls().unique()
    actions = {code: reason(code).action for code in codes}
    by_reason = {code: actor_of(code) for code in codes}
    by_state = {state.name: state.who for state in STATES if state.who is not None}
    state = pl.col("standing")
    own = state.replace_strict(by_state, default=None, return_dtype=pl.String)
    code = pl.col("reason")
    of_reason = code.replace_strict(by_reason, default=None, return_dtype=pl.String)
    action = code.replace_strict(actions, default=None, return_dtype=pl.String)
    return cards.select(who=pl.coalesce(own, of_reason, pl.lit("partner")), action=action)
