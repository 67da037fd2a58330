"""The worklist: what is to be done about all runs of an issuer, by whom, and the command to paste; due first on top."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

import polars as pl

from flows.reports.across import ReportTerms, RunFacts
from flows.reports.summary import MISSING, SOON, duration
from flows.results.masking import spreadsheet_safe
from flows.runs.chunks import chunk_of
from schemas.actions import ASK, FIX, RESUBMIT
from schemas.breaks import DECISIONS

ISSUER, PARTNER, OPERATOR = "issuer", "partner", "operator"
DECIDED = {one.reason for one in DECISIONS.values() if one.reason}
# What is to be done about cardholders without a link, by the action of the reason of their last attempt.
_UNLINKED = {
    FIX: ("rows to correct", ISSUER, "cardlink corrections {run} --to FILE"),
    RESUBMIT: ("errors to send again", OPERATOR, "cardlink resubmit {run} --action 'resubmit as is' --reason WHY"),
    ASK: ("errors to ask about", PARTNER, "cardlink report {run}"),
    "lost": ("rows decided lost, to send again", OPERATOR, "cardlink resubmit {run} --code {code} --reason WHY"),
}


class Work(NamedTuple):
    """One line of the worklist (`schemas.reports.Work`); it ages since `since`."""

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
        due, age = self.due.isoformat(timespec="seconds"), duration(now - self.since)
        line = {name: value for name, value in self._asdict().items() if name not in ("since", "who", "command")}
        return {**line, "due": due, "age": age, "who": self.who, "command": self.command}


def worklist(
    issuer: str, runs: Iterable[RunFacts], unlinked: pl.DataFrame, refused: Mapping[str, str], terms: ReportTerms
) -> list[Work]:
    """Return what is to be done, due first; `unlinked`: cards without a link, `refused`: runs refused at some time."""
    found = list(runs)
    work = [one for run in found for one in (*_chunks(issuer, run, terms), *_breaks(issuer, run))]
    work += [
        Work(at, "refused extracts", issuer, run, None, 0, at, ISSUER, f"cardlink extracts {issuer}")
        for run, at in ((run, datetime.fromisoformat(text)) for run, text in refused.items())
    ]
    return sorted([*work, *_unlinked(issuer, found, unlinked), *_ending(issuer, found, terms)])


def _chunks(issuer: str, run: RunFacts, terms: ReportTerms) -> Iterator[Work]:
    """Yield the chunks to upload, held, and awaited; what came and does not fit is a break."""
    broken = {chunk_of(one["place"]) for one in run.breaks}
    for one in run.waiting:
        due, place, who = one.since + timedelta(hours=terms.within), f"{one.run} {one.chunk}", OPERATOR
        if one.chunk in broken or one.state == "cancelled":
            continue
        if one.state == "waiting" and one.missing == MISSING:
            kind, due, command = "chunks to upload", one.since, f"cardlink outbox fetch {place} --to FOLDER"
        elif one.state == "held":
            kind, command = "chunks held", f"cardlink outbox release {place} --reason WHY"
        elif one.missing == MISSING and terms.overdue(one):
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


def _ending(issuer: str, runs: Iterable[RunFacts], terms: ReportTerms) -> Iterator[Work]:
    """Yield the links that end within a week."""
    today = terms.now.date()
    ends = [(day, links) for run in runs for day, links in run.expires.items() if day and 0 <= (day - today).days < 8]
    if ends:
        due, rows = _midnight(min(ends)[0]), sum(links for _, links in ends)
        yield Work(
            due,
            f"links end {SOON}",
            issuer,
            "",
            None,
            rows,
            terms.now,
            OPERATOR,
            f"cardlink renew {issuer} --within 7d",
        )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def table(work: Iterable[Work], now: datetime) -> pl.DataFrame:
    """Return worklist.csv (`schemas.reports.Work`)."""
    kinds = {"chunk": pl.UInt32, "rows": pl.UInt32}
    head = ("due", "kind", "issuer", "run", "chunk", "rows", "age", "who", "command")
    found = pl.DataFrame([one.facts(now) for one in work], {name: kinds.get(name, pl.String) for name in head})
    return found.with_columns(spreadsheet_safe("command"))
