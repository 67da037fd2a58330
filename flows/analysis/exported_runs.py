"""A run as analysts read it (`schemas.analysis.ExportedRuns`)."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from flows.analysis.exported_rows import as_parquet
from flows.reports.summary import FIGURES
from flows.runs.keys import RunId, hive
from flows.runs.stored_run import StoredRun
from schemas.analysis import ExportedRuns
from schemas.manifest import Manifest
from schemas.records import Abandoned

_NOTHING: Mapping[str, Any] = {}


def write_run(run: StoredRun) -> None:
    """Write what is known of a run."""
    frame = pl.DataFrame([exported_run(run)], ExportedRuns.dtypes())
    run.store.replace(run_key(run.keys.run), [as_parquet(frame)])


def run_key(run: RunId) -> str:
    """Return the key of what is known of a run."""
    return f"{hive(run.issuer, 'runs', run.day)}{run}.parquet"


def exported_run(run: StoredRun) -> dict[str, Any]:
    """Return what is known of a run, by column."""
    manifest = run.manifest
    summary = run.summary or _NOTHING
    counts = run.status._asdict() if manifest is not None else _NOTHING
    selection = run.plan.selection if run.plan is not None else None
    hours = summary.get("hours", _NOTHING)
    breaks = [known for known in summary.get("breaks", ()) if not known["notice"]]
    return {
        "run": run.id,
        "kind": selection.kind if selection else "extract",
        "repeats": selection.of if selection else None,
        "state": run.status.state,
        "ended": _ended(run),
        "sequence": manifest.sequence if manifest else None,
        "dropped_at": run.dropped_at,
        "committed_at": run.committed_at if manifest else None,
        **{fate: counts.get(fate) for fate in FIGURES},
        "chunks": len(manifest.chunks) if manifest else None,
        "answered": summary.get("chunks", _NOTHING).get("answered"),
        "breaks": len(breaks) + summary.get("more_breaks", 0) if summary else None,
        "hours_median": hours.get("median"),
        "hours_slowest": hours.get("slowest"),
        "in_time": hours.get("share"),
        "settings": run.plan.settings_in_force or None if run.plan else None,
    }


def _ended(run: StoredRun) -> str | None:
    match run.end:
        case Manifest():
            return "committed"
        case Abandoned():
            return "abandoned"
    return None
