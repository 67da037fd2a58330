"""The facts of a run's summary.json: where its rows went, why, what is open since when, and the verdict.

Ages and times to go are told in the few steps a reader can act on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

import polars as pl

from flows.reports.tally import ResultFile, Tally
from flows.results.balance import Balance
from flows.results.decisions import Closed
from flows.runs.chunks import chunk_states
from flows.runs.keys import RunKeys
from flows.runs.store import Store
from schemas.breaks import KINDS, Break
from schemas.issuer import Issuer, Limits
from schemas.manifest import Manifest
from schemas.portal import INTERFACE
from schemas.reasons import reason

AGES = ("under 1 day", "1 to 2 days", "2 to 7 days", "over 7 days")
_AGE_STEPS = (timedelta(days=1), timedelta(days=2), timedelta(days=7))

# Upper limits in days, the last open: a link lives two months (interface.md 8), a reminder needs a week.
EXPIRIES = ("expired", "within 7 days", "8 to 14 days", "15 to 30 days", "31 to 60 days", "later", "no date given")
_EXPIRY_STEPS = (None, 0, 7, 14, 30, 60, None)

BALANCED = "balanced"
WAITING = "balanced, answers awaited"
ABOVE_LIMIT = "balanced, rejects or errors above the limit"
OUT_OF_BALANCE = "out of balance"
EXIT_CODES = {BALANCED: 0, WAITING: 0, ABOVE_LIMIT: 3, OUT_OF_BALANCE: 4}

MISSING, PARTIAL, UNSETTLED, HELD = "no result", "partial result", "result unsettled", "held or cancelled"
DUE = (MISSING, PARTIAL)  # what can be overdue

MOST_BREAKS = 200  # listed one by one; the rest is counted
NEWEST = 20  # result files named

RESTING = ("held", "cancelled")


def age_step(since: datetime, now: datetime) -> str:
    """Return which step of AGES the time from `since` to `now` is."""
    return AGES[sum(now - since >= step for step in _AGE_STEPS)]


def duration(span: timedelta) -> str:
    """Return a time span as people say it: `35 min`, `7 h`, `2 d 3 h`; none below zero."""
    minutes = max(0, int(span.total_seconds()) // 60)
    if minutes < 60:
        return f"{minutes} min"
    days, hours = divmod(minutes // 60, 24)
    if not days:
        return f"{hours} h"
    return f"{days} d {hours} h" if hours and days < 10 else f"{days} d"


def by_expiry(links: pl.DataFrame, today: date) -> list[dict[str, str | int]]:
    """Count links (expires_on, links) by time to expiry: one line per step of EXPIRIES, zeros included.

    A link expires at the end of its day: one of today has zero days to go and is not expired.
    """
    days = (pl.col("expires_on") - pl.lit(today)).dt.total_days()
    counted = links.select("links", days.alias("days"))
    masks = [pl.col("days") < 0, *_between(_EXPIRY_STEPS), pl.col("days").is_null()]
    counts = counted.select(
        pl.col("links").filter(mask).sum().alias(name) for name, mask in zip(EXPIRIES, masks, strict=True)
    ).row(0)
    return [{"when": name, "links": int(number)} for name, number in zip(EXPIRIES, counts, strict=True)]


def _between(steps: Iterable[int | None]) -> list[pl.Expr]:
    """Return a mask for each pair of limits: above the lower (from 0 on), up to and with the upper."""
    masks = []
    for lower, upper in list(pairwise(steps))[1:]:
        above = pl.col("days") >= 0 if lower == 0 else pl.col("days") > lower
        masks.append(above if upper is None else above & (pl.col("days") <= upper))
    return masks


class ReportTimes(NamedTuple):
    """When a report looks, since when the run waits and each of its chunks does, and which have no answer due."""

    now: datetime
    sent: datetime
    chunks: Mapping[int, datetime]
    resting: frozenset[int] = frozenset()

    def since(self, chunk: int) -> datetime:
        """Return when a chunk was sent."""
        return self.chunks.get(chunk, self.sent)


def summarise(
    manifest: Manifest,
    total: Tally,
    books: Balance,
    issuer: Issuer,
    moment: ReportTimes,
    versions: dict[str, str],
    closed: Sequence[tuple[Break, Closed]] = (),
) -> dict[str, Any]:
    """Return the summary of a reconciled run; counts, codes, digests and names only.

    `total.breaks` are those that are open, `closed` those closed by hand, each with what closed it.
    """
    counts = manifest.counts
    states = {name: int(total.chunks[name].sum()) for name in ("linked", "error", "awaiting")}
    aged = _aged(total, moment)
    files = sorted(total.files, key=lambda file: (file.received or date.min, file.name), reverse=True)
    return {
        **_identity(manifest),
        "issuer": issuer.issuer,
        "seen": moment.now.isoformat(timespec="seconds"),
        "verdict": verdict(manifest, states, books, issuer.limits),
        "rows": {
            "read": counts.read,
            **states,
            "rejected": counts.rejected,
            "duplicate": counts.duplicate,
            "suppressed": counts.suppressed,
        },
        "chunks": {
            "sent": len(manifest.chunks),
            **{state: total.chunks.filter(state=state).height for state in ("answered", "partial", "awaiting")},
        },
        "open": _open(total.chunks, aged, issuer.portal.answer_within_hours, moment),
        "links": by_expiry(total.expiry, moment.now.date()),
        "expires": {day.isoformat() if day else "": links for day, links in total.expiry.iter_rows()},
        "reasons": {"submit": _reason_rows(total.refused), "partner": _reason_rows(total.reasons)},
        "shapes": total.shapes.to_dicts(),
        "how": dict(total.how.iter_rows()),
        "repairs": manifest.repairs,
        "balance": [
            {**line._asdict(), "holds": line.holds, "difference": line.left - line.right} for line in books.lines
        ],
        "breaks": aged[:MOST_BREAKS],
        "more_breaks": max(0, len(aged) - MOST_BREAKS),
        "closed": [_closed(*one) for one in closed[:MOST_BREAKS]],
        "results": sorted({file.digest for file in total.files}),
        "newest_results": [_file_facts(file) for file in files[:NEWEST]],
        "versions": {**versions, "interface": INTERFACE, "recipe": str(manifest.recipe)},
    }


def _identity(manifest: Manifest) -> dict[str, Any]:
    kept = {"kind", "of", "reason", "override"}
    repeats = {"repeats": manifest.selection.model_dump(include=kept)} if manifest.selection else {}
    return {
        **repeats,
        "run": manifest.run,
        "as_of": manifest.as_of.isoformat(),
        "source": manifest.source.model_dump(),
        "settings_sha256": manifest.settings_sha256,
        "recipients": list(manifest.recipients),
    }


def verdict(manifest: Manifest, states: Mapping[str, int], books: Balance, limits: Limits) -> str:
    """Say how a run stands: out of balance first, then limits, then whether answers are awaited."""
    counts = manifest.counts
    if not books.holds:
        return OUT_OF_BALANCE
    answered = states["linked"] + states["error"]
    if counts.rejected > limits.max_reject_rate * counts.read or states["error"] > limits.max_error_rate * answered:
        return ABOVE_LIMIT
    return WAITING if states["awaiting"] else BALANCED


def _open(chunks: pl.DataFrame, breaks: Sequence[dict[str, Any]], within: int, moment: ReportTimes) -> dict[str, Any]:
    """Return what is open by age, by kind, and what is overdue: an answer that came but does not fit is a break."""
    waiting = [
        (HELD if chunk in moment.resting else kind, moment.since(chunk), awaiting)
        for chunk, kind, awaiting in chunks.filter(pl.col("awaiting") > 0)
        .select("chunk", missing("answers", "sent"), "awaiting")
        .iter_rows()
    ]
    kinds = {
        kind: [(since, rows) for found, since, rows in waiting if found == kind]
        for kind in (MISSING, PARTIAL, UNSETTLED, HELD)
    }
    kinds["breaks"] = [(datetime.fromisoformat(one["since"]), one["rows"]) for one in breaks if not one["notice"]]
    due = moment.now - timedelta(hours=within)
    late = [(since, rows) for kind, since, rows in waiting if since < due and kind in DUE]
    return {
        "sent": moment.sent.isoformat(timespec="seconds"),
        "answer_within_hours": within,
        "overdue": {"chunks": len(late), "rows": sum(rows for _, rows in late)},
        "items": [_by_age(kind, items, moment.now) for kind, items in kinds.items()],
    }


def _closed(one: Break, by: Closed) -> dict[str, Any]:
    reported = {"at": by.at.isoformat(timespec="seconds"), "by": by.by, "reason": by.reason}
    return {"name": one.name, "rows": one.rows, "place": one.place, **reported}


def missing(answers: str, sent: str) -> pl.Expr:
    """Return what a chunk with awaiting rows lacks: its result, part of it, or a result that can be used."""
    return (
        pl.when(pl.col(answers) == 0)
        .then(pl.lit(MISSING))
        .when(pl.col(answers) < pl.col(sent))
        .then(pl.lit(PARTIAL))
        .otherwise(pl.lit(UNSETTLED))
        .alias("missing")
    )


def _by_age(kind: str, items: Sequence[tuple[datetime, int]], now: datetime) -> dict[str, Any]:
    steps = {name: {"items": 0, "rows": 0} for name in AGES}
    for since, rows in items:
        step = steps[age_step(since, now)]
        step["items"] += 1
        step["rows"] += rows
    return {"kind": kind, "items": len(items), "rows": sum(rows for _, rows in items), "ages": steps}


def _aged(total: Tally, moment: ReportTimes) -> list[dict[str, Any]]:
    """Return the breaks, those out of balance first, with their meaning and the day their file came."""
    files = {file.name: file.received for file in total.files if file.received is not None}
    days = pl.DataFrame({"results": list(files), "day": list(files.values())}, {"results": pl.String, "day": pl.Date})
    reported = total.chunks.select("chunk", "results").explode("results").join(days, on="results")
    chunks = {f"chunk {chunk}": day for chunk, day in reported.group_by("chunk").agg(pl.col("day").min()).iter_rows()}
    return [
        {
            **one._asdict(),
            "since": _since(one.place, chunks | files, moment).isoformat(timespec="seconds"),
            "meaning": KINDS[one.name].meaning,
            "notice": one.notice,
        }
        for one in sorted(total.breaks, key=lambda one: (one.notice, one))
    ]


def _since(place: str, days: Mapping[str, date], moment: ReportTimes) -> datetime:
    """Return when a break began: a place is `chunk 7, rows 1, 2`, or a file's name and a remark."""
    for named in (
        place,
        place.partition(", rows ")[0],
        place.partition(", the same as ")[0],
        place.rpartition(" (")[0],
    ):
        if named in days:
            return datetime.combine(days[named], time(), moment.now.tzinfo)
    return moment.sent


def _reason_rows(reasons: pl.DataFrame) -> list[dict[str, Any]]:
    """Return code, rows, how many of them were sent all the same, first rows, who acts and what is accepted."""
    return [
        {"code": code, "rows": rows, "warned": warned, "first": first, "action": reported.action, "hint": reported.hint}
        for code, rows, warned, first in reasons.iter_rows()
        for reported in [reason(code)]
    ]


def _file_facts(file: ResultFile) -> dict[str, Any]:
    return {**file._asdict(), "received": file.received.isoformat() if file.received else None}


def waiting_since(store: Store, keys: RunKeys, manifest: Manifest, now: datetime) -> ReportTimes:
    """Return since when each chunk waits: uploaded, else committed; held and cancelled ones have no answer due."""
    found = chunk_states(store, keys, manifest)
    clocks = {item.chunk.number: item.clock for item in found}
    resting = frozenset(item.chunk.number for item in found if item.state in RESTING)
    return ReportTimes(now, min(clocks.values(), default=now), clocks, resting)
