"""Trace one cardholder over all runs: what happened to each row, the status of every card, and what
to do next.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

import polars as pl

from flows.errors import OperatorError
from flows.runs.adapters import Adapters
from flows.runs.documents import read_ledger, read_manifest, read_rows, run_ids, without_ledger
from flows.runs.keys import RunId, RunKeys
from flows.runs.outbox import outbox
from flows.runs.outcomes import DECISION
from flows.runs.single_links import prompted_singles, singles
from flows.runs.store import ObjectMissingError, Store
from flows.runs.threads import concurrently
from schemas import ledger
from schemas.actions import FIX, NOTHING, RESUBMIT
from schemas.breaks import KINDS
from schemas.expressions import holds_card
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.manifest import LedgerPart
from schemas.reasons import reason
from schemas.records import Outcome, SingleAnswered, SingleAsked

CANCELLED = "cancelled"
SINGLE = "single"
UNSENT = "not taken"  # a single link whose request the service did not accept
SOON = 14  # days before its expiry in which a link is worth renewing
# status and next step of a row without an answer, by the state of its chunk in the outbox
_WAITS = {
    "waiting": (
        "waits for its upload",
        "upload it: cardlink outbox fetch {run} {chunk} --to FOLDER",
    ),
    "held": (
        "is on hold with its chunk",
        "to release it: cardlink outbox release {run} {chunk} --reason WHY",
    ),
    "uploaded": (
        "was uploaded and has no answer yet",
        "fetch the result of chunk {chunk}, then: cardlink ingest {issuer}",
    ),
    "answered": (
        "has no answer in its chunk's result",
        "ask the partner for it; the breaks: cardlink report {run}",
    ),
    CANCELLED: (
        "was not sent: its chunk was cancelled",
        "cardlink resubmit {run} --missing --reason WHY",
    ),
    SINGLE: (
        "was requested as a single link, with unknown outcome",
        "ask the partner before requesting it again",
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

RECORD = ["row", "cuid", "last_4", "expiration", "fate", "chunk", "position", "origin", "reasons"]


class Attempt(NamedTuple):
    """One row of the cardholder in one run: where it went and what came of it.

    `state` is linked, error or awaiting for a row that was sent, else its fate; `sent` is the state of its chunk in
    the outbox, or SINGLE; `row` is 0 where the fields were typed in. `reasons` are codes, the
    partner's where it answered, else ours.
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
    then: str


def attempt_of(
    reported: Attempt, record: Mapping[str, Any], came: Mapping[str, Any], chunk: str
) -> Attempt:
    """Return the attempt of one ledger record: `reported` is what its whole run shares, `came` the
    row's outcome.

    `came` is its reconciled row, empty without a report; `chunk` is the state of its chunk in the outbox.
    """
    state = (
        (came.get("state") or AWAITING) if record["fate"] == ledger.SUBMITTED else record["fate"]
    )
    reasons = (came if state == ERROR else record)["reasons"]
    known: dict[str, Any] = {
        name: record[name] for name in ("row", "last_4", "expiration", "chunk", "position")
    }
    known |= {
        name: came.get(name)
        for name in ("expires_on", "url", "result", "trouble", "how", "message")
    }
    return reported._replace(
        **known,
        state=CANCELLED if state == AWAITING and chunk == CANCELLED else state,
        sent=chunk,
        reasons=tuple(text.rpartition("|")[2] for text in reasons or ()),
        origin=f"{reported.origin} row {record['origin']}" if record["origin"] else "",
    )


def single_attempt(reported: Attempt, asked: SingleAsked, answer: SingleAnswered | None) -> Attempt:
    """Return the attempt of a single link; without an answer its outcome is unknown."""
    attempt = reported._replace(
        at=asked.at,
        row=asked.row or 0,
        last_4=asked.last_4,
        expiration=asked.expiration,
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


def card_statuses(attempts: Sequence[Attempt], today: date) -> list[CardStatus]:
    """Return the status of every card: by the active link that lasts longest, else by what last
    happened to it.
    """
    cards: dict[tuple[str, str | None, str | None], list[Attempt]] = {}
    for one in attempts:
        cards.setdefault((one.issuer, one.last_4, one.expiration), []).append(one)
    return [_card_status(found, today) for found in cards.values()]


def _card_status(found: Sequence[Attempt], today: date) -> CardStatus:
    active = [one for one in found if one.active(today)]
    decisive = [
        one
        for one in found
        if one.state not in (ledger.SUPPRESSED, ledger.DUPLICATE, CANCELLED, UNSENT)
    ]
    last = (
        max(active, key=lambda one: one.expires_on or date.max)
        if active
        else (decisive or found)[-1]
    )
    until, renew = last.expires_on, f"cardlink renew {last.issuer}"
    if active:
        status = f"has a link until {until}" if until else "has a link"
        then = f"it expires soon: {renew}" if until and (until - today).days <= SOON else ""
    elif last.state == LINKED:
        status, then = f"its link expired on {until}", f"to send a new link: {renew}"
    elif last.state == AWAITING:
        status, then = waits(last.sent, last.trouble, last.run, last.issuer, last.chunk)
    else:
        word = (
            "has no usable answer, as an operator decided"
            if last.how == DECISION
            else _WORDS[last.state]
        )
        status = word + (f": {', '.join(last.reasons)}" if last.reasons else "")
        then = _next_step(last)
    runs = list(
        dict.fromkeys(
            one.run or "typed in" for one in found if one.active(today) or one.state == AWAITING
        )
    )
    if len(runs) > 1:
        status += f"; it is active in {len(runs)} runs: {', '.join(runs)}"
    return CardStatus(last.issuer, last.last_4, last.expiration, status, then)


def waits(
    sent: str, trouble: str | None, run: str, issuer: str, chunk: int | None
) -> tuple[str, str]:
    """Return status and next step of a row without an answer that counts: `trouble` is the break of
    one that came.
    """
    status, then = _WAITS[sent]
    if trouble:
        kind = KINDS[trouble]
        status = f"has an answer that does not count: {kind.meaning[0].lower()}{kind.meaning[1:].rstrip('.')}"
        then = f"{kind.then} The decisions: cardlink report {{run}}"
    return status, then.format(chunk=chunk, run=run, issuer=issuer)


def _next_step(last: Attempt) -> str:
    """Return the action of the first reason that has one, and the command that sends the row
    again.
    """
    reported = next((one for one in map(reason, last.reasons) if one.action != NOTHING), None)
    typed = f"cardlink link {last.issuer} --prompt"
    again = f"cardlink resubmit {last.run} --row {last.row} --reason WHY" if last.run else typed
    if last.state in (CANCELLED, UNSENT) or (reported is not None and reported.action == RESUBMIT):
        return f"send it again as it is: {again}"
    if reported is None:
        return ""
    if reported.action == FIX:
        return (
            f"fix it at the source{f' ({reported.hint})' if reported.hint else ''}, then: {again}"
        )
    return (
        f"{reported.action}, naming {last.run}, chunk {last.chunk}"
        if last.chunk
        else reported.action
    )


class CardGivenError(OperatorError):
    """What was given as a cuid contains a card number."""

    message = "This contains a card number, so no cardholder has it as a cuid: a row with such a cuid is rejected."
    next_step = "Give the cardholder's cuid, and remove the number from the shell's history."


class CardholderTrace(NamedTuple):
    """A cardholder's attempts, oldest first, and the runs whose ledgers are purged."""

    attempts: tuple[Attempt, ...]
    purged: tuple[str, ...]


def refuse_card_number(cuid: str) -> None:
    """Raise CardGivenError, which does not repeat the text, where the rule of cuids would reject
    it.
    """
    given = pl.DataFrame({"cuid": [cuid], "pan": [None]}, {"cuid": pl.String, "pan": pl.String})
    if given.select(holds_card(pl.col("cuid"), pl.col("pan"))).item():
        raise CardGivenError


def trace(adapters: Adapters, issuer: str, cuid: str, *, urls: bool = False) -> CardholderTrace:
    """Return every attempt of a cardholder in an issuer's committed runs; links only with `urls`;
    CardGivenError.
    """
    refuse_card_number(cuid)
    store = adapters.store
    gone = without_ledger(store, issuer)
    kept = [run for run in run_ids(store, issuer) if str(run) not in gone]
    found = [
        one
        for reported in concurrently(lambda run: _of_run(adapters, run, cuid), kept)
        for one in reported
    ]
    typed = [one for one in prompted_singles(store, issuer) if one.asked.cuid == cuid]
    found += [
        single_attempt(Attempt(one.asked.at, issuer, ""), one.asked, one.answered) for one in typed
    ]
    shown = found if urls else [one._replace(url=None) for one in found]
    return CardholderTrace(
        tuple(sorted(shown, key=lambda one: (one.at, one.row))), tuple(sorted(gone))
    )


def _of_run(adapters: Adapters, run: RunId, cuid: str) -> list[Attempt]:
    """Return the attempts in one run, and its single links; of a ledger part without the cuid only
    that is decoded.
    """
    store, keys = adapters.store, RunKeys(run)
    manifest = read_manifest(store, keys)
    found, came, sent = list[dict[str, Any]](), dict[int, dict[str, Any]](), list[int]()
    for part in manifest.ledger if manifest else ():
        (records,) = read_ledger(store, keys, [part], RECORD, pl.col("cuid") == cuid)
        rows = records.filter(fate=ledger.SUBMITTED)["row"].to_list()
        came |= _outcomes_of(store, keys, part, rows) if rows else {}
        sent, found = sent + rows, found + records.to_dicts()
    if manifest is None or not found:
        return []
    with store.open(keys.manifest) as source:
        committed = source.entry.modified
    repeats = manifest.selection.of if manifest.selection else ""
    shared = Attempt(committed, keys.run.issuer, manifest.run, origin=repeats)
    waiting = [row for row in sent if came.get(row, {}).get("state", AWAITING) == AWAITING]
    chunks = {
        item.chunk.number: item.state
        for item in (outbox(adapters, manifest.run) if waiting else ())
    }
    states = [chunks.get(one["chunk"], "") if one["row"] in waiting else "" for one in found]
    attempts = [
        attempt_of(shared, one, came.get(one["row"], {}), state)
        for one, state in zip(found, states, strict=True)
    ]
    numbers, typed = {one["row"] for one in found}, shared._replace(origin="")
    alone = [one for one in singles(store, keys) if one.asked.row in numbers]
    return attempts + [single_attempt(typed, one.asked, one.answered) for one in alone]


def _outcomes_of(
    store: Store, keys: RunKeys, part: LedgerPart, rows: list[int]
) -> dict[int, dict[str, Any]]:
    """Return the reconciled rows of these rows as their result files have them; nothing where there
    is no report yet.

    A single link that counts for a row is an attempt of its own.
    """
    try:
        (found,) = read_rows(store, keys, [part], None, pl.col("row").is_in(rows))
    except ObjectMissingError:
        return {}
    came = {one["row"]: one for one in found.iter_rows(named=True)}
    for one in came.values():
        if one["how"] == SINGLE:
            state = (
                ERROR if one["reasons"] or one["message"] else LINKED if one["result"] else AWAITING
            )
            one |= {"state": state, "url": None, "expires_on": None, "how": None}
    return came
