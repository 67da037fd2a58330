"""Which rows get a single link in one command, and what is known of the others before it begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import polars as pl

from flows.partner_api.single_request import service_of
from flows.partner_api.source_rows import NO_RECORD, refined_rows
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.single_links import SingleLink
from flows.runs.stored_run import StoredRun
from schemas.portal import CUID
from schemas.records import LINKED, REFUSED, UNKNOWN

LOST: Final = "lost"  # requested, and its answer is not known
UNREQUESTED: Final = "not requested"
NO_ANSWER: Final = "no answer is recorded"


class RowName(NamedTuple):
    """A row of a run, by its number from 1."""

    run: str
    row: int


class RowOutcome(NamedTuple):
    """What became of a row; `is_earlier`: of an earlier command, so that nothing was requested."""

    outcome: str
    why: str = ""
    is_earlier: bool = False


class RunRows(NamedTuple):
    """The rows of a run that are due, refined, and how often each was requested before."""

    run: StoredRun
    rows: pl.DataFrame
    requests: Counter[int]


class LinkPlan(NamedTuple):
    """What is to be requested, and the outcomes of the rows for which nothing is."""

    due: Sequence[RunRows]
    outcomes: dict[RowName, RowOutcome]
    runs: Sequence[StoredRun]

    @property
    def cuids(self) -> frozenset[str]:
        """The cuids of the rows that are due."""
        return frozenset(chain.from_iterable(part.rows[CUID] for part in self.due))

    @property
    def names(self) -> Iterator[RowName]:
        """The rows that are due."""
        for part in self.due:
            for row in part.rows["row"]:
                yield RowName(part.run.id, row)


def plan_links(
    context: IssuerContext, names: Iterable[RowName], *, retry_refused: bool = False
) -> LinkPlan:
    """Read the named rows from their extracts, each of which is opened once.

    A row that was linked, refused or lost as a single link before is not requested again; with
    `retry_refused` one that was refused is. Raises as `refined_rows` and NoServiceError.
    """
    service_of(context)
    by_run = dict[str, set[int]]()
    for name in names:
        by_run.setdefault(name.run, set()).add(name.row)
    plan = LinkPlan([], {}, [StoredRun.by_id(context.adapters, run) for run in by_run])
    parts = [_planned(context, run, by_run[run.id], plan, retry_refused) for run in plan.runs]
    return plan._replace(due=[part for part in parts if not part.rows.is_empty()])


def _planned(
    context: IssuerContext, run: StoredRun, rows: set[int], plan: LinkPlan, retry_refused: bool
) -> RunRows:
    """Return the rows of a run that are due, and note the outcomes of the others."""
    requests = Counter[int]()
    settled = dict[int, RowOutcome | None]()  # by the last attempt of each row
    for attempt in run.single_link_attempts:
        row = attempt.asked.row
        if row in rows:
            requests[row] += 1
            settled[row] = _earlier(context, attempt, retry_refused)
    due = {row for row in rows if settled.get(row) is None}
    outcomes = {row: outcome for row, outcome in settled.items() if outcome is not None}
    frame = pl.DataFrame()
    if due:
        refined = refined_rows(context, run, due)
        frame = refined.rows
        good = set() if frame.is_empty() else set(frame["row"])
        for row in due - good:
            outcomes[row] = RowOutcome(UNREQUESTED, refined.refused.get(row, NO_RECORD))
    plan.outcomes.update({RowName(run.id, row): outcomes[row] for row in sorted(outcomes)})
    return RunRows(run, frame, requests)


def _earlier(context: IssuerContext, attempt: SingleLink, retry_refused: bool) -> RowOutcome | None:
    """Return what an earlier request for a row came to; None where it may be requested again."""
    answer = attempt.answered
    if answer is None or attempt.state == UNKNOWN:
        return RowOutcome(LOST, NO_ANSWER, is_earlier=True)
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    if attempt.state == LINKED and (answer.expires_on is None or answer.expires_on >= today):
        return RowOutcome(LINKED, is_earlier=True)
    if attempt.state == REFUSED and not retry_refused:
        return RowOutcome(REFUSED, ", ".join(answer.reasons), is_earlier=True)
    return None
