"""The worklist: what is to be done about all runs of an issuer, by whom, and the command to paste.

Due first on top. It is derived from the facts of the runs and from what waits beside them; nothing
of it is kept.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

import polars as pl

from flows.reports.ages import SOON, duration
from flows.reports.open_items import MISSING, ReportTerms, WaitingChunk
from flows.reports.run_facts import RunFacts
from flows.reports.summary import close_step
from flows.results.markers import read_waiting
from flows.runs.chains import last_record
from flows.runs.closings import chunk_of
from flows.runs.keys import deliveries
from flows.runs.store import Store
from flows.runs.stored_runs import StoredRuns
from flows.steps import FILE, FOLDER, RECEIPT, WHY, Slot, Step
from schemas.actions import ASK, FIX, RESUBMIT
from schemas.breaks import DECISIONS, LOST, RESULT_SHORT
from schemas.manifest import Manifest
from schemas.records import Delivery

# who acts
ISSUER = "issuer"
PARTNER = "partner"
OPERATOR = "operator"
DECIDED = {decision.reason for decision in DECISIONS.values() if decision.reason}
# What is to be done about cardholders without a link, by the action of the reason of their last
# attempt.
_UNLINKED = {
    FIX: ("rows to correct", ISSUER, Step("corrections", Slot("run"), to=FILE)),
    RESUBMIT: (
        "errors to send again",
        OPERATOR,
        Step("resubmit", Slot("run"), action=RESUBMIT, reason=WHY),
    ),
    ASK: (
        "errors to ask about",
        PARTNER,
        Step("resubmit", Slot("run"), action=ASK, reason=WHY),
    ),
    "lost": (
        "rows decided lost, to send again",
        OPERATOR,
        Step("resubmit", Slot("run"), code=Slot("code"), reason=WHY),
    ),
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
    command: Step

    @property
    def order(self) -> tuple[object, ...]:
        """What the worklist is sorted by: what is due first comes first."""
        return (*self[:-1], str(self.command))

    def facts(self, now: datetime) -> dict[str, Any]:
        """Return the line as the tables show it."""
        return {
            "due": self.due.isoformat(timespec="seconds"),
            "kind": self.kind,
            "issuer": self.issuer,
            "run": self.run,
            "chunk": self.chunk,
            "rows": self.rows,
            "age": duration(now - self.since),
            "who": self.who,
            "command": str(self.command),
        }


def worklist(
    runs: StoredRuns,
    facts: Sequence[RunFacts],
    manifests: Collection[Manifest],
    unlinked: pl.DataFrame,
    terms: ReportTerms,
) -> list[Work]:
    """Return what is to be done about these runs and beside them, what is due first on top.

    `manifests` are those of all committed runs, `unlinked` comes from
    `flows.reports.unlinked.unlinked`.
    """
    store = runs.store
    issuer = runs.issuer
    work: list[Work] = []
    for run in facts:
        work += _chunks(issuer, run, terms)
        work += _breaks(issuer, run)
    work += _unlinked(issuer, facts, unlinked)
    work += _links_ending(issuer, facts, terms)
    work += _stray_results(store, issuer)
    work += _refused_extracts(runs, manifests)
    work += _unconfirmed_delivery(store, issuer)
    return sorted(work, key=lambda line: line.order)


def _chunks(issuer: str, run: RunFacts, terms: ReportTerms) -> Iterator[Work]:
    """Yield the chunks to upload, held, and awaited; what came and does not fit is a break."""
    broken = {chunk_of(run_break["place"]) for run_break in run.breaks}
    for chunk in run.waiting:
        if chunk.chunk not in broken and chunk.state != "cancelled":
            yield _chunk(issuer, chunk, terms)


def _chunk(issuer: str, chunk: WaitingChunk, terms: ReportTerms) -> Work:
    """Return what is to be done about a chunk that waits."""
    due = chunk.since + timedelta(hours=terms.within)
    who = OPERATOR
    unanswered = chunk.missing == MISSING
    if chunk.state == "waiting" and unanswered:
        kind = "chunks to upload"
        due = chunk.since
        command = Step("outbox fetch", chunk.run, chunk.chunk, to=FOLDER)
    elif chunk.state == "held":
        kind = "chunks held"
        command = Step("outbox release", chunk.run, chunk.chunk, reason=WHY)
    elif unanswered and terms.overdue(chunk):
        kind = "results overdue"
        command = close_step(chunk.run, RESULT_SHORT, f"chunk {chunk.chunk}", LOST)
    else:
        kind = "results awaited"
        who = PARTNER
        command = Step("ingest", issuer)
    return Work(
        due=due,
        kind=kind,
        issuer=issuer,
        run=chunk.run,
        chunk=chunk.chunk,
        rows=chunk.awaiting,
        since=chunk.since,
        who=who,
        command=command,
    )


def _breaks(issuer: str, run: RunFacts) -> Iterator[Work]:
    """Yield the open breaks of a run."""
    for run_break in run.breaks:
        since = datetime.fromisoformat(run_break["since"])
        ways = run_break.get("decide")
        command = Step("report", run.run)
        if ways:
            decision = ways[0]["decision"]
            command = close_step(run.run, run_break["name"], run_break["place"], decision)
        yield Work(
            due=since,
            kind=f"break {run_break['name']}",
            issuer=issuer,
            run=run.run,
            chunk=chunk_of(run_break["place"]) or None,
            rows=run_break["rows"],
            since=since,
            who=OPERATOR,
            command=command,
        )


def _unlinked(issuer: str, runs: Iterable[RunFacts], unlinked: pl.DataFrame) -> Iterator[Work]:
    """Yield the cardholders whose last attempt gave no link, by its run and what is to be done."""
    days = {run.run: _midnight(run.as_of) for run in runs}
    was_decided = pl.col("reason").is_in(sorted(DECIDED))
    way = (
        pl.when(was_decided)
        .then(pl.struct(way=pl.lit("lost"), code="reason"))
        .otherwise(pl.struct(way="action", code=pl.lit("")))
    )
    grouped = unlinked.with_columns(way.struct.unnest()).group_by("run", "way", "code").len()
    for run, action, code, rows in grouped.iter_rows():
        if action not in _UNLINKED:
            continue
        kind, who, command = _UNLINKED[action]
        yield Work(
            due=days[run],
            kind=kind,
            issuer=issuer,
            run=run,
            chunk=None,
            rows=rows,
            since=days[run],
            who=who,
            command=command.filled({"run": run, "code": code}),
        )


def _links_ending(issuer: str, runs: Iterable[RunFacts], terms: ReportTerms) -> Iterator[Work]:
    """Yield the links that end within a week."""
    today = terms.now.date()
    last = today + timedelta(days=7)
    days: list[date] = []
    links = 0
    for run in runs:
        for day, number in run.expires.items():
            if day is not None and today <= day <= last:
                days.append(day)
                links += number
    if days:
        yield Work(
            due=_midnight(min(days)),
            kind=f"links end {SOON}",
            issuer=issuer,
            run="",
            chunk=None,
            rows=links,
            since=terms.now,
            who=OPERATOR,
            command=Step("renew", issuer, within="7d"),
        )


def _stray_results(store: Store, issuer: str) -> Iterator[Work]:
    """Yield the result files with breaks that belong to no run, while they are there."""
    for waiting in read_waiting(store, issuer).values():
        if waiting.runs or not waiting.told:
            continue
        for entry in store.keys(waiting.file):
            if entry.key == waiting.file:
                yield _stray_result(issuer, waiting.file, entry.modified)


def _stray_result(issuer: str, key: str, dropped: datetime) -> Work:
    _, _, name = key.partition("/results/")
    return Work(
        due=dropped,
        kind="result files to look at",
        issuer=issuer,
        run="",
        chunk=None,
        rows=0,
        since=dropped,
        who=OPERATOR,
        command=Step("mend ingest-again", issuer, name, reason=WHY),
    )


def _refused_extracts(runs: StoredRuns, manifests: Collection[Manifest]) -> Iterator[Work]:
    """Yield the extracts that were refused, until somebody decides about them."""
    for run, text in runs.refused(manifests).items():
        refused = datetime.fromisoformat(text)
        yield Work(
            due=refused,
            kind="refused extracts",
            issuer=runs.issuer,
            run=run,
            chunk=None,
            rows=0,
            since=refused,
            who=ISSUER,
            command=Step("extracts", runs.issuer),
        )


def _unconfirmed_delivery(store: Store, issuer: str) -> Iterator[Work]:
    """Yield the last delivery of links, unless the receiving side has confirmed it."""
    number, last = last_record(store, deliveries(issuer), Delivery)
    if last is None:
        return
    confirmed = list(store.keys(f"{deliveries(issuer)}{number:06d}/confirmed.json"))
    if not confirmed:
        yield Work(
            due=last.at,
            kind="links to confirm",
            issuer=issuer,
            run="",
            chunk=None,
            rows=last.new + last.replaced + last.withdrawn,
            since=last.at,
            who=OPERATOR,
            command=Step("deliver", issuer, confirm=number, reason=RECEIPT),
        )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
