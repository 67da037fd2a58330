"""One cardholder over all runs: what happened to each row, where every card stands now, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

import polars as pl

from flows.core.results.attribution import ERROR, LINKED
from flows.core.results.reconcile import AWAITING
from schemas import ledger
from schemas.reasons import FIX, NOTHING, RESUBMIT, reason

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
SOON = 14  # days before its end in which a link is worth renewing
_CHUNKS = {  # what a chunk without an answer waits for, by its state in the outbox
    "waiting": "upload chunk {chunk}: cardlink outbox fetch {run} {chunk} --to FOLDER",
    "held": "chunk {chunk} is held; release it when that is settled: cardlink outbox release {run} {chunk}",
    "uploaded": "the portal has chunk {chunk}: fetch its result, then: cardlink ingest {issuer}",
}


class Attempt(NamedTuple):
    """One row of the cardholder in one run: where it went and what came of it.

    `state` is linked, error or awaiting for a row that was sent, else its fate; `sent` the state of its chunk in the
    outbox. `reasons` are codes, the partner's where it answered, else ours.
    """

    at: datetime  # of the commit
    as_of: date
    issuer: str
    run: str
    row: int
    last_4: str | None
    expiration: str | None  # YYMM
    state: str
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


class Stand(NamedTuple):
    """Where one card stands now, in words, and what to do next."""

    issuer: str
    last_4: str | None
    expiration: str | None
    stands: str
    then: str


def attempts_of(told: Attempt, records: pl.DataFrame, rows: pl.DataFrame, chunks: dict[int, str]) -> list[Attempt]:
    """Return the attempts of a run: `told` is what they share, `records` its ledger rows, `rows` what came of them.

    `rows` has the columns of ROWS, none where there is no report; `chunks` is the state of every chunk.
    """
    joined = records.join(rows, on="row", how="left").sort("row")
    return [_attempt(told, one, chunks) for one in joined.iter_rows(named=True)]


def stands(attempts: Sequence[Attempt], today: date) -> list[Stand]:
    """Return where every card stands: by its longest living link, else by what last happened to it."""
    cards: dict[tuple[str, str | None, str | None], list[Attempt]] = {}
    for one in attempts:
        cards.setdefault((one.issuer, one.last_4, one.expiration), []).append(one)
    return [_stand(found, today) for found in cards.values()]


def _attempt(told: Attempt, one: dict[str, Any], chunks: dict[int, str]) -> Attempt:
    sent = one["fate"] == ledger.SUBMITTED
    ours = tuple(text.rpartition("|")[2] for text in one["reasons"])
    state = one["state"] or AWAITING if sent else one["fate"]
    chunk = chunks.get(one["chunk"], "") if sent else ""
    return told._replace(
        **{name: one[name] for name in ("row", "last_4", "expiration", "chunk", "position")},
        **{name: one[name] for name in ("expires_on", "url", "result", "how", "message")},
        state=CANCELLED if state == AWAITING and chunk == CANCELLED else state,
        sent=chunk,
        reasons=tuple(text.rpartition("|")[2] for text in one["told"] or ()) if state == ERROR else ours,
        origin=f"{told.origin} row {one['origin']}" if one["origin"] else "",
    )


def _stand(found: Sequence[Attempt], today: date) -> Stand:
    living = [one for one in found if one.living(today)]
    telling = [one for one in found if one.state not in (ledger.SUPPRESSED, ledger.DUPLICATE, CANCELLED)]
    if living:
        last = max(living, key=lambda one: one.expires_on or date.max)
        return _of(last, *_linked(last, today))
    last = (telling or found)[-1]
    if last.state == LINKED:
        then = f"a new link: cardlink renew {last.issuer}"
        return _of(last, f"its link ended on {last.expires_on}", then)
    if last.state == AWAITING:
        then = _CHUNKS.get(last.sent, "").format(chunk=last.chunk, run=last.run, issuer=last.issuer)
        return _of(last, f"sent and not answered ({last.sent})" if last.sent else "sent and not answered", then)
    return _of(last, _words(last), _next(last))


def _linked(last: Attempt, today: date) -> tuple[str, str]:
    if last.expires_on is None:
        return "has a link", ""
    soon = (last.expires_on - today).days <= SOON
    return f"has a link until {last.expires_on}", f"it ends soon: cardlink renew {last.issuer}" if soon else ""


def _words(last: Attempt) -> str:
    why = f": {', '.join(last.reasons)}" if last.reasons else ""
    return {
        ERROR: "refused by the partner",
        ledger.REJECTED: "refused by us",
        CANCELLED: "its chunk was cancelled",
    }.get(last.state, last.state) + why


def _next(last: Attempt) -> str:
    """Say what the first reason that asks for something asks for."""
    told = next((one for one in map(reason, last.reasons) if one.action != NOTHING), None)
    if told is None:
        return f"send it again: cardlink resubmit {last.run}" if last.state == CANCELLED else ""
    if told.action == RESUBMIT:
        return f"send it again as it is: cardlink resubmit {last.run}"
    if told.action == FIX:
        return f"mend it at the source{f' ({told.hint})' if told.hint else ''}, then: cardlink resubmit {last.run}"
    return f"{told.action}, naming {last.run}, chunk {last.chunk}" if last.chunk else told.action


def _of(last: Attempt, stands: str, then: str) -> Stand:
    return Stand(last.issuer, last.last_4, last.expiration, stands, then)
