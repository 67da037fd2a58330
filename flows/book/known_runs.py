"""What is kept of runs about which nothing is open any more, so that they need not be read again.

`book/closed.json` has the figures of each, as its report or the record of its purge has them.
A run is closed once it is committed and reported, nothing of it is awaited, no break is open, and
the audit trail has not named it for a day. Once the trail names it again, or retention removes its
ledger, it is read again, and so it is where the kept figures are missing or have other bytes than
the head names.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

import polars as pl
from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter, ValidationError

from flows.book.head import Head, generation, news_since, read_head
from flows.book.known_plans import KnownPlan, read_plans
from flows.book.known_rows import (
    LARGEST,
    NO_ROWS,
    read_known_rows,
    runs_with,
    write_known_rows,
)
from flows.errors import CardlinkError
from flows.runs.events import REPEATED_BY, last_answer
from flows.runs.identity import digest
from flows.runs.keys import book
from flows.runs.run_status import RunStatus, purged_state
from flows.runs.store import read_if_stored
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently

TOGETHER = 16  # runs that are looked at together


class ClosedRun(BaseModel):
    """The figures of a committed run about which nothing is open: all its `chunks` are answered.

    `submit`, `partner`: rows by reason; `expires`: links by the day they end, "" where that is not
    known; `hours`: links by hours. Without the last three where its ledger was purged. `since`:
    when its last answer came, None where another run has sent rows of it again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    is_purged: bool = False
    verdict: str
    rows: dict[str, int]
    chunks: int
    submit: dict[str, int]
    partner: list[tuple[str, int]] = []
    expires: dict[str, int] = {}
    hours: dict[str, int] = {}
    since: AwareDatetime | None = None
    has_rows: bool = False  # its rows are kept too (`known_rows.py`)

    def status(self, run: str) -> RunStatus:
        """Return the run's state in words, and where its rows are."""
        rows: dict[str, Any] = dict(self.rows)
        state = purged_state(self.verdict) if self.is_purged else self.verdict
        return RunStatus(run, state, **rows)


_CLOSED = TypeAdapter(dict[str, ClosedRun])


class KnownRuns(NamedTuple):
    """What is known of an issuer's runs: the plan of each by business date, and the closed ones.

    `read_rows` returns what is kept of the rows of closed runs (`known_rows.KNOWN_ROWS`).
    """

    plans: Mapping[str, KnownPlan]
    closed: Mapping[str, ClosedRun]
    read_rows: Callable[[], pl.DataFrame] = lambda: NO_ROWS

    def without(self, cuid: str) -> set[str]:
        """Return the closed runs that are known to have no row with this cuid."""
        rows = self.read_rows()
        if rows.is_empty():
            return set()
        known = {run for run, closed in self.closed.items() if closed.has_rows}
        return known - runs_with(rows, cuid)

    def links(self) -> pl.DataFrame:
        """Return the links of the closed runs whose rows are kept: run, row, digest (`link`)."""
        known = [run for run, closed in self.closed.items() if closed.has_rows]
        rows = self.read_rows().filter(pl.col("run").is_in(known))
        return rows.select("run", "row", "link").drop_nulls("link")

    def unread_state(self, run: str) -> ClosedRun | None:
        """Return the figures by which retention judges a closed run, None where it is read."""
        closed = self.closed.get(run)
        return closed if closed is not None and closed.since is not None else None

    @property
    def committed(self) -> list[KnownPlan]:
        """The plans of the committed runs, by business date."""
        return [plan for plan in self.plans.values() if plan.end == "committed"]

    def statuses(self, runs: StoredRuns) -> list[RunStatus]:
        """Return the status of every run, newest first."""

        def status(run: StoredRun) -> RunStatus:
            closed = self.closed.get(run.id)
            return run.status if closed is None else closed.status(run.id)

        return concurrently(lambda run: status(runs.run(run)), runs.ids[::-1])


NO_RUNS = KnownRuns({}, {})


def known_runs(runs: StoredRuns) -> KnownRuns:
    """Return what is known of an issuer's runs; nothing is written."""
    head = read_head(runs.store, runs.issuer, generation(runs.store, runs.issuer))
    news = news_since(runs.store, runs.issuer, head)
    return KeptRuns(runs, head, news.runs, runs.without_ledger).read()


def closed_runs(runs: StoredRuns) -> Collection[str]:
    """Return the ids of the runs about which nothing is open, as far as that is known."""
    return known_runs(runs).closed.keys()


@dataclass(frozen=True)
class KeptRuns:
    """The closed runs of an issuer as they are kept, and how they are kept up to date.

    `kept`: the stored head; `changed`: the runs that may have changed since; `purged`: those
    without a ledger.
    """

    runs: StoredRuns
    kept: Head
    changed: Collection[str]
    purged: Collection[str]

    def read(self) -> KnownRuns:
        """Return the plans of all runs, and what is kept of the closed ones."""
        plans = read_plans(self.runs, self.kept.plans)
        fitting = {run for run, plan in plans.items() if plan.looked_at and self._fits(plan)}
        closed = {run: self._closed[run] for run in fitting & self._closed.keys()}
        return KnownRuns(plans, closed, self._read_rows)

    def keep(self, head: Head, reported: Collection[str] = ()) -> Head:
        """Write the figures of the runs that were closed since; return the head that names them.

        `reported`: runs whose report was written anew without a change that the trail names.
        """
        stale = self._stale(head.plans, reported)
        unseen = {run: head.plans[run].model_copy(update={"looked_at": ""}) for run in stale}
        plans = {**head.plans, **unseen}
        busy = head.recent.keys() | set(head.uncommitted) if head.trail else self.changed
        news = [run for run, plan in plans.items() if _is_to_close(plan) and run not in busy]
        if not stale and len(news) < TOGETHER:
            return head
        closed = self._still_closed(plans) | self._look_at(news)
        plans |= {run: self._as_looked_at(plans[run]) for run in news}
        content = _CLOSED.dump_json(dict(sorted(closed.items())), exclude_defaults=True)
        self.runs.store.replace(_key(self.runs.issuer), [content])
        with_rows = {run for run, known in closed.items() if known.has_rows}
        rows = self._write_rows(with_rows, with_rows.intersection(news))
        parts = {"plans": plans, "closed": digest(content), "closed_rows": rows}
        return head.model_copy(update=parts)

    def _read_rows(self) -> pl.DataFrame:
        return read_known_rows(self.runs.store, self.runs.issuer, self.kept.closed_rows)

    def _write_rows(self, runs: Collection[str], news: Collection[str]) -> str:
        """Write what is kept of the rows of closed runs; return its SHA-256."""
        kept = self._read_rows()
        unread = runs if kept.is_empty() else news
        return write_known_rows(self.runs.store, self.runs.issuer, kept, runs, sorted(unread))

    def _stale(self, plans: Mapping[str, KnownPlan], reported: Collection[str]) -> set[str]:
        """Return the runs that are not as they were when they were looked at.

        All of them where what is stored is not what the head names.
        """
        looked_at = {run for run, plan in plans.items() if plan.looked_at}
        if self._content is None:
            return looked_at
        return {run for run in looked_at if run in reported or not self._fits(plans[run])}

    def _fits(self, plan: KnownPlan) -> bool:
        """Return whether what a run was when it was looked at is what it is now."""
        return plan.run not in self.changed and plan.looked_at == self._form(plan)

    def _as_looked_at(self, plan: KnownPlan) -> KnownPlan:
        return plan.model_copy(update={"looked_at": self._form(plan)})

    def _still_closed(self, plans: Mapping[str, KnownPlan]) -> dict[str, ClosedRun]:
        """Return what is kept of the runs that are as they were when they were looked at."""
        known = [run for run, plan in plans.items() if plan.looked_at]
        return {run: self._closed[run] for run in known if run in self._closed}

    def _form(self, plan: KnownPlan) -> str:
        return "purged" if plan.run in self.purged else "whole"

    def _look_at(self, runs: Collection[str]) -> dict[str, ClosedRun]:
        """Return the figures of those of these runs about which nothing is open."""
        figures = zip(runs, concurrently(self._figures, runs), strict=True)
        return {run: closed for run, closed in figures if closed is not None}

    def _figures(self, run_id: str) -> ClosedRun | None:
        with suppress(CardlinkError):  # whoever needs the run meets what is unreadable
            return closed_run(StoredRun.by_id(self.runs.store, run_id))
        return None

    @cached_property
    def _content(self) -> bytes | None:
        """What is stored, None where that is not what the head names."""
        content = (
            read_if_stored(self.runs.store, _key(self.runs.issuer)) if self.kept.closed else None
        )
        return content if content is not None and digest(content) == self.kept.closed else None

    @cached_property
    def _closed(self) -> Mapping[str, ClosedRun]:
        with suppress(ValidationError):
            return _CLOSED.validate_json(self._content or b"")
        return {}


def _is_to_close(plan: KnownPlan) -> bool:
    """Return whether a run is committed and was not looked at yet."""
    return plan.end == "committed" and not plan.looked_at


def closed_run(run: StoredRun) -> ClosedRun | None:
    """Return the figures of a committed run, None where something about it is open."""
    summary = run.summary
    if summary is None:
        return _closed_by_purge(run)
    if _is_open(summary) or run.purged_ledger is not None or run.is_report_behind:
        return None
    partner = summary["reasons"].get("partner", ())
    return ClosedRun(
        verdict=summary["verdict"],
        rows=summary["rows"],
        chunks=summary["chunks"]["sent"],
        submit=dict(run.committed().reasons),
        partner=[(reason["code"], reason["rows"]) for reason in partner],
        expires=summary["expires"],
        hours=summary.get("hours", {}).get("spread", {}),
        since=None if _is_repeated(run) or not run.committed().chunks else _last_answer(run),
        has_rows=summary["rows"]["read"] <= LARGEST,
    )


def _is_repeated(run: StoredRun) -> bool:
    """Return whether another run has sent rows of a run again."""
    return any(REPEATED_BY.search(entry.key) for entry in run.event_entries)


def _last_answer(run: StoredRun) -> datetime:
    committed = min(chunk.clock for chunk in run.chunk_states)
    return last_answer(committed, run.events())


def _is_open(summary: Mapping[str, Any]) -> bool:
    """Return whether a report has rows that wait, chunks without an answer, or open breaks."""
    breaks = [known for known in summary.get("breaks", ()) if not known["notice"]]
    chunks = summary["chunks"]
    is_answered = chunks["sent"] == chunks.get("answered") and not summary["rows"]["awaiting"]
    return not is_answered or bool(breaks) or bool(summary.get("more_breaks"))


def _closed_by_purge(run: StoredRun) -> ClosedRun | None:
    record = run.purged_ledger
    if record is None or run.cancelled_chunks:
        return None
    manifest = run.committed()
    return ClosedRun(
        is_purged=True,
        verdict=record.verdict,
        rows=record.rows,
        chunks=len(manifest.chunks),
        submit=dict(manifest.reasons),
    )


def _key(issuer: str) -> str:
    return f"{book(issuer)}closed.json"
