"""The facts of a run's summary.json: where its rows went, why, what is open, and the verdict."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

import polars as pl

from flows.reports.ages import by_expiry
from flows.reports.balance import Line, balance, verdict
from flows.reports.bank_words import BankWords, Cause
from flows.reports.business_result import business_result
from flows.reports.open_items import ReportTerms, open_items, waiting_chunks
from flows.reports.tally import SHAPES, ResultFile, Tally
from flows.reports.wording import ranges
from flows.runs.chunks import OutboxChunk
from flows.runs.closings import place_of
from flows.runs.outcomes import DECISION
from flows.steps import WHY, Step
from schemas.breaks import DECISIONS, KINDS, Break
from schemas.issuer import Issuer
from schemas.manifest import Manifest
from schemas.portal import INTERFACE
from schemas.reasons import reason
from schemas.records import Closing

FIGURES = (
    "read",
    "linked",
    "error",
    "awaiting",
    "rejected",
    "ineligible",
    "duplicate",
    "suppressed",
)
CHUNK_STATES = ("answered", "partial", "awaiting")

FIRST_ROWS = 5  # source rows named for each reason
MOST_SHAPES = 5  # of what was found named for each reason
MOST_BREAKS = 200  # listed one by one; the rest are counted
NEWEST = 20  # result files named


def summarise(
    manifest: Manifest,
    total: Tally,
    issuer: Issuer,
    items: Sequence[OutboxChunk],
    now: datetime,
    versions: dict[str, str],
    closed: Sequence[tuple[Break, Closing]] = (),
    lines: Sequence[Line] = (),
) -> dict[str, Any]:
    """Return the summary of a reconciled run: counts, codes, digests and names only.

    `closed`: the breaks an operator closed, each with the record of it. `lines`: equations of
    extensions.
    """
    counts = manifest.counts
    committed = min((item.clock for item in items), default=now)
    breaks = _break_facts(manifest.run, total, committed)
    terms = ReportTerms(now, issuer.portal.answer_within_hours)
    waiting = waiting_chunks(total.chunks, items)
    cancelled = sum(chunk.awaiting for chunk in waiting if chunk.is_cancelled)
    still_open = sum(not run_break.notice for run_break in total.breaks)
    counted_in = issuer.source.counted_in
    lines = balance(manifest, total.chunks, still_open, len(closed), counted_in, lines)
    states = {name: int(total.chunks[name].sum()) for name in ("linked", "error", "awaiting")}
    rows_by_match = dict(total.how.iter_rows())
    decided = rows_by_match.get(DECISION, 0)
    return {
        **_repeats(manifest),
        "run": manifest.run,
        "as_of": manifest.as_of.isoformat(),
        "source": manifest.source.model_dump(exclude={"files"}),
        "settings_sha256": manifest.settings_sha256,
        "recipients": list(manifest.recipients),
        "issuer": issuer.issuer,
        "seen": now.isoformat(timespec="seconds"),
        "verdict": verdict(manifest, states, lines, issuer.limits, decided, cancelled),
        "rows": {
            "read": counts.read,
            **states,
            "rejected": counts.rejected,
            "ineligible": counts.ineligible,
            "duplicate": counts.duplicate,
            "suppressed": counts.suppressed,
        },
        "chunks": {
            "sent": len(manifest.chunks),
            **{state: total.chunks.filter(state=state).height for state in CHUNK_STATES},
        },
        "open": {
            "result": business_result(manifest, total, items),
            "cancelled": cancelled,
            **open_items(waiting, breaks, terms, committed),
        },
        "links": by_expiry(total.expiry.iter_rows(), now.date()),
        "expires": {_day(expires_on): links for expires_on, links in total.expiry.iter_rows()},
        "reasons": {
            "submit": _reject_facts(total, BankWords(manifest.layout)),
            "partner": _reason_facts(total.reasons),
        },
        "shapes": total.shapes.head(SHAPES).to_dicts(),
        "how": rows_by_match,
        "repairs": manifest.repairs,
        "balance": [
            {**line._asdict(), "holds": line.holds, "difference": line.left - line.right}
            for line in lines
        ],
        "breaks": breaks[:MOST_BREAKS],
        "more_breaks": max(0, len(breaks) - MOST_BREAKS),
        "closed": [_closed_facts(*pair) for pair in closed[:MOST_BREAKS]],
        "results": sorted({file.digest for file in total.files}),
        "newest_results": _newest_results(total.files),
        "versions": {**versions, "interface": INTERFACE, "recipe": str(manifest.recipe)},
    }


def _repeats(manifest: Manifest) -> dict[str, Any]:
    """Return which run this one repeats, if any."""
    selection = manifest.selection
    if selection is None:
        return {}
    return {"repeats": selection.model_dump(include={"kind", "of", "reason", "override"})}


def _day(day: date | None) -> str:
    return day.isoformat() if day else ""


def _reject_facts(total: Tally, words: BankWords) -> list[dict[str, Any]]:
    """Return each reason of ours with its cause in the bank's words, and its lines."""
    rows_by_shape: dict[str, dict[str, int]] = defaultdict(dict)
    for coded, rows in total.found.iter_rows():
        code, _, shape = coded.partition("|")
        rows_by_shape[code][shape] = rows
    facts = []
    for code, rows, warned, first, lines in total.refused.iter_rows():
        shapes = rows_by_shape[code]
        cause = words.cause(None, code, next(iter(shapes), None))
        fact = _reason_fact(code, rows, warned, first)
        if warned == rows:
            cause = cause._replace(setting=None)  # they were sent
        facts.append({**fact, **_cause_facts(cause, shapes, rows, lines)})
    return facts


def _cause_facts(
    cause: Cause, shapes: Mapping[str, int], rows: int, lines: Sequence[int]
) -> dict[str, Any]:
    """Return a cause with what was found, the most frequent first, and where."""
    listed = [f"{shape} ({count:,})" for shape, count in shapes.items()]
    more = len(listed) - MOST_SHAPES
    frequent = ", ".join(listed[:MOST_SHAPES])
    return {
        **cause._asdict(),
        "found": f"{frequent} and {more} more" if more > 0 else frequent,
        "lines": ranges(lines),
        "more_lines": rows - len(lines),
    }


def _reason_facts(reasons: pl.DataFrame) -> list[dict[str, Any]]:
    """Return each reason with its rows (`warned`: sent despite it), next action and hint."""
    return [_reason_fact(*row) for row in reasons.iter_rows()]


def _reason_fact(code: str, rows: int, warned: int, first: Sequence[int]) -> dict[str, Any]:
    entry = reason(code)
    return {
        "code": code,
        "rows": rows,
        "warned": warned,
        "first": first[:FIRST_ROWS],
        "action": entry.action,
        "hint": str(entry.hint),
    }


def _closed_facts(run_break: Break, closing: Closing) -> dict[str, Any]:
    return {
        "name": run_break.name,
        "rows": run_break.rows,
        "place": run_break.place,
        "at": closing.at.isoformat(timespec="seconds"),
        "by": closing.by,
        "reason": closing.reason,
        "decision": DECISIONS[closing.decision].meaning,
    }


def _newest_results(files: Iterable[ResultFile]) -> list[dict[str, Any]]:
    newest_first = sorted(
        files, key=lambda file: (file.received or date.min, file.name), reverse=True
    )
    return [
        {**file._asdict(), "received": file.received.isoformat() if file.received else None}
        for file in newest_first[:NEWEST]
    ]


def _break_facts(run: str, total: Tally, committed: datetime) -> list[dict[str, Any]]:
    """Return the breaks, notices last, each with its meaning and since when it is open."""
    days = _days_by_place(total)
    in_order = sorted(total.breaks, key=lambda run_break: (run_break.notice, run_break))
    return [_break_fact(run, run_break, days, committed) for run_break in in_order]


def _break_fact(
    run: str, run_break: Break, days: Mapping[str, date], committed: datetime
) -> dict[str, Any]:
    since = _since(run_break.place, days, committed)
    decisions = []
    if not run_break.notice:
        decisions = decisions_on(run, run_break.name, run_break.rows, run_break.place)
    return {
        **run_break._asdict(),
        "since": since.isoformat(timespec="seconds"),
        "meaning": KINDS[run_break.name].meaning,
        "decide": decisions,
        "notice": run_break.notice,
    }


def _days_by_place(total: Tally) -> dict[str, date]:
    """Return the day on which each result file was received, and each chunk's first."""
    by_file = {file.name: file.received for file in total.files if file.received is not None}
    by_chunk: dict[str, date] = {}
    for chunk, names in total.chunks.select("chunk", "results").iter_rows():
        received = [by_file[name] for name in names or () if name in by_file]
        if received:
            by_chunk[f"chunk {chunk}"] = min(received)
    return by_chunk | by_file


def _since(place: str, days: Mapping[str, date], committed: datetime) -> datetime:
    """Return when a break began: on its place's day, else at the commit.

    Its place is `chunk 7, rows 1, 2`, or the name of a file and a remark.
    """
    spellings = (
        place,
        place.partition(", rows ")[0],
        place.partition(", the same as ")[0],
        place.rpartition(" (")[0],
    )
    known = next((spelling for spelling in spellings if spelling in days), None)
    if known is None:
        return committed
    return datetime.combine(days[known], time(), committed.tzinfo)


def decisions_on(run: str, name: str, rows: int, place: str = "") -> list[dict[str, str]]:
    """Return what can be decided about so many rows in breaks of a kind: the decision, its effect,
    the command.
    """
    return [
        {
            "decision": decision,
            "effect": str(DECISIONS[decision].effect),
            "command": str(close_step(run, name, rows, place, decision)),
        }
        for decision in KINDS[name].decisions
    ]


def close_step(run: str, name: str, rows: int, place: str, decision: str) -> Step:
    """Return the step that closes breaks of a kind, those at a place or all of them."""
    place = place_of(place)
    return Step("mend close", run, name, place, decision=decision, rows=rows, reason=WHY)
