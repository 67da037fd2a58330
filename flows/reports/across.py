"""The report across runs: what is outstanding since when, what failed over time, what is about to expire."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import polars as pl

from flows.reports.summary import AGES, DUE, LACKS, OUT_OF_BALANCE, age_step, by_expiry, duration
from schemas.reasons import reason

CLEAR = "nothing outstanding"
WAITING = "answers awaited"
OVERDUE = "answers overdue"
EXIT_CODES = {CLEAR: 0, WAITING: 0, OVERDUE: 3, OUT_OF_BALANCE: 4}

LISTED = 200  # chunks and reasons listed here; outstanding.csv has every chunk
FIGURES = ("read", "linked", "error", "awaiting", "rejected", "duplicate", "suppressed")


class RunFacts(NamedTuple):
    """One committed run: its figures, reasons by stage (code, rows), links by expiry date and hours, open chunks."""

    run: str
    as_of: date
    state: str
    rows: Mapping[str, int]
    reasons: Mapping[str, Sequence[tuple[str, int]]]
    expires: Mapping[date | None, int]
    waiting: tuple[WaitingChunk, ...]
    breaks: Sequence[Mapping[str, Any]] = ()  # open ones, as in summary.json
    hours: Mapping[str, int] = {}


class WaitingChunk(NamedTuple):
    """One chunk with unanswered rows: what is missing, and since when it waits."""

    run: str
    chunk: int
    name: str
    missing: str  # of `flows.reports.summary.LACKS`
    sent: int
    awaiting: int
    since: datetime
    state: str = "uploaded"  # in the outbox, apart from its result


class ReportTerms(NamedTuple):
    """The time of the report, and how many hours an answer may take."""

    now: datetime
    within: int

    def overdue(self, chunk: WaitingChunk) -> bool:
        """True where the answer should have come by now; one that came but does not fit is not overdue."""
        return chunk.missing in DUE and self.now - chunk.since > timedelta(hours=self.within)


def across(runs: Sequence[RunFacts], unlinked: pl.DataFrame, terms: ReportTerms) -> dict[str, Any]:
    """Return the facts of the report across runs; `unlinked` comes from `flows.reports.lists.unlinked`."""
    found = (one for run in runs for one in run.waiting)
    # a missing result first: for one that came but does not fit, the run has breaks
    waiting = sorted(found, key=lambda one: (one.missing not in DUE, one.since, one.run, one.chunk))
    late = [one for one in waiting if terms.overdue(one)]
    codes = unlinked.group_by("reason").agg(pl.len().alias("cardholders")).drop_nulls("reason")
    verdict = OVERDUE if late else WAITING if waiting else CLEAR
    return {
        "seen": terms.now.isoformat(timespec="seconds"),
        "answer_within_hours": terms.within,
        "verdict": OUT_OF_BALANCE if any(run.state == OUT_OF_BALANCE for run in runs) else verdict,
        "rows": {name: sum(run.rows[name] for run in runs) for name in FIGURES},
        "runs": [{"run": run.run, "as_of": run.as_of.isoformat(), "state": run.state, **run.rows} for run in runs],
        "outstanding": {
            **_sizes(waiting),
            "overdue": _sizes(late),
            "missing": {kind: _sizes([one for one in waiting if one.missing == kind]) for kind in LACKS},
            "ages": {age: _sizes([one for one in waiting if age_step(one.since, terms.now) == age]) for age in AGES},
            "chunks": [_as_dict(one, terms) for one in waiting[:LISTED]],
            "more": max(0, len(waiting) - LISTED),
        },
        "links": by_expiry((pair for run in runs for pair in run.expires.items()), terms.now.date()),
        "reasons": _reasons(runs)[:LISTED],
        "unlinked": {
            "cardholders": unlinked.height,
            "by_attempts": [
                {"attempts": attempts, "cardholders": number}
                for attempts, number in unlinked["attempts"].value_counts().sort("attempts").iter_rows()
            ],
            "reasons": [
                {"code": code, "cardholders": number, "action": reason(code).action}
                for code, number in codes.sort("cardholders", "reason", descending=[True, False])
                .head(LISTED)
                .iter_rows()
            ],
        },
    }


def outstanding(runs: Iterable[RunFacts], terms: ReportTerms) -> pl.DataFrame:
    """Return outstanding.csv (`schemas.reports.Outstanding`): every chunk not wholly answered, oldest first."""
    reported = [_as_dict(one, terms) for run in runs for one in run.waiting]
    schema = {
        "run": pl.String, "chunk": pl.UInt32, "name": pl.String, "missing": pl.String, "sent": pl.UInt32,
        "awaiting": pl.UInt32, "since": pl.String, "due": pl.String, "overdue": pl.Boolean,
    }  # fmt: skip
    return pl.DataFrame([{name: one[name] for name in schema} for one in reported], schema=schema).sort("since", "name")


def _sizes(chunks: Sequence[WaitingChunk]) -> dict[str, int]:
    return {"count": len(chunks), "rows": sum(one.awaiting for one in chunks)}


def _as_dict(one: WaitingChunk, terms: ReportTerms) -> dict[str, Any]:
    return {
        **one._asdict(),
        "since": one.since.isoformat(timespec="seconds"),
        "age": duration(terms.now - one.since),
        "due": (one.since + timedelta(hours=terms.within)).isoformat(timespec="seconds"),
        "overdue": terms.overdue(one),
    }


def _reasons(runs: Sequence[RunFacts]) -> list[dict[str, Any]]:
    """Return every reason, ours and the partner's, with its rows per business date, most rows first."""
    nights: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for run in runs:
        for stage, reported in run.reasons.items():
            for code, rows in reported:
                nights[code, stage][run.as_of.isoformat()] += rows
    found = [
        {"code": code, "stage": stage, "action": reason(code).action, "rows": sum(days.values()), "nights": dict(days)}
        for (code, stage), days in nights.items()
    ]
    return sorted(found, key=lambda one: (-one["rows"], one["code"], one["stage"]))
