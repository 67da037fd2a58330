"""The plans of an issuer's runs, as they are kept with the book: of which extract each run is.

A plan is written once, and so is the end of a run, so what is kept of a run that has ended stays
true. Runs that are not in the kept book, or have not ended, are read.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

from flows.runs.store import ConflictError
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from schemas.manifest import Manifest

End = Literal["committed", "abandoned", ""]


class KnownPlan(BaseModel):
    """What is kept of a run's plan: its source, its day, and how it ended; "" before that.

    `looked_at`: whether its figures were, and whether it was whole then or its ledger purged
    (`known_runs.py`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    run: str
    key: str
    version: str
    size: int
    sha256: str
    as_of: date
    is_whole: bool  # of the whole extract, not of a selection of its rows
    end: End
    committed_at: AwareDatetime | None = None
    looked_at: Literal["", "whole", "purged"] = ""

    @property
    def midnight(self) -> datetime:
        """When its business date began."""
        return datetime.combine(self.as_of, time(), UTC)

    @property
    def since(self) -> datetime:
        """Since when what it says of its rows is known: its commit."""
        return self.committed_at or self.midnight


def read_plans(runs: StoredRuns, kept: Mapping[str, KnownPlan]) -> dict[str, KnownPlan]:
    """Return what is known of the plan of each run that has one, by run, by business date."""
    ids = list(map(str, runs.ids))
    unknown = [run for run in ids if run not in kept or not kept[run].end]
    read = concurrently(lambda run: _read_plan(StoredRun.by_id(runs.store, run)), unknown)
    plans = dict(kept) | {plan.run: plan for plan in read if plan is not None}
    return {run: plans[run] for run in ids if run in plans}


def ended(plans: Iterable[KnownPlan]) -> dict[str, KnownPlan]:
    """Return the plans of the runs that have ended, by run."""
    return {plan.run: plan for plan in plans if plan.end}


def _read_plan(run: StoredRun) -> KnownPlan | None:
    plan = run.plan
    if plan is None:
        return None
    end: End = ""
    if run.end is not None:
        end = "committed" if isinstance(run.end, Manifest) else "abandoned"
    source = plan.source
    return KnownPlan(
        run=run.id,
        key=source.key,
        version=source.version,
        size=source.size,
        sha256=source.sha256,
        as_of=plan.as_of,
        is_whole=plan.selection is None,
        end=end,
        committed_at=_committed_at(run) if end == "committed" else None,
    )


def _committed_at(run: StoredRun) -> datetime | None:
    """Return when a run was committed, None where its history is not as we wrote it."""
    with suppress(ConflictError):  # `audit verify` says so
        return run.committed_at
    return None
