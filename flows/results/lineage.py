"""The history of a run that others repeat: what resubmissions made of its rows, each counted once.

A resubmission repeats rows of one run, and can be repeated itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import polars as pl

from flows.book.attempts import CANCELLED
from flows.results.row_states import REFUSED, SETTLED, after_all, run_rows
from flows.runs.stored_run import StoredRun
from schemas.ledger import AWAITING, ERROR, LINKED, REJECTED


def repeated_runs(run: StoredRun) -> list[StoredRun]:
    """Return the runs that a run repeats, nearest first, as far as their rows are still stored."""
    repeated = list[StoredRun]()
    nearest = _repeated_by(run)
    while nearest is not None:
        repeated.append(nearest)
        nearest = _repeated_by(nearest)
    return repeated


def _repeated_by(run: StoredRun) -> StoredRun | None:
    """Return the run that a resubmission repeats; None where its rows are not stored any more."""
    if run.manifest is None:
        return None
    selection = run.manifest.selection
    if selection is None or selection.kind != "resubmit":
        return None
    repeated = StoredRun.by_id(run.adapters, selection.of)
    return repeated if _has_rows(repeated) else None


def _has_rows(run: StoredRun) -> bool:
    return run.manifest is not None and run.purged_ledger is None


def newest_first(runs: Iterable[StoredRun]) -> list[StoredRun]:
    """Return these runs and those they repeat, every run before those it repeats.

    That is the order to report them in.
    """
    by_depth = dict[str, tuple[int, StoredRun]]()
    for run in runs:
        chain = [run, *repeated_runs(run)]
        for depth, member in enumerate(reversed(chain)):
            by_depth.setdefault(member.id, (depth, member))
    return [run for _, run in sorted(by_depth.values(), key=lambda pair: (-pair[0], pair[1].id))]


class Attempt(NamedTuple):
    """A resubmission of rows of a run, directly or not.

    `started`: when it was planned. `rows`: origin (a row of the run), row and state.
    """

    started: datetime
    run: StoredRun
    rows: pl.DataFrame

    @property
    def facts(self) -> dict[str, Any]:
        """What the report of the run says of it."""
        states = Counter(self.rows["state"])
        return {
            "run": self.run.id,
            "as_of": self.run.committed().as_of.isoformat(),
            "rows": self.rows.height,
            **{state: states[state] for state in (LINKED, ERROR, AWAITING, REJECTED, CANCELLED)},
        }


def attempts_after(run: StoredRun, counts: Mapping[str, int]) -> dict[str, Any] | None:
    """Return a run's resubmissions, if any, and its rows after them.

    `counts`: its rows by state before them.
    """
    attempts = sorted(repeats_of(run), key=lambda attempt: (attempt.started, attempt.run.id))
    if not attempts:
        return None
    resent = [attempt.rows for attempt in attempts]
    origins = pl.concat(resent)["origin"].unique().implode()
    own_rows = [
        part.filter(pl.col("row").is_in(origins)).select("row", "state") for part in run_rows(run)
    ]
    own = {**counts, REFUSED: counts["rejected"]}
    return {
        "runs": [attempt.facts for attempt in attempts],
        "after": after_all(own, pl.concat(own_rows), resent),
    }


def settled_since(run: StoredRun) -> pl.Series:
    """Return the rows of a run that are linked or awaiting in a later attempt."""
    settled = [
        attempt.rows.filter(pl.col("state").is_in(SETTLED))["origin"] for attempt in repeats_of(run)
    ]
    return pl.concat([pl.Series("origin", dtype=pl.UInt32), *settled])


def repeats_of(run: StoredRun) -> Iterator[Attempt]:
    """Yield the runs that repeat rows of a run, directly or not."""
    for repeat in run.repeats:
        if _has_rows(repeat):
            yield from _attempts_by(repeat)


def _attempts_by(repeat: StoredRun) -> Iterator[Attempt]:
    """Yield a run that repeats another, and those that repeat it in turn."""
    rows = pl.concat(part.select("row", "origin", "state") for part in run_rows(repeat))
    yield Attempt(repeat.as_planned().planned_at, repeat, rows.select("origin", "row", "state"))
    roots = rows.select(origin="row", root="origin")
    for later in repeats_of(repeat):
        rooted = later.rows.join(roots, on="origin", maintain_order="left")
        yield later._replace(rows=rooted.select(pl.col("root").alias("origin"), "row", "state"))
