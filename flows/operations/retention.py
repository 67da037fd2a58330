"""What retention says of a run: which part an object belongs to, what is still open, what is due.

Never due is what is unsent, unanswered or a break. Put here what decides; `purge.py` deletes.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from io import BytesIO
from typing import Any, Literal, NamedTuple

import polars as pl

from flows.book.known_runs import ClosedRun
from flows.results.decisions import sort_breaks
from flows.runs.chunks import OutboxChunk
from flows.runs.claim import holder_of, work_on
from flows.runs.closings import chunk_of
from flows.runs.context import IssuerContext
from flows.runs.events import last_answer
from flows.runs.keys import RunKeys
from flows.runs.store import Entry, read
from flows.runs.stored_run import StoredRun
from flows.steps import counted
from schemas.breaks import Break
from schemas.manifest import Manifest
from schemas.records import Abandoned, Part
from schemas.settings import Retention

_CHUNK = re.compile(r"(chunks|sealed/\d+)/(?P<name>[^/]+)")
_PART = r"part-(\d{4}-)?\d{5}"  # of the ledger, in a file's name
_CSV_REPORTS = "rejects|suppressed|held|errors|chunks|awaiting|breaks|questions"
_LEDGER_NAMES = (
    rf"ledger/{_PART}(-erased-\d+)?\.parquet",
    r"(selection|book)\.parquet",
    rf"report/({_CSV_REPORTS}|links(-\d{{5}})?)\.csv",
    r"report/(summary\.json|audit\.zip|report\.html|report\.xlsx)",
    rf"report/(rows|links)/{_PART}\.parquet",
)
_LEDGER_NAME = re.compile("|".join(_LEDGER_NAMES))
End = Literal["committed", "abandoned", "never"]


class RunState(NamedTuple):
    """The state of a run: when something last happened to it, and what is still open, in words.

    `links_until` is the last day one of its links can be opened. `end` is how it ended: an
    abandoned run has neither answers nor cardholders, one never committed must be abandoned before
    it is deleted.
    """

    since: datetime
    open: tuple[str, ...] = ()
    links_until: date | None = None
    end: End = "committed"


class Kept(NamedTuple):
    """Why a part of a run stays, and the day it is due where only its age keeps it."""

    why: str
    until: date | None = None
    run: str = ""
    part: Part = "chunks"


class Term(NamedTuple):
    """How long a part of a run is kept, and the setting that says so, as written in the TOML."""

    setting: str
    length: timedelta


def part_of(keys: RunKeys, key: str) -> Part | None:
    """Return the part of a run that an object belongs to, or None: it is not ours."""
    name = key.removeprefix(keys.base)
    chunk = _CHUNK.fullmatch(name)
    if chunk is not None and keys.chunk_epoch(chunk["name"]):
        return "chunks"
    if _LEDGER_NAME.fullmatch(name):
        return "ledger"
    return None


def objects_by_part(
    keys: RunKeys, entries: Sequence[Entry]
) -> defaultdict[str | None, list[Entry]]:
    """Return the objects of a run by the part they belong to (`part_of`)."""
    by_part = defaultdict[str | None, list[Entry]](list)
    for entry in entries:
        by_part[part_of(keys, entry.key)].append(entry)
    return by_part


def verdict(part: Part, state: RunState, settings: Retention, now: datetime) -> Kept | None:
    """Return why a part of a run stays, None where it is due; anything open keeps all of it."""
    term = term_of(part, settings, state.end)
    if state.open:
        return Kept("; ".join(state.open))
    due = state.since + term.length
    if due > now:
        return Kept(f"{term.setting}: not before {due:%Y-%m-%d}", due.date())
    if part == "ledger" and state.links_until is not None and state.links_until >= now.date():
        return Kept(f"it has links valid until {state.links_until}", state.links_until)
    return None


def term_of(part: Part, settings: Retention, end: End = "committed") -> Term:
    """Return how long a part is kept.

    An abandoned run goes whole with its chunks; one that never ended stays as long as a ledger
    does.
    """
    if end == "abandoned" or (part, end) == ("chunks", "committed"):
        return Term(f"chunks_days = {settings.chunks_days}", timedelta(days=settings.chunks_days))
    return Term(f"ledger_days = {settings.ledger_days}", timedelta(days=settings.ledger_days))


def open_reasons(
    chunks: Collection[OutboxChunk],
    awaiting: Mapping[int, int],
    breaks: Sequence[Break],
    closed: Collection[int] = (),
) -> list[str]:
    """Return what is still open in a committed run, in words.

    `awaiting` has the rows without an answer, by chunk: those of an answered chunk are open unless
    an operator closed a break of that chunk (`closed`, its number), since then they need no answer.
    A cancelled chunk expects none.
    """
    states = Counter(chunk.state for chunk in chunks)
    counts = (
        (states["waiting"], "chunk", "not uploaded"),
        (states["held"], "chunk", "on hold"),
        (states["uploaded"], "chunk", "without an answer"),
        (_unanswered_rows(chunks, awaiting, closed), "row", "without an answer"),
    )
    rows_by_kind = {run_break.name: run_break.rows for run_break in breaks}
    return [
        *(f"{counted(count, noun)} {state}" for count, noun, state in counts if count),
        *(f"{counted(rows, 'row')} in break {kind}" for kind, rows in rows_by_kind.items()),
    ]


def _unanswered_rows(
    chunks: Collection[OutboxChunk], awaiting: Mapping[int, int], closed: Collection[int]
) -> int:
    """Return how many rows of answered chunks, but for closed ones, have no answer."""
    answered = {chunk.chunk.number for chunk in chunks if chunk.state == "answered"}
    unanswered = answered.difference(closed)
    return sum(rows for number, rows in awaiting.items() if number in unanswered)


def state_of(context: IssuerContext, run: StoredRun, entries: Sequence[Entry]) -> RunState:
    """Return the state of a run that has these objects."""
    if isinstance(run.end, Manifest):
        return _committed_state(run, entries)
    holder = holder_of(work_on(context.adapters, run.id), context.adapters.now())
    claim = (f"claimed by {holder.holder}",) if holder else ()
    if isinstance(run.end, Abandoned):
        return RunState(run.end.at, claim, end="abandoned")
    written = [entry.modified for entry in entries]
    return RunState(max(written, default=run.as_planned().planned_at), claim, end="never")


def closed_state(closed: ClosedRun, run: StoredRun, entries: Sequence[Entry]) -> RunState:
    """Return the state of a closed run that has these objects, none of which is read."""
    reasons = list(_unknown_singles(run))
    days = [date.fromisoformat(day) for day in closed.expires if day]
    since = closed.since or max(entry.modified for entry in entries)
    return RunState(since, tuple(reasons), max(days, default=None))


def _committed_state(run: StoredRun, entries: Sequence[Entry]) -> RunState:
    chunks = run.outbox
    committed = min((chunk.clock for chunk in chunks), default=run.committed_at)
    since = last_answer(committed, run.history)
    summary = run.summary
    if summary is None:  # a run that was cancelled as a whole never has one
        reasons = open_reasons(chunks, {}, ())
        if any(chunk.state == "answered" for chunk in chunks):
            reasons.append("no report yet")
        return RunState(since, tuple(reasons))
    closed = {chunk_of(closing.place) for closing in run.closed_breaks}
    reasons = open_reasons(chunks, _awaiting_rows(run), _open_breaks(run, summary), closed)
    reasons += _stale_report_reasons(run, summary)
    return RunState(since, tuple(reasons), max(_links_until(run, summary), default=None))


def _awaiting_rows(run: StoredRun) -> dict[int, int]:
    """Return the rows without an answer by chunk, as the run's report has them."""
    content = read(run.store, run.keys.report("chunks.csv"))
    chunks = pl.read_csv(BytesIO(content), infer_schema=False)
    return dict(chunks.select(pl.col("chunk", "awaiting").cast(pl.UInt32)).iter_rows())


def _open_breaks(run: StoredRun, summary: Mapping[str, Any]) -> list[Break]:
    breaks = [Break(**{name: line[name] for name in Break._fields}) for line in summary["breaks"]]
    still_open, _ = sort_breaks(breaks, run.closed_breaks)
    return [run_break for run_break in still_open if not run_break.notice]


def _links_until(run: StoredRun, summary: Mapping[str, Any]) -> Iterator[date]:
    """Yield the last day on which links of a run, and of the runs that resent its rows, are valid.

    The extract still has a corrected row as this run sent it: without this run's ledger it would
    seem changed.
    """
    # a link without a date has expired before any ledger is due
    yield from (date.fromisoformat(day) for day in summary["expires"] if day)
    for later in run.repeats:
        if later.summary is not None:
            yield from _links_until(later, later.summary)


def _stale_report_reasons(run: StoredRun, summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the report of a run does not show.

    That is: what was recorded since, breaks beyond its list, unanswered single links.
    """
    recorded = summary["open"]["recorded"]
    if run.outcomes.state.items() - recorded.items():
        yield "results newer than its report"
    if summary["more_breaks"] and not summary["breaks"][-1]["notice"]:  # notices are listed last
        yield "more breaks than the report lists"
    yield from _unknown_singles(run)


def _unknown_singles(run: StoredRun) -> Iterator[str]:
    unknown = sum(single.answered is None for single in run.single_link_attempts)
    if unknown:
        yield f"{unknown} single links with unknown outcome"
