"""Where each card of one cardholder stands, as the book has it, and what to do next."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

import polars as pl

from flows.book.book import Book
from flows.book.people import counted_cards
from flows.book.standing import (
    AUTHENTICATED,
    AWAITED,
    BY_NAME,
    CANCELLED_CHUNK,
    CHANGED_SINCE,
    DELIVERED,
    EXPIRED,
    FAILED,
    HAS_LINK,
    LOST,
    NOT_ELIGIBLE,
    NOT_REPLACED,
    NOT_SENT,
    NOT_UPDATED,
    ON_HOLD,
    OPENED,
    PLACED,
    REFUSED,
    TO_UPLOAD,
    USABLE,
)
from flows.reports.cardholder import CANCELLED, SINGLE, UNSENT, Attempt
from flows.steps import FILE, FOLDER, WHY, Sentence, Slot, Step, Text, joined
from schemas import ledger
from schemas.actions import FIX, NOTHING, RESUBMIT
from schemas.breaks import KINDS
from schemas.ledger import AWAITING
from schemas.reasons import reason

SOON = 14  # days before its expiry in which a link is worth renewing


def advice(template: str, step: Step, **values: str) -> Sentence:
    """Return what to do, and the command for it."""
    return Sentence(f"{template}: {{step:bare}}", step=step, **values)


# status and next step of a row without an answer, by the state of its chunk in the outbox
_WAITS = {
    "waiting": (
        "waits for its upload",
        advice("upload it", Step("upload", Slot("run"), Slot("chunk"), to=FOLDER)),
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
        Sentence(
            "{step:bare}",
            step=Step("resubmit", Slot("run"), missing=True, reason=WHY, dry_run=True),
        ),
    ),
    SINGLE: (
        "was requested as a single link, with unknown outcome",
        Sentence("ask the partner before requesting it again"),
    ),
}
_REFUSALS = {
    REFUSED.name: "was refused by the partner",
    NOT_SENT.name: "was refused by us",
    LOST.name: "has no usable answer, as an operator decided",
    CANCELLED_CHUNK.name: "was not sent: its chunk was cancelled",
}
# of a card that no run has sent or refused, which the book does not have
_UNKNOWN = {
    ledger.DUPLICATE: "is a duplicate in its extract",
    ledger.SUPPRESSED: "was not sent",
    UNSENT: "was not requested: the service did not accept the request",
}
_USABLE = [state.name for state in USABLE]
# why a renewal leaves a card out, null where it does not, by last four; of cards whose link ends
# soon or has ended
Renewals = Mapping[str | None, str | None]


# states that begin with what the row that decides says, so that its moment is theirs; that of the
# others is of an upload or a link before them
_OF_ITS_ROW = frozenset(
    state.name
    for state in (
        *(HAS_LINK, DELIVERED, OPENED, AUTHENTICATED, FAILED, PLACED),
        *(AWAITED, TO_UPLOAD, REFUSED, EXPIRED),
    )
)
_NOT_UPLOADED = (ON_HOLD.name, TO_UPLOAD.name)


class CardStatus(NamedTuple):
    """Where one card stands, in words and as the book has it, and what to do next.

    `since` when, where that is known; by which `run` (none where the fields were typed in) and
    `row`, through which `channel` (file or single); how often it was tried and sent; `who` acts.
    """

    issuer: str
    last_4: str | None
    expiration: str | None
    stands: str
    then: Text = ""
    standing: str = ""
    since: datetime | None = None
    run: str = ""
    row: int | None = None
    channel: str | None = None
    tries: int = 0
    sendings: int = 0
    who: str = ""

    @property
    def origin(self) -> str:
        """By which row the card stands there, of when, and how often it was tried."""
        row = f"{self.run} row {self.row}" if self.run else "fields that were typed in"
        channel = "a single link" if self.channel == SINGLE else "a file"
        sent = self.sendings - (self.standing in _NOT_UPLOADED)
        tries = f"attempts: {self.tries:,}, sent: {sent:,}"
        moment = f"{self.since:%Y-%m-%d %H:%M}" if self.since else ""
        if moment and self.standing in _OF_ITS_ROW:
            return f"{self.standing}: since {moment}, by {row}, through {channel}; {tries}"
        row += f" of {moment}" if moment else ""
        return f"{self.standing}: by {row}, through {channel}; {tries}"

    @property
    def facts(self) -> dict[str, Any]:
        """The status as plain facts."""
        return {**self._asdict(), "then": str(self.then)}


def card_statuses(
    book: Book,
    cuid: str,
    attempts: Sequence[Attempt],
    today: date,
    renewals: Renewals | None = None,
) -> list[CardStatus]:
    """Return the status of every card of a cardholder, each in its newest issue.

    `attempts`: those of the ledgers, which also name cards that no run has sent or refused. Without
    `renewals`, every link that ends can be renewed.
    """
    named = book.attempts.filter(pl.col("cuid") == cuid)["holder"].drop_nulls().unique()
    cards = counted_cards(book.cards(today)).filter(pl.col("holder").is_in(named.implode()))
    twice = book.active_twice(today).filter(pl.col("cuid") == cuid)
    runs = {(last_4, expiration): text for _, last_4, expiration, text in twice.iter_rows()}
    terms = _Terms(book.issuer, today, renewals, runs)
    statuses = [_status(terms, card) for card in cards.iter_rows(named=True)]
    return [*statuses, *_unknown(book, named, attempts)]


class _Terms(NamedTuple):
    """What the statuses of a cardholder's cards have in common.

    `runs`: those in which a card is active, where there are several, by last four and expiration.
    """

    issuer: str
    today: date
    renewals: Renewals | None
    runs: Mapping[tuple[str, str], str]


def _status(terms: _Terms, card: Mapping[str, Any]) -> CardStatus:
    stands, then = _words(terms, card)
    active = terms.runs.get((card["last_4"], card["expiration"]), "").split()
    if active:
        stands += f"; it is active in {len(active)} runs: {', '.join(active)}"
    shared = {name: card[name] for name in CardStatus._fields if name in card}
    return CardStatus(issuer=terms.issuer, stands=stands, then=then, **shared)


def _words(terms: _Terms, card: Mapping[str, Any]) -> tuple[str, Text]:
    """Return where a card stands in words, and what to do next."""
    standing = card["standing"]
    if standing in _USABLE:
        return _link(terms, card)
    if standing == PLACED.name:
        return "is placed" + (f" since {card['placed_on']}" if card["placed_on"] else ""), ""
    if standing == EXPIRED.name:
        return f"its link expired on {card['until']}", _renewal("to send a new link", terms, card)
    if standing in _REFUSALS:
        code = f": {card['reason']}" if card["reason"] else ""
        return _REFUSALS[standing] + code, _next_step(terms.issuer, card)
    if card["state"] == AWAITING and BY_NAME[standing].who:
        return waits(card["wait"], card["trouble"], card["run"], terms.issuer, card["chunk"])
    code = f" ({card['reason']})" if standing == NOT_ELIGIBLE.name else ""
    return f"is {standing}: {BY_NAME[standing].meaning}{code}", ""


def _link(terms: _Terms, card: Mapping[str, Any]) -> tuple[str, Text]:
    """Return status and next step of a card with a link that can be opened."""
    until = card["until"]
    came = "" if card["standing"] == HAS_LINK.name else f", which is {card['standing']}"
    if card["standing"] == OPENED.name and card["since"] is not None:
        came = f", which was seen opened on {card['since']:%Y-%m-%d}"
    if card["standing"] == AUTHENTICATED.name:
        came = "; its cardholder signed in to a merchant site"
    if card["standing"] == FAILED.name:
        came = f"; placing the card failed: {card['failed']}"
    then: Text = ""
    if card["standing"] == CHANGED_SINCE.name:
        came = "; its name or address has changed since"
        then = _keep_or_replace("to send all that have changed", terms, card, changed=True)
    if card["standing"] == NOT_REPLACED.name:
        came = f"; the row that was to replace it was refused: {card['reason']}"
        then = _keep_or_replace("to send all such rows again", terms, card, replacing=True)
    if card["standing"] == NOT_UPDATED.name:
        came = f"; we refused a newer row of it: {card['reason']}"
        then = Sentence(
            "to keep this link: {keep}; to let the issuer correct all such rows: {corrections}",
            keep=Step("mend keep-link", terms.issuer, cuid=card["cuid"], refused=True, reason=WHY),
            corrections=Step("corrections", terms.issuer, to=FILE),
        )
    if (until - terms.today).days <= SOON:
        then = _renewal("it expires soon", terms, card)
    return f"has a link until {until}{came}", then


def _keep_or_replace(
    purpose: str, terms: _Terms, card: Mapping[str, Any], **which: bool
) -> Sentence:
    """Return how the link is kept as it is, and how all links like it are replaced."""
    return Sentence(
        f"to keep this link: {{keep}}; {purpose}: {{resubmit}}",
        keep=Step("mend keep-link", terms.issuer, cuid=card["cuid"], **which, reason=WHY),
        resubmit=Step("resubmit", terms.issuer, **which, reason=WHY, dry_run=True),
    )


def _renewal(purpose: str, terms: _Terms, card: Mapping[str, Any]) -> Text:
    """Return how a link that ends is renewed, or why it is not; "" where it is replaced already."""
    renewals = terms.renewals
    why = renewals.get(card["last_4"]) if renewals is not None else None
    if why is not None:
        accepted = reason(why).hint
        template = "a renewal leaves it out, {why}; accepted: {accepted}"
        return Sentence(template, why=why, accepted=accepted)
    if renewals is not None and card["last_4"] not in renewals:
        return ""
    return advice(purpose, Step("renew", terms.issuer, dry_run=True))


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


def _next_step(issuer: str, card: Mapping[str, Any]) -> Text:
    """Return the action of a refusal's reason, and the command that sends the row."""
    run = card["run"]
    retry = Step("link", issuer, prompt=True)
    if run:
        retry = Step("resubmit", run, row=card["row"], reason=WHY)
    known = reason(card["reason"] or "")
    action = known.action
    if action == RESUBMIT or card["standing"] == CANCELLED_CHUNK.name:
        return advice("send it again as it is", retry)
    if action == FIX:
        hint = f" ({known.hint})" if known.hint else ""
        return advice("fix it at the source{hint}, then", retry, hint=hint)
    if action == NOTHING:
        return ""
    return f"{action}, naming {run}, chunk {card['chunk']}" if card["chunk"] else action


def _unknown(book: Book, holders: pl.Series, attempts: Sequence[Attempt]) -> Iterator[CardStatus]:
    """Yield the cards that the book does not have, by what last happened to each."""
    known = book.attempts.filter(pl.col("holder").is_in(holders.implode()))
    last_fours = set(known["last_4"])
    last = {attempt.last_4: attempt for attempt in attempts if attempt.last_4 not in last_fours}
    for attempt in last.values():
        if attempt.state not in _UNKNOWN:
            continue
        codes = f": {', '.join(attempt.reasons)}" if attempt.reasons else ""
        then: Text = ""
        if attempt.state == UNSENT:
            retry = Step("link", attempt.issuer, prompt=True)
            then = advice("send it again as it is", retry)
        yield CardStatus(
            attempt.issuer,
            attempt.last_4,
            attempt.expiration,
            f"{_UNKNOWN[attempt.state]}{codes}",
            then,
            run=attempt.run,
            row=attempt.row,
        )
