"""Words of the service that nobody knows, counted by their names: doubts, never failures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl

from flows.runs.placements import read_placements
from flows.runs.stored_run import StoredRun
from schemas.partner_api.jobs import PENDING
from schemas.partner_api.link_placements import (
    AUTHENTICATED,
    AUTHENTICATING,
    ENDS,
    ENDS_WITH_DAY,
    PLACED,
)

STATUS: Final = "status"
END: Final = "termination_type"
_STATUSES: Final = AUTHENTICATED | AUTHENTICATING | ENDS | ENDS_WITH_DAY
_ENDS: Final = PLACED | ENDS


def unknown_words(runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """Return the statuses of running jobs, and the ends of others, that the interface lacks.

    Each with its setting in `[service.words]` (`word_of`), its name, and how many jobs have it.
    """
    jobs = pl.concat([pl.DataFrame(schema=_JOBS), *_jobs(runs)]).unique("job_id")
    runs_on = pl.col(END).is_null()
    is_known = pl.col(STATUS).is_in(_STATUSES) | pl.col(STATUS).str.starts_with(PENDING)
    statuses = jobs.filter(runs_on & ~is_known)
    ends = jobs.filter(~runs_on & ~pl.col(END).is_in(_ENDS))
    return [*_counted(statuses, STATUS), *_counted(ends, END)]


_JOBS: Final = pl.Schema({"job_id": pl.String(), STATUS: pl.String(), END: pl.String()})


def _jobs(runs: Iterable[StoredRun]) -> Iterator[pl.DataFrame]:
    for run in runs:
        for part in run.committed().ledger:
            jobs = read_placements(run, part, ["jobs"])["jobs"].explode().drop_nulls()
            if jobs.len():
                yield jobs.struct.unnest().select(*_JOBS)


def _counted(jobs: pl.DataFrame, column: str) -> Iterator[dict[str, Any]]:
    counts = jobs.group_by(column).len().sort("len", column, descending=[True, False])
    for word, number in counts.iter_rows():
        yield {"word_of": column, "word": word, "jobs": number}


def doubt_line(doubt: Mapping[str, Any]) -> str:
    """Return a doubt as a sentence."""
    words = {STATUS: "with a status", END: "that ended in a way"}
    return (
        f"doubt: {doubt['jobs']:,} jobs {words[doubt['word_of']]} nobody knows, {doubt['word']}: "
        f"say in [service.words] {doubt['word_of']} what it means"
    )
