"""One cardholder over all runs: what happened to each row, where every card stands now, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from io import BytesIO
from typing import Any, NamedTuple

import polars as pl

from flows.errors import OperatorError
from flows.redaction import passes_luhn, redact
from flows.runs.chunks import outbox
from flows.runs.context import Adapters
from flows.runs.documents import keys_of, read_ledger, read_manifest, run_ids, without_ledger
from flows.runs.frames import rows_key
from flows.runs.keys import RunId, RunKeys
from flows.runs.links import prompted_singles, singles
from flows.runs.store import ObjectMissingError, Store, read
from schemas import ledger
from schemas.actions import FIX, NOTHING, RESUBMIT
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.manifest import LedgerPart, Manifest
from schemas.reasons import reason
from schemas.records import Outcome, SingleAnswered, SingleAsked

ROWS: dict[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.UInt32,
    "state": pl.String,
    "url": pl.String,
    "expires_on": pl.Date,
    "how": pl.String,
    "result": pl.String,
    "message": pl.String,
    "told": pl.List(pl.String),  # the partner's reasons
}
CANCELLED = "cancelled"
SINGLE = "single"
UNSENT = "not taken"  # a single link the service did not take the request for
SOON = 14  # days before its end in which a link is worth renewing
_WAITS = {  # where a row without an answer stands and what to do, by the state of its chunk in the outbox
    "waiting": ("waits for its upload", "upload it: cardlink outbox fetch {run} {chunk} --to FOLDER"),
    "held": ("is held back with its chunk", "when that is settled: cardlink outbox release {run} {chunk} --reason WHY"),
    "uploaded": ("is at the portal, not answered", "fetch the result of chunk {chunk}, then: cardlink ingest {issuer}"),
    "answered": ("has no answer in its chunk's result", "see the breaks: cardlink report {run}"),
    SINGLE: ("was asked for by itself, and nobody knows what came of it", "ask the partner before asking again"),
}
_WORDS = {
    ERROR: "was refused by the partner",
    ledger.REJECTED: "was refused by us",
    ledger.DUPLICATE: "stands in its extract twice",
    ledger.SUPPRESSED: "was not sent",
    CANCELLED: "was not sent: its chunk was cancelled",
    UNSENT: "was not asked for: the service did not take the request",
}
_SINGLES: dict[Outcome, str] = {"linked": LINKED, "refused": ERROR, "unsent": UNSENT}
SOON = 14  # days before its end in which a link is worth renewing
_CHUNKS = {  # what a chunk without an answer waits for, by its state in the outbox
    "waiting": "upload chunk {chunk}: cardlink outbox fetch {run} {chunk} --to FOLDER",
    "held": "chunk {chunk} is held; release it when that is settled: cardlink outbox release {run} {chunk}",
    SINGLE: "ask the partner whether the link was made before asking for another",
    "uploaded": "the portal has chunk {chunk}: fetch its result, then: cardlink ingest {issuer}",
}

READERS = 16
RECORD = ["row", "cuid", "last_4", "expiration", "fate", "chunk", "position", "origin", "reasons"]


class Attempt(NamedTuple):
    """One row of the cardholder in one run: where it went and what came of it.

    `state` is linked, error or awaiting for a row that was sent, else its fate; `sent` the state of its chunk in the
    outbox, or SINGLE for a link that was asked for by itself; `row` is 0 where its fields were typed in. `reasons` are
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
    how: str | None = None
    message: str | None = None
    reasons: tuple[str, ...] = ()
    origin: str = ""  # the run and row this one repeats

    def living(self, today: date) -> bool:
        """Tell whether it gave a link that can still be opened."""
        return self.state == LINKED and (self.expires_on is None or self.expires_on >= today)


class CardStatus(NamedTuple):
    """Where one card stands now, in words, and what to do next."""

    issuer: str
    last_4: str | None
    expiration: str | None
    stands: str
    then: str


def attempt_of(reported: Attempt, record: Mapping[str, Any], came: Mapping[str, Any], chunk: str) -> Attempt:
    """Return the attempt of one ledger record: `reported` is what all of its run share, `came` what came of the row.

    `came` has the columns of ROWS, nothing where there is no report; `chunk` is how its chunk stands in the outbox.
    """
    ours = _codes(record["reasons"])
    state = (came.get("state") or AWAITING) if record["fate"] == ledger.SUBMITTED else record["fate"]
    sent: dict[str, Any] = {name: record[name] for name in ("row", "last_4", "expiration", "chunk", "position")}
    answer: dict[str, Any] = {name: came.get(name) for name in ("expires_on", "url", "result", "how", "message")}
    return reported._replace(
        **sent,
        **answer,
        state=CANCELLED if state == AWAITING and chunk == CANCELLED else state,
        sent=chunk,
        reasons=_codes(came["told"]) if state == ERROR else ours,
        origin=f"{reported.origin} row {record['origin']}" if record["origin"] else "",
    )


def single_attempt(reported: Attempt, asked: SingleAsked, answer: SingleAnswered | None) -> Attempt:
    """Return the attempt of a link that was asked for by itself; without an answer nobody knows what came of it."""
    attempt = reported._replace(
        at=asked.at, row=asked.row or 0, last_4=asked.last_4, expiration=asked.expiration, state=AWAITING, sent=SINGLE
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
    """Return where every card stands: by its longest living link, else by what last happened to it."""
    cards: dict[tuple[str, str | None, str | None], list[Attempt]] = {}
    for one in attempts:
        cards.setdefault((one.issuer, one.last_4, one.expiration), []).append(one)
    return [_card_status(found, today) for found in cards.values()]


def _codes(reasons: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(text.rpartition("|")[2] for text in reasons or ())


def _card_status(found: Sequence[Attempt], today: date) -> CardStatus:
    living = [one for one in found if one.living(today)]
    telling = [one for one in found if one.state not in (ledger.SUPPRESSED, ledger.DUPLICATE, CANCELLED, UNSENT)]
    if living:
        last = max(living, key=lambda one: one.expires_on or date.max)
        return _of(last, *_linked(last, today))
    last = (telling or found)[-1]
    if last.state == LINKED:
        then = f"a new link: cardlink renew {last.issuer}"
        return _of(last, f"its link ended on {last.expires_on}", then)
    if last.state == AWAITING:
        waits, then = _WAITS[last.sent]
        return _of(last, waits, then.format(chunk=last.chunk, run=last.run, issuer=last.issuer))
    why = f": {', '.join(last.reasons)}" if last.reasons else ""
    return _of(last, _WORDS[last.state] + why, _next(last))


def _linked(last: Attempt, today: date) -> tuple[str, str]:
    if last.expires_on is None:
        return "has a link", ""
    soon = (last.expires_on - today).days <= SOON
    return f"has a link until {last.expires_on}", f"it ends soon: cardlink renew {last.issuer}" if soon else ""


def _next(last: Attempt) -> str:
    """Say what the first reason that asks for something asks for, and how the row goes out again."""
    reported = next((one for one in map(reason, last.reasons) if one.action != NOTHING), None)
    typed = f"cardlink link {last.issuer} --prompt"
    again = f"cardlink resubmit {last.run} --row {last.row} --reason WHY" if last.run else typed
    if last.state in (CANCELLED, UNSENT) or (reported is not None and reported.action == RESUBMIT):
        return f"send it again as it is: {again}"
    if reported is None:
        return ""
    if reported.action == FIX:
        return f"mend it at the source{f' ({reported.hint})' if reported.hint else ''}, then: {again}"
    return f"{reported.action}, naming {last.run}, chunk {last.chunk}" if last.chunk else reported.action


def _of(last: Attempt, stands: str, then: str) -> CardStatus:
    return CardStatus(last.issuer, last.last_4, last.expiration, stands, then)


class CardGivenError(OperatorError):
    """A card number where a cuid was asked for."""

    message = "That looks like a card number; cardlink looks nobody up by card number."
    next_step = "Give the cardholder's cuid. Remove the number from the shell's history."


class CardholderTrace(NamedTuple):
    """What an issuer's runs say of a cardholder, oldest first, and the runs whose ledgers are purged."""

    attempts: tuple[Attempt, ...]
    purged: tuple[str, ...]


def refuse_card_number(cuid: str) -> None:
    """Raise CardGivenError, which says nothing of it, where a text looks like a card number."""
    digits = "".join(filter(str.isdecimal, cuid))
    bare = all(one.isdecimal() or one in " .-_" for one in cuid)
    if redact(cuid) != cuid or (bare and 13 <= len(digits) <= 19 and passes_luhn(digits)):
        raise CardGivenError


def trace(adapters: Adapters, issuer: str, cuid: str, *, urls: bool = False) -> CardholderTrace:
    """Return every attempt of a cardholder in an issuer's committed runs; links only where `urls` asks for them.

    Raises CardGivenError.
    """
    refuse_card_number(cuid)
    store = adapters.store
    ids, gone = run_ids(store, issuer), without_ledger(store, issuer)
    with ThreadPoolExecutor(READERS) as readers:
        there = [run for run in ids if str(run) not in gone]
        found = [one for reported in readers.map(lambda run: _of_run(adapters, run, cuid), there) for one in reported]
    typed = [one for one in prompted_singles(store, issuer) if one.asked.cuid == cuid]
    found += [single_attempt(Attempt(one.asked.at, issuer, ""), one.asked, one.answered) for one in typed]
    shown = found if urls else [one._replace(url=None) for one in found]
    return CardholderTrace(tuple(sorted(shown, key=lambda one: (one.at, one.row))), tuple(sorted(gone)))


def _of_run(adapters: Adapters, run: RunId, cuid: str) -> list[Attempt]:
    """Return the attempts in one run; of a ledger part without the cuid nothing but that column is decoded."""
    store, keys = adapters.store, RunKeys(run)
    manifest = read_manifest(store, keys)
    if manifest is None:
        return []
    reported: list[Attempt] = []
    for part in manifest.ledger:
        (records,) = read_ledger(store, keys, [part], RECORD, pl.col("cuid") == cuid)
        if records.height:
            reported += _of_part(adapters, manifest, part, records.to_dicts())
    return reported


def _of_part(
    adapters: Adapters, manifest: Manifest, part: LedgerPart, records: Sequence[Mapping[str, Any]]
) -> list[Attempt]:
    """Return the attempts these records of a ledger part are, and the links asked for by themselves from their rows."""
    store, keys = adapters.store, keys_of(manifest.run)
    with store.open(keys.manifest) as source:
        committed = source.entry.modified
    repeats = manifest.selection.of if manifest.selection else ""
    shared = Attempt(committed, keys.run.issuer, manifest.run, origin=repeats)
    sent = {one["row"]: one["chunk"] for one in records if one["fate"] == ledger.SUBMITTED}
    came = _outcomes_of(store, keys, part, list(sent)) if sent else {}
    waiting = [row for row in sent if came.get(row, {}).get("state", AWAITING) == AWAITING]
    chunks = {item.chunk.number: item.state for item in (outbox(adapters, manifest.run) if waiting else ())}
    attempts = [
        attempt_of(shared, one, came.get(one["row"], {}), chunks.get(one["chunk"], "") if one["row"] in waiting else "")
        for one in records
    ]
    alone = [one for one in singles(store, keys) if any(one.asked.row == record["row"] for record in records)]
    return attempts + [single_attempt(shared._replace(origin=""), one.asked, one.answered) for one in alone]


def _outcomes_of(store: Store, keys: RunKeys, part: LedgerPart, wanted: list[int]) -> dict[int, dict[str, Any]]:
    """Return what came of some rows, each with the columns of ROWS; nothing where there is no report yet."""
    try:
        data = read(store, rows_key(keys, part))
    except ObjectMissingError:
        return {}
    rows = pl.scan_parquet(BytesIO(data)).filter(pl.col("row").is_in(wanted)).rename({"reasons": "told"})
    return {one["row"]: one for one in rows.select(*ROWS).collect().iter_rows(named=True)}
