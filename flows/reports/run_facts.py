"""What the report across runs knows of each run: by its report, its purge, or its manifest."""

from collections.abc import Mapping, Sequence
from datetime import date
from io import BytesIO
from typing import Any, NamedTuple

import polars as pl

from flows.book.known_runs import ClosedRun, KnownPlan, KnownRuns
from flows.reports.open_items import WaitingChunk, waiting_chunks
from flows.reports.summary import FIGURES
from flows.runs.adapters import Adapters
from flows.runs.store import read
from flows.runs.stored_run import StoredRun
from flows.runs.threads import concurrently
from schemas.manifest import Manifest
from schemas.records import Purged

_CHUNK = ["chunk", "sent", "answers", "awaiting"]


class RunFacts(NamedTuple):
    """One committed run: its figures, what was refused, when its links end, what is open."""

    run: str
    as_of: date
    state: str
    rows: Mapping[str, int]
    reasons: Mapping[str, Sequence[tuple[str, int]]]  # by stage: code, rows
    expires: Mapping[date | None, int]  # links
    waiting: tuple[WaitingChunk, ...]
    breaks: Sequence[Mapping[str, Any]] = ()  # open ones, as in summary.json
    closed: Sequence[Mapping[str, Any]] = ()  # closed ones, as in summary.json
    hours: Mapping[str, int] = {}  # links by hours
    is_behind: bool = False  # its report was made without something recorded since

    @property
    def rows_awaited(self) -> int:
        """How many of its rows still wait, without those of cancelled chunks."""
        return sum(chunk.awaiting for chunk in self.waiting if not chunk.is_cancelled)


def facts_of(
    known: KnownRuns, adapters: Adapters, start: date | None = None, end: date | None = None
) -> list[RunFacts]:
    """Return the facts of the committed runs of these business dates, by business date.

    Those of closed runs are as they are kept; the others are read.
    """

    def facts(plan: KnownPlan) -> RunFacts:
        closed = known.closed.get(plan.run)
        if closed is None:
            return run_facts(StoredRun.by_id(adapters, plan.run))
        return _closed(plan, closed)

    plans = [
        plan
        for plan in known.committed
        if (start or plan.as_of) <= plan.as_of <= (end or plan.as_of)
    ]
    return concurrently(facts, plans, adapters.connections)


def run_facts(run: StoredRun) -> RunFacts:
    """Return a committed run's facts; without a report and a purge, every sent row is awaiting."""
    if run.summary is not None:
        return _reported(run, run.summary)
    if run.purged_ledger is not None:
        return _purged(run, run.purged_ledger)
    return _unreported(run)


def _closed(plan: KnownPlan, closed: ClosedRun) -> RunFacts:
    return RunFacts(
        run=plan.run,
        as_of=plan.as_of,
        state=closed.verdict,
        rows=closed.rows,
        reasons={"submit": sorted(closed.submit.items()), "partner": closed.partner},
        expires={_day(text): links for text, links in closed.expires.items()},
        waiting=(),
        hours=closed.hours,
    )


def _reported(run: StoredRun, summary: Mapping[str, Any]) -> RunFacts:
    manifest = run.committed()
    refused = summary["reasons"].get("partner", ())
    return RunFacts(
        run=run.id,
        as_of=manifest.as_of,
        state=summary["verdict"],
        rows=summary["rows"],
        reasons=_reasons(manifest, [(reason["code"], reason["rows"]) for reason in refused]),
        expires={_day(text): links for text, links in summary["expires"].items()},
        waiting=_waiting(run, _chunks_reported(run)) if summary["rows"]["awaiting"] else (),
        breaks=[run_break for run_break in summary.get("breaks", ()) if not run_break["notice"]],
        closed=summary.get("closed", ()),
        hours=summary.get("hours", {}).get("spread", {}),
        is_behind=run.is_report_behind,
    )


def _purged(run: StoredRun, purged: Purged) -> RunFacts:
    manifest = run.committed()
    return RunFacts(
        run=run.id,
        as_of=manifest.as_of,
        state=purged.verdict,
        rows=purged.rows,
        reasons=_reasons(manifest),
        expires={},
        waiting=(),
    )


def _unreported(run: StoredRun) -> RunFacts:
    manifest = run.committed()
    submitted = manifest.counts.submitted
    counts = manifest.counts.model_dump(include=set(FIGURES))
    return RunFacts(
        run=run.id,
        as_of=manifest.as_of,
        state="committed, to be uploaded",
        rows=dict.fromkeys(FIGURES, 0) | counts | {"awaiting": submitted},
        reasons=_reasons(manifest),
        expires={},
        waiting=_waiting(run, _chunks_unanswered(manifest)) if submitted else (),
    )


def _reasons(
    manifest: Manifest, partner: Sequence[tuple[str, int]] = ()
) -> dict[str, Sequence[tuple[str, int]]]:
    return {"submit": sorted(manifest.reasons.items()), "partner": partner}


def _day(text: str) -> date | None:
    return date.fromisoformat(text) if text else None


def _waiting(run: StoredRun, chunks: pl.DataFrame) -> tuple[WaitingChunk, ...]:
    """Return the chunks with unanswered rows; those not uploaded yet with the keys they have."""
    waiting = waiting_chunks(chunks.cast(pl.UInt32), run.chunk_states)
    return tuple(_with_keys(run, chunk) for chunk in waiting)


def _with_keys(run: StoredRun, chunk: WaitingChunk) -> WaitingChunk:
    if chunk.state not in ("waiting", "held"):
        return chunk
    return chunk._replace(sealed_to=run.sealed_chunks[chunk.chunk].recipients)


def _chunks_reported(run: StoredRun) -> pl.DataFrame:
    content = read(run.store, run.keys.report("chunks.csv"))
    return pl.read_csv(BytesIO(content), columns=_CHUNK, infer_schema=False)


def _chunks_unanswered(manifest: Manifest) -> pl.DataFrame:
    chunks = [(chunk.number, chunk.rows, 0, chunk.rows) for chunk in manifest.chunks]
    return pl.DataFrame(chunks, _CHUNK, orient="row")
