"""What the report across runs knows of each run: by its report, its purge, or its manifest."""

from collections.abc import Mapping, Sequence
from datetime import date
from io import BytesIO
from typing import Any, NamedTuple

import polars as pl

from flows.reports.open_items import WaitingChunk, waiting_chunks
from flows.reports.summary import FIGURES
from flows.runs.store import read
from flows.runs.stored_run import StoredRun
from schemas.manifest import Manifest

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
    hours: Mapping[str, int] = {}  # links by hours


def run_facts(run: StoredRun) -> RunFacts:
    """Return a committed run's facts; without a report and a purge, every sent row is awaiting."""
    if run.summary is not None:
        return _reported(run, run.committed(), run.summary)
    if run.purged_ledger is None:
        return _unreported(run, run.committed())
    manifest = run.committed()
    return RunFacts(
        run.id,
        manifest.as_of,
        run.purged_ledger.verdict,
        run.purged_ledger.rows,
        _reasons(manifest),
        expires={},
        waiting=(),
    )


def _reported(run: StoredRun, manifest: Manifest, summary: Mapping[str, Any]) -> RunFacts:
    refused = summary["reasons"].get("partner", ())
    waiting = _waiting(run, _chunks_reported(run)) if summary["rows"]["awaiting"] else ()
    return RunFacts(
        run.id,
        manifest.as_of,
        summary["verdict"],
        summary["rows"],
        _reasons(manifest, [(reason["code"], reason["rows"]) for reason in refused]),
        {_day(text): links for text, links in summary["expires"].items()},
        waiting,
        [run_break for run_break in summary.get("breaks", ()) if not run_break["notice"]],
        summary.get("hours", {}).get("spread", {}),
    )


def _unreported(run: StoredRun, manifest: Manifest) -> RunFacts:
    counts = manifest.counts
    known = counts.model_dump(include=set(FIGURES))
    rows = dict.fromkeys(FIGURES, 0) | known | {"awaiting": counts.submitted}
    waiting = _waiting(run, _chunks_unanswered(manifest)) if counts.submitted else ()
    return RunFacts(
        run.id,
        manifest.as_of,
        "committed, to be uploaded",
        rows,
        _reasons(manifest),
        expires={},
        waiting=waiting,
    )


def _reasons(
    manifest: Manifest, partner: Sequence[tuple[str, int]] = ()
) -> dict[str, Sequence[tuple[str, int]]]:
    return {"submit": sorted(manifest.reasons.items()), "partner": partner}


def _day(text: str) -> date | None:
    return date.fromisoformat(text) if text else None


def _waiting(run: StoredRun, chunks: pl.DataFrame) -> tuple[WaitingChunk, ...]:
    """Return the chunks with unanswered rows."""
    return tuple(waiting_chunks(chunks.cast(pl.UInt32), run.chunk_states))


def _chunks_reported(run: StoredRun) -> pl.DataFrame:
    content = read(run.store, run.keys.report("chunks.csv"))
    return pl.read_csv(BytesIO(content), columns=_CHUNK, infer_schema=False)


def _chunks_unanswered(manifest: Manifest) -> pl.DataFrame:
    chunks = [(chunk.number, chunk.rows, 0, chunk.rows) for chunk in manifest.chunks]
    return pl.DataFrame(chunks, _CHUNK, orient="row")
