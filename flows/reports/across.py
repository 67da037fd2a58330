"""The report across runs: what is outstanding since when, what failed over time, what is about to expire.

And the worklist: what is to be done about all runs of an issuer, by whom, and the command to paste; due first on top.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

import polars as pl

from flows.reports import summary
from flows.results.masking import spreadsheet_safe
from flows.runs.chunks import chunk_of
from schemas import tables as reports
from schemas.actions import ASK, FIX, RESUBMIT
from schemas.breaks import DECISIONS
from schemas.reasons import reason

CLEAR = "nothing outstanding"
WAITING = "answers awaited"
OVERDUE = "answers overdue"
EXIT_CODES = {CLEAR: 0, WAITING: 0, OVERDUE: 3, summary.OUT_OF_BALANCE: 4}

LISTED = 200  # reasons, and lines of the worklist, listed here; worklist.csv has every line
FIGURES = ("read", "linked", "error", "awaiting", "rejected", "duplicate", "suppressed")


class RunFacts(NamedTuple):
    """One committed run: its figures, reasons by stage (code, rows), links by expiry date and hours, open chunks."""

    run: str
    as_of: date
    state: str
    rows: Mapping[str, int]
    reasons: Mapping[str, Sequence[tuple[str, int]]]
    expires: Mapping[date | None, int]
    waiting: tuple[summary.WaitingChunk, ...]
    breaks: Sequence[Mapping[str, Any]] = ()  # open ones, as in summary.json
    hours: Mapping[str, int] = {}


def across(runs: Sequence[RunFacts], unlinked: pl.DataFrame, terms: summary.ReportTerms) -> dict[str, Any]:
    """Return the facts of the report across runs; `unlinked` comes from `flows.reports.lists.unlinked`."""
    waiting = [one for run in runs for one in run.waiting]
    late = [one for one in waiting if terms.overdue(one)]
    codes = unlinked.group_by(code="reason").agg(cardholders=pl.len()).drop_nulls("code")
    codes = codes.sort("cardholders", "code", descending=[True, False])
    verdict = OVERDUE if late else WAITING if waiting else CLEAR
    return {
        "seen": terms.now.isoformat(timespec="seconds"),
        "answer_within_hours": terms.within,
        "verdict": summary.OUT_OF_BALANCE if any(run.state == summary.OUT_OF_BALANCE for run in runs) else verdict,
        "rows": {name: sum(run.rows[name] for run in runs) for name in FIGURES},
        "runs": [{"run": run.run, "as_of": run.as_of.isoformat(), "state": run.state, **run.rows} for run in runs],
        "outstanding": {
            **_sizes(waiting),
            "overdue": _sizes(late),
            "missing": {kind: _sizes([one for one in waiting if one.missing == kind]) for kind in summary.LACKS},
            "ages": {
                age: _sizes([one for one in waiting if summary.age_step(one.since, terms.now) == age])
                for age in summary.AGES
            },
        },
        "links": summary.by_expiry((pair for run in runs for pair in run.expires.items()), terms.now.date()),
        "reasons": _reasons(runs)[:LISTED],
        "unlinked": {
            "cardholders": unlinked.height,
            "by_attempts": unlinked["attempts"].value_counts(name="cardholders").sort("attempts").to_dicts(),
            "reasons": [{**one, "action": reason(one["code"]).action} for one in codes.head(LISTED).to_dicts()],
        },
    }


def _sizes(chunks: Sequence[summary.WaitingChunk]) -> dict[str, int]:
    return {"count": len(chunks), "rows": sum(one.awaiting for one in chunks)}


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


ISSUER, PARTNER, OPERATOR = "issuer", "partner", "operator"
DECIDED = {one.reason for one in DECISIONS.values() if one.reason}
# What is to be done about cardholders without a link, by the action of the reason of their last attempt.
_UNLINKED = {
    FIX: ("rows to correct", ISSUER, "cardlink corrections {run} --to FILE"),
    RESUBMIT: ("errors to send again", OPERATOR, "cardlink resubmit {run} --action 'resubmit as is' --reason WHY"),
    ASK: ("errors to ask about", PARTNER, "cardlink resubmit {run} --action 'ask the partner' --reason WHY"),
    "lost": ("rows decided lost, to send again", OPERATOR, "cardlink resubmit {run} --code {code} --reason WHY"),
}


class Work(NamedTuple):
    """One line of the worklist (`schemas.tables.Work`); it ages since `since`."""

    due: datetime
    kind: str
    issuer: str
    run: str
    chunk: int | None
    rows: int
    since: datetime
    who: str
    command: str

    def facts(self, now: datetime) -> dict[str, Any]:
        """Return the line as the tables show it."""
        due, age = self.due.isoformat(timespec="seconds"), summary.duration(now - self.since)
        line = {name: value for name, value in self._asdict().items() if name not in ("since", "who", "command")}
        return {**line, "due": due, "age": age, "who": self.who, "command": self.command}


def worklist(
    issuer: str,
    runs: Iterable[RunFacts],
    unlinked: pl.DataFrame,
    refused: Mapping[str, str],
    strays: Mapping[str, datetime],
    terms: summary.ReportTerms,
) -> list[Work]:
    """Return what is to be done, due first.

    `unlinked`: cards without a link, `refused`: runs refused at some time, `strays`: result files of no run.
    """
    found = list(runs)
    work = [one for run in found for one in (*_chunks(issuer, run, terms), *_breaks(issuer, run))]
    work += [
        Work(at, "refused extracts", issuer, run, None, 0, at, ISSUER, f"cardlink extracts {issuer}")
        for run, at in ((run, datetime.fromisoformat(text)) for run, text in refused.items())
    ]
    for key, at in strays.items():
        again = f"cardlink mend ingest-again {issuer} {shlex.quote(key.partition('/results/')[2])} --reason WHY"
        work.append(Work(at, "result files to look at", issuer, "", None, 0, at, OPERATOR, again))
    return sorted([*work, *_unlinked(issuer, found, unlinked), *_ending(issuer, found, terms)])


def _chunks(issuer: str, run: RunFacts, terms: summary.ReportTerms) -> Iterator[Work]:
    """Yield the chunks to upload, held, and awaited; what came and does not fit is a break."""
    broken = {chunk_of(one["place"]) for one in run.breaks}
    for one in run.waiting:
        due, place, who = one.since + timedelta(hours=terms.within), f"{one.run} {one.chunk}", OPERATOR
        if one.chunk in broken or one.state == "cancelled":
            continue
        if one.state == "waiting" and one.missing == summary.MISSING:
            kind, due, command = "chunks to upload", one.since, f"cardlink outbox fetch {place} --to FOLDER"
        elif one.state == "held":
            kind, command = "chunks held", f"cardlink outbox release {place} --reason WHY"
        elif one.missing == summary.MISSING and terms.overdue(one):
            kind = "results overdue"
            command = f"cardlink mend close {one.run} RESULT_SHORT 'chunk {one.chunk}' --decision lost --reason WHY"
        else:
            kind, who, command = "results awaited", PARTNER, f"cardlink ingest {issuer}"
        yield Work(due, kind, issuer, one.run, one.chunk, one.awaiting, one.since, who, command)


def _breaks(issuer: str, run: RunFacts) -> Iterator[Work]:
    for one in run.breaks:
        since, ways = datetime.fromisoformat(one["since"]), one.get("decide")
        command = ways[0]["command"] if ways else f"cardlink report {run.run}"
        chunk = chunk_of(one["place"]) or None
        yield Work(since, f"break {one['name']}", issuer, run.run, chunk, one["rows"], since, OPERATOR, command)


def _unlinked(issuer: str, runs: Iterable[RunFacts], unlinked: pl.DataFrame) -> Iterator[Work]:
    """Yield the cardholders whose last attempt gave no link, by its run and what is to be done about it."""
    days = {run.run: _midnight(run.as_of) for run in runs}
    decided = pl.when(pl.col("reason").is_in(sorted(DECIDED))).then(pl.struct(act=pl.lit("lost"), code="reason"))
    by = decided.otherwise(pl.struct(act="action", code=pl.lit(""))).struct.unnest()
    grouped = unlinked.with_columns(by).group_by("run", "act", "code").len()
    for run, action, code, rows in grouped.iter_rows():
        if action in _UNLINKED:
            kind, who, command = _UNLINKED[action]
            since = days[run]
            yield Work(since, kind, issuer, run, None, rows, since, who, command.format(run=run, code=code))


def _ending(issuer: str, runs: Iterable[RunFacts], terms: summary.ReportTerms) -> Iterator[Work]:
    """Yield the links that end within a week."""
    today = terms.now.date()
    ends = [(day, links) for run in runs for day, links in run.expires.items() if day and 0 <= (day - today).days < 8]
    if ends:
        due, rows, command = _midnight(min(ends)[0]), sum(links for _, links in ends), f"cardlink renew {issuer}"
        yield Work(
            due, f"links end {summary.SOON}", issuer, "", None, rows, terms.now, OPERATOR, f"{command} --within 7d"
        )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def table(work: Iterable[Work], now: datetime) -> pl.DataFrame:
    """Return worklist.csv (`schemas.tables.Work`)."""
    found = pl.DataFrame([one.facts(now) for one in work], reports.Work.dtypes())
    return found.with_columns(spreadsheet_safe("command"))
