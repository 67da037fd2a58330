"""The facts of a run's summary.json: where its rows went, why, what is open since when, and the
verdict.
"""

import shlex
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, NamedTuple

import polars as pl

from flows.reports.tally import SHAPES, Tally
from flows.runs.chunks import OutboxChunk
from flows.runs.closings import place_of
from flows.runs.outcomes import DECISION
from schemas.breaks import DECISIONS, EXPLAINED, KINDS, Break
from schemas.issuer import Issuer, Limits
from schemas.manifest import Manifest
from schemas.portal import INTERFACE
from schemas.reasons import reason
from schemas.records import Closing

FIGURES = ("read", "linked", "error", "awaiting", "rejected", "duplicate", "suppressed")
AGES = ("under 1 day", "1 to 2 days", "2 to 7 days", "over 7 days")
_AGE_STEPS = (timedelta(days=1), timedelta(days=2), timedelta(days=7))

# A link lives two months (interface.md 8), and a reminder needs a week.
EXPIRIES = (
    "expired",
    "within 7 days",
    "8 to 14 days",
    "15 to 30 days",
    "31 to 60 days",
    "later",
    "no date given",
)
SOON = EXPIRIES[1]
_EXPIRY_STEPS = (0, 8, 15, 31, 61)  # days to go at which each step after the first begins

BALANCED = "balanced"
WAITING = "balanced, answers awaited"
ABOVE_LIMIT = "balanced, rejects or errors above the limit"
OUT_OF_BALANCE = "out of balance"
EXIT_CODES = {BALANCED: 0, WAITING: 0, ABOVE_LIMIT: 3, OUT_OF_BALANCE: 4}

MISSING, PARTIAL, UNSETTLED, HELD = (
    "no result",
    "partial result",
    "result unsettled",
    "held or cancelled",
)
LACKS = (MISSING, PARTIAL, UNSETTLED, HELD)
DUE = (MISSING, PARTIAL)  # what can be overdue

MOST_BREAKS = 200  # listed one by one; the rest are counted
NEWEST = 20  # result files named


def age_step(since: datetime, now: datetime) -> str:
    """Return the step of AGES that the time from `since` to `now` falls into."""
    return AGES[bisect_right(_AGE_STEPS, now - since)]


def duration(span: timedelta) -> str:
    """Return a time span in short: `35 min`, `7 h`, `2 d 3 h`; never below zero."""
    minutes = max(0, int(span.total_seconds()) // 60)
    if minutes < 60:
        return f"{minutes} min"
    days, hours = divmod(minutes // 60, 24)
    if not days:
        return f"{hours} h"
    return f"{days} d {hours} h" if hours and days < 10 else f"{days} d"


def by_expiry(links: Iterable[tuple[date | None, int]], today: date) -> list[dict[str, str | int]]:
    """Count links, given as (expires on, number), by time to expiry: one line per step of EXPIRIES,
    zeros included.

    A link expires at the end of its day: one that expires today has zero days to go and is not
    expired.
    """
    counts = dict.fromkeys(EXPIRIES, 0)
    for day, number in links:
        counts[
            EXPIRIES[bisect_right(_EXPIRY_STEPS, (day - today).days)] if day else EXPIRIES[-1]
        ] += number
    return [{"when": name, "links": number} for name, number in counts.items()]


class WaitingChunk(NamedTuple):
    """One chunk with unanswered rows: what is missing (of LACKS), since when it waits, its state in
    the outbox.
    """

    run: str
    chunk: int
    missing: str
    awaiting: int
    since: datetime
    state: str = "uploaded"


class ReportTerms(NamedTuple):
    """The time of the report, and how many hours an answer may take."""

    now: datetime
    within: int

    def overdue(self, chunk: WaitingChunk) -> bool:
        """True where the answer should have come by now; one that came but does not fit is not
        overdue.
        """
        return chunk.missing in DUE and self.now - chunk.since > timedelta(hours=self.within)


def waiting_chunks(chunks: pl.DataFrame, items: Iterable[OutboxChunk]) -> list[WaitingChunk]:
    """Return the chunks (chunk, sent, answers, awaiting) with rows that wait; no answer is due for
    one that is held.
    """
    by_number = {item.chunk.number: item for item in items}
    found = []
    for chunk, lacks, rows in (
        chunks.filter(pl.col("awaiting") > 0).select("chunk", missing(), "awaiting").iter_rows()
    ):
        item = by_number[chunk]
        kind = HELD if item.state in ("held", "cancelled") else lacks
        found.append(WaitingChunk(item.run, chunk, kind, rows, item.clock, item.state))
    return found


class Line(NamedTuple):
    """One equation with both sides, and how many breaks closed by operators explain a
    difference.
    """

    name: str
    left: int
    right: int
    closed: int = 0

    @property
    def holds(self) -> bool:
        """True where both sides are equal."""
        return self.left == self.right


def balance(manifest: Manifest, chunks: pl.DataFrame, still: int, closed: int = 0) -> list[Line]:
    """Return the equations of a run (README.md, "The balance"): `still` breaks are open, operators
    `closed` others.

    Each difference in the results has a break, so where none is open all are closed: shown, but in
    balance.
    """
    counts, behind = manifest.counts, 0 if still else closed
    linked, error, awaiting, links = (
        int(chunks[name].sum()) for name in ("linked", "error", "awaiting", "links")
    )
    answers, sent = (
        chunks.filter(pl.col("answers") > 0).select(pl.col("answers", "sent").sum()).row(0)
    )
    fates = counts.submitted + counts.rejected + counts.duplicate + counts.suppressed
    return [
        *(
            []
            if counts.trailer is None
            else [Line("trailer count = rows read", counts.trailer, counts.read)]
        ),
        Line("rows read = submitted + rejected + duplicate + suppressed", counts.read, fates),
        Line(
            "rows in chunks = submitted",
            sum(chunk.rows for chunk in manifest.chunks),
            counts.submitted,
        ),
        Line("submitted = linked + error + awaiting", counts.submitted, linked + error + awaiting),
        Line(
            "result rows = rows sent, of answered chunks",
            answers,
            sent,
            behind if answers != sent else 0,
        ),
        Line("links received = rows linked", links, linked, behind if links != linked else 0),
        Line("open breaks = 0", still, 0, behind),
    ]


def summarise(
    manifest: Manifest,
    total: Tally,
    issuer: Issuer,
    items: Sequence[OutboxChunk],
    now: datetime,
    versions: dict[str, str],
    closed: Sequence[tuple[Break, Closing]] = (),
) -> dict[str, Any]:
    """Return the summary of a reconciled run: counts, codes, digests and names only.

    `closed`: the breaks an operator closed, each with the record of it.
    """
    counts, repeats, how = manifest.counts, manifest.selection, dict(total.how.iter_rows())
    states = {name: int(total.chunks[name].sum()) for name in ("linked", "error", "awaiting")}
    committed = min((item.clock for item in items), default=now)
    aged = _aged(manifest.run, total, committed)
    terms = ReportTerms(now, issuer.portal.answer_within_hours)
    books = balance(
        manifest, total.chunks, sum(not one.notice for one in total.breaks), len(closed)
    )
    files = sorted(
        total.files, key=lambda file: (file.received or date.min, file.name), reverse=True
    )
    return {
        **(
            {"repeats": repeats.model_dump(include={"kind", "of", "reason", "override"})}
            if repeats
            else {}
        ),
        "run": manifest.run,
        "as_of": manifest.as_of.isoformat(),
        "source": manifest.source.model_dump(),
        "settings_sha256": manifest.settings_sha256,
        "recipients": list(manifest.recipients),
        "issuer": issuer.issuer,
        "seen": now.isoformat(timespec="seconds"),
        "verdict": verdict(manifest, states, books, issuer.limits, how.get(DECISION, 0)),
        "rows": {
            "read": counts.read,
            **states,
            "rejected": counts.rejected,
            "duplicate": counts.duplicate,
            "suppressed": counts.suppressed,
        },
        "chunks": {
            "sent": len(manifest.chunks),
            **{
                state: total.chunks.filter(state=state).height
                for state in ("answered", "partial", "awaiting")
            },
        },
        "open": _open(waiting_chunks(total.chunks, items), aged, terms, committed),
        "links": by_expiry(total.expiry.iter_rows(), now.date()),
        "expires": {
            day.isoformat() if day else "": links for day, links in total.expiry.iter_rows()
        },
        "reasons": {"submit": _reason_rows(total.refused), "partner": _reason_rows(total.reasons)},
        "shapes": total.shapes.head(SHAPES).to_dicts(),
        "how": how,
        "repairs": manifest.repairs,
        "balance": [
            {**line._asdict(), "holds": line.holds, "difference": line.left - line.right}
            for line in books
        ],
        "breaks": aged[:MOST_BREAKS],
        "more_breaks": max(0, len(aged) - MOST_BREAKS),
        "closed": [
            {
                **{"name": one.name, "rows": one.rows, "place": one.place},
                **{"at": by.at.isoformat(timespec="seconds"), "by": by.by, "reason": by.reason},
                "decision": DECISIONS[by.decision or EXPLAINED].meaning,
            }
            for one, by in closed[:MOST_BREAKS]
        ],
        "results": sorted({file.digest for file in total.files}),
        "newest_results": [
            {**file._asdict(), "received": file.received.isoformat() if file.received else None}
            for file in files[:NEWEST]
        ],
        "versions": {**versions, "interface": INTERFACE, "recipe": str(manifest.recipe)},
    }


def verdict(
    manifest: Manifest,
    states: Mapping[str, int],
    books: Sequence[Line],
    limits: Limits,
    decided: int = 0,
) -> str:
    """Return a run's verdict: out of balance first, then above the limits, then whether answers are
    awaited.

    `decided`: errors by an operator's decision; they count against no limit.
    """
    counts = manifest.counts
    if not all(line.holds or line.closed for line in books):
        return OUT_OF_BALANCE
    refused = states["error"] - decided
    answered = states["linked"] + refused
    if (
        counts.rejected > limits.max_reject_rate * counts.read
        or refused > limits.max_error_rate * answered
    ):
        return ABOVE_LIMIT
    return WAITING if states["awaiting"] else BALANCED


def _open(
    waiting: Sequence[WaitingChunk],
    breaks: Sequence[dict[str, Any]],
    terms: ReportTerms,
    committed: datetime,
) -> dict[str, Any]:
    """Return the open items by kind and age, and what is overdue; an answer that came but does not
    fit is a break.
    """
    kinds = {
        kind: [(one.since, one.awaiting) for one in waiting if one.missing == kind]
        for kind in LACKS
    }
    kinds["breaks"] = [
        (datetime.fromisoformat(one["since"]), one["rows"]) for one in breaks if not one["notice"]
    ]
    late = [one.awaiting for one in waiting if terms.overdue(one)]
    return {
        "sent": committed.isoformat(timespec="seconds"),
        "answer_within_hours": terms.within,
        "overdue": {"chunks": len(late), "rows": sum(late)},
        "items": [_by_age(kind, items, terms.now) for kind, items in kinds.items()],
    }


def missing() -> pl.Expr:
    """Return what a chunk with awaiting rows lacks: its whole result, part of it, or a usable
    answer.
    """
    partial = (
        pl.when(pl.col("answers") < pl.col("sent"))
        .then(pl.lit(PARTIAL))
        .otherwise(pl.lit(UNSETTLED))
    )
    return pl.when(pl.col("answers") == 0).then(pl.lit(MISSING)).otherwise(partial).alias("missing")


def _by_age(kind: str, items: Sequence[tuple[datetime, int]], now: datetime) -> dict[str, Any]:
    ages = {age: [rows for since, rows in items if age_step(since, now) == age] for age in AGES}
    steps = {age: {"items": len(found), "rows": sum(found)} for age, found in ages.items()}
    return {
        "kind": kind,
        "items": len(items),
        "rows": sum(rows for _, rows in items),
        "ages": steps,
    }


def _aged(run: str, total: Tally, committed: datetime) -> list[dict[str, Any]]:
    """Return the breaks, notices last, each with its meaning and since when it is open."""
    files = {file.name: file.received for file in total.files if file.received is not None}
    came = {
        f"chunk {chunk}": [files[name] for name in names or () if name in files]
        for chunk, names in total.chunks.select("chunk", "results").iter_rows()
    }
    chunks = {place: min(days) for place, days in came.items() if days}
    return [
        {
            **one._asdict(),
            "since": _since(one.place, chunks | files, committed).isoformat(timespec="seconds"),
            "meaning": KINDS[one.name].meaning,
            "decide": [] if one.notice else decisions_on(run, one.name, one.place),
            "notice": one.notice,
        }
        for one in sorted(total.breaks, key=lambda one: (one.notice, one))
    ]


def decisions_on(run: str, name: str, place: str = "") -> list[dict[str, str]]:
    """Return what can be decided about the breaks of a kind: the decision, its effect, and the
    command.
    """
    close = shlex.join(
        ["cardlink", "mend", "close", run, name, *([place_of(place)] if place else ())]
    )
    return [
        {
            "decision": one,
            "effect": DECISIONS[one].effect,
            "command": f"{close} --decision {one} --reason WHY",
        }
        for one in KINDS[name].decisions
    ]


def _since(place: str, days: Mapping[str, date], committed: datetime) -> datetime:
    """Return when a break began; its place is `chunk 7, rows 1, 2`, or a file's name and a
    remark.
    """
    names = (
        place,
        *(place.partition(mark)[0] for mark in (", rows ", ", the same as ")),
        place.rpartition(" (")[0],
    )
    for named in names:
        if named in days:
            return datetime.combine(days[named], time(), committed.tzinfo)
    return committed


def _reason_rows(reasons: pl.DataFrame) -> list[dict[str, Any]]:
    """Return each reason's code, rows, rows sent despite it (`warned`), first rows, next action and
    accepted format.
    """
    return [
        {
            "code": code,
            "rows": rows,
            "warned": warned,
            "first": first,
            "action": reported.action,
            "hint": reported.hint,
        }
        for code, rows, warned, first in reasons.iter_rows()
        for reported in [reason(code)]
    ]
