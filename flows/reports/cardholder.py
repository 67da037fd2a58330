"""What happened to each row of one cardholder, in every run, as its ledger and its results say."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, NamedTuple

from schemas import ledger
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.records import Outcome, SingleAnswered, SingleAsked

CANCELLED = "cancelled"
SINGLE = "single"
UNSENT = "not taken"  # a single link whose request the service did not accept
_SINGLES: dict[Outcome, str] = {"linked": LINKED, "refused": ERROR, "unsent": UNSENT}

# what an attempt takes from its ledger record, and from its reconciled row
_RECORDED = ("row", "last_4", "expiration", "chunk", "position")
_RECONCILED = ("expires_on", "url", "result", "trouble", "how", "message")


class Attempt(NamedTuple):
    """One row of the cardholder in one run: where it went and what came of it.

    `state` is linked, error or awaiting for a row that was sent, else its fate; `sent` is the state
    of its chunk in the outbox, or SINGLE; `row` is 0 where the fields were typed in. `reasons` are
    codes, the partner's where it answered, else ours.
    """

    at: datetime  # of the commit
    issuer: str
    run: str
    row: int = 0
    last_4: str | None = None
    expiration: str | None = None  # YYMM
    state: str = ""
    chunk: int | None = None
    position: int | None = None
    sent: str = ""
    expires_on: date | None = None
    url: str | None = None
    result: str | None = None
    trouble: str | None = None  # the break of its answer, where that settled nothing
    how: str | None = None
    message: str | None = None
    reasons: tuple[str, ...] = ()
    origin: str = ""  # the run and row this one repeats


def attempt_of(
    shared: Attempt, record: Mapping[str, Any], result: Mapping[str, Any], chunk_state: str
) -> Attempt:
    """Return the attempt of one ledger record.

    `shared` is what its whole run shares; `result` its reconciled row, empty without a report;
    `chunk_state` the state of its chunk in the outbox.
    """
    state = _state_of(record, result, chunk_state)
    refused = result if state == ERROR else record
    origin = record["origin"]
    facts: dict[str, Any] = {name: record[name] for name in _RECORDED}
    facts |= {name: result.get(name) for name in _RECONCILED}
    return shared._replace(
        **facts,
        state=state,
        sent=chunk_state,
        reasons=tuple(text.rpartition("|")[2] for text in refused["reasons"] or ()),
        origin=f"{shared.origin} row {origin}" if origin else "",
    )


def _state_of(record: Mapping[str, Any], result: Mapping[str, Any], chunk_state: str) -> str:
    """Return what became of a row: its fate, or what came of it where it was sent."""
    fate: str = record["fate"]
    if fate != ledger.SUBMITTED:
        return fate
    state = result.get("state") or AWAITING
    if state == AWAITING and chunk_state == CANCELLED:
        return CANCELLED
    return state


def single_attempt(shared: Attempt, request: SingleAsked, answer: SingleAnswered | None) -> Attempt:
    """Return the attempt of a single link; without an answer its outcome is unknown."""
    attempt = shared._replace(
        at=request.at,
        row=request.row or 0,
        last_4=request.last_4,
        expiration=request.expiration,
        state=AWAITING,
        sent=SINGLE,
    )
    if answer is None:
        return attempt
    return attempt._replace(
        state=_SINGLES[answer.outcome],
        url=answer.url,
        expires_on=answer.expires_on,
        message=answer.message or None,
        reasons=answer.reasons,
    )
