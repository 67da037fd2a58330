"""One cardholder: what happened to each row, the status of every card, and what to do next."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

from flows.runs.outcomes import DECISION
from flows.steps import FOLDER, WHY, Sentence, Slot, Step, Text, joined
from schemas import ledger
from schemas.actions import FIX, NOTHING, RESUBMIT
from schemas.breaks import KINDS
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.reasons import reason
from schemas.records import Outcome, SingleAnswered, SingleAsked

CANCELLED = "cancelled"
SINGLE = "single"
UNSENT = "not taken"  # a single link whose request the service did not accept
SOON = 14  # days before its expiry in which a link is worth renewing


def advice(template: str, step: Step, **values: str) -> Sentence:
    """Return what to do, and the command for it."""
    return Sentence(f"{template}: {{step:bare}}", step=step, **values)


# status and next step of a row without an answer, by the state of its chunk in the outbox
_WAITS = {
    "waiting": (
        "waits for its upload",
        advice("upload it", Step("outbox fetch", Slot("run"), Slot("chunk"), to=FOLDER)),
    ),
    "held": (
        "is on hold with its chunk",
        advice("to release it", Step("outbox release", Slot("run"), Slot("chunk"), reason=WHY)),
    ),
    "uploaded": (
        "was uploaded and has no answer yet",
        advice("fetch the result of chunk {chunk}, then", Step("ingest", Slot("issuer"))),
    ),
    "answered": (
        "has no answer in its chunk's result",
        advice("ask the partner for it; the breaks", Step("report", Slot("run"))),
    ),
    CANCELLED: (
        "was not sent: its chunk was cancelled",
        Sentence("{step:bare}", step=Step("resubmit", Slot("run"), missing=True, reason=WHY)),
    ),
    SINGLE: (
        "was requested as a single link, with unknown outcome",
        Sentence("ask the partner before requesting it again"),
    ),
}
_WORDS = {
    ERROR: "was refused by the partner",
    ledger.REJECTED: "was refused by us",
    ledger.DUPLICATE: "is a duplicate in its extract",
    ledger.SUPPRESSED: "was not sent",
    CANCELLED: "was not sent: its chunk was cancelled",
    UNSENT: "was not requested: the service did not accept the request",
}
_SINGLES: dict[Outcome, str] = {"linked": LINKED, "refused": ERROR, "unsent": UNSENT}

# what an attempt takes from its ledger record, and from its reconciled row
_RECORDED = ("row", "last_4", "expiration", "chunk", "position")
_RECONCILED = ("expires_on", "url", "result", "trouble", "how", "message")
# what decides nothing about a card
_NO_DECISION = (ledger.SUPPRESSED, ledger.DUPLICATE, CANCELLED, UNSENT)


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

    def active(self, today: date) -> bool:
        """True where it gave a link that can still be opened."""
        return self.state == LINKED and (self.expires_on is None or self.expires_on >= today)


class CardStatus(NamedTuple):
    """The status of one card in words, and what to do next."""

    issuer: str
    last_4: str | None
    expiration: str | None
    stands: str
    then: Text

    @property
    def facts(self) -> dict[str, Any]:
        """The status as plain facts."""
        return {**self._asdict(), "then": str(self.then)}


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


# why a renewal leaves a card out, null where it does not, by issuer and last four; of cards whose
# link ends soon or has ended
Renewals = Mapping[tuple[str, str | None], str | None]


def card_statuses(
    attempts: Sequence[Attempt], today: date, renewals: Renewals | None = None
) -> list[CardStatus]:
    """Return the status of every card.

    The active link that lasts longest gives it, else what last happened to the card. Without
    `renewals`, every link that ends can be renewed.
    """
    cards: dict[tuple[str, str | None, str | None], list[Attempt]] = {}
    for attempt in attempts:
        card = (attempt.issuer, attempt.last_4, attempt.expiration)
        cards.setdefault(card, []).append(attempt)
    return [_card_status(of_card, today, renewals) for of_card in cards.values()]


def _card_status(attempts: Sequence[Attempt], today: date, renewals: Renewals | None) -> CardStatus:
    decisive = _decisive_attempt(attempts, today)
    if decisive.active(today):
        status, then = _link_status(decisive, today, renewals)
    else:
        status, then = _unlinked_status(decisive, renewals)
    runs = [
        attempt.run or "typed in"
        for attempt in attempts
        if attempt.active(today) or attempt.state == AWAITING
    ]
    runs = list(dict.fromkeys(runs))
    if len(runs) > 1:
        status += f"; it is active in {len(runs)} runs: {', '.join(runs)}"
    return CardStatus(decisive.issuer, decisive.last_4, decisive.expiration, status, then)


def _decisive_attempt(attempts: Sequence[Attempt], today: date) -> Attempt:
    """Return the attempt that gives the status of a card."""
    active = [attempt for attempt in attempts if attempt.active(today)]
    if active:
        return max(active, key=lambda attempt: attempt.expires_on or date.max)
    decisive = [attempt for attempt in attempts if attempt.state not in _NO_DECISION]
    return (decisive or attempts)[-1]


def _link_status(attempt: Attempt, today: date, renewals: Renewals | None) -> tuple[str, Text]:
    """Return status and next step of a card with a link that can be opened."""
    until = attempt.expires_on
    if until is None:
        return "has a link", ""
    then: Text = ""
    if (until - today).days <= SOON:
        then = _renewal("it expires soon", attempt, renewals)
    return f"has a link until {until}", then


def _unlinked_status(attempt: Attempt, renewals: Renewals | None) -> tuple[str, Text]:
    """Return status and next step of a card without a link that can be opened."""
    if attempt.state == LINKED:
        then = _renewal("to send a new link", attempt, renewals)
        return f"its link expired on {attempt.expires_on}", then
    if attempt.state == AWAITING:
        return waits(attempt.sent, attempt.trouble, attempt.run, attempt.issuer, attempt.chunk)
    status = _WORDS[attempt.state]
    if attempt.how == DECISION:
        status = "has no usable answer, as an operator decided"
    if attempt.reasons:
        status += f": {', '.join(attempt.reasons)}"
    return status, _next_step(attempt)


def _renewal(purpose: str, attempt: Attempt, renewals: Renewals | None) -> Text:
    """Return how a link that ends is renewed, or why it is not; "" where it is replaced already."""
    card = (attempt.issuer, attempt.last_4)
    why = renewals.get(card) if renewals is not None else None
    if why is not None:
        accepted = reason(why).hint
        template = "a renewal leaves it out, {why}; accepted: {accepted}"
        return Sentence(template, why=why, accepted=accepted)
    if renewals is not None and card not in renewals:
        return ""
    return advice(purpose, Step("renew", attempt.issuer))


def waits(
    sent: str, trouble: str | None, run: str, issuer: str, chunk: int | None
) -> tuple[str, Sentence]:
    """Return status and next step of a row without an answer that counts.

    `sent` is the state of its chunk; `trouble` the break of an answer that came.
    """
    status, then = _WAITS[sent]
    if trouble:
        kind = KINDS[trouble]
        meaning = kind.meaning[0].lower() + kind.meaning[1:].rstrip(".")
        status = f"has an answer that does not count: {meaning}"
        then = joined(kind.then, advice("The decisions", Step("report", Slot("run"))))
    return status, then.filled({"chunk": chunk, "run": run, "issuer": issuer})


def _next_step(attempt: Attempt) -> Text:
    """Return the action of the first reason that has one, and the command that sends the row."""
    entries = [entry for entry in map(reason, attempt.reasons) if entry.action != NOTHING]
    action = entries[0].action if entries else ""
    if action == RESUBMIT or attempt.state in (CANCELLED, UNSENT):
        return advice("send it again as it is", _retry_command(attempt))
    if action == FIX:
        hint = f" ({entries[0].hint})" if entries[0].hint else ""
        return advice("fix it at the source{hint}, then", _retry_command(attempt), hint=hint)
    if action and attempt.chunk:
        return f"{action}, naming {attempt.run}, chunk {attempt.chunk}"
    return action


def _retry_command(attempt: Attempt) -> Step:
    """Return the command that sends the row again, or requests its link anew."""
    if attempt.run:
        return Step("resubmit", attempt.run, row=attempt.row, reason=WHY)
    return Step("link", attempt.issuer, prompt=True)
