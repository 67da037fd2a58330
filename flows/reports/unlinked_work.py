"""What is to be done about cardholders without a link, by the run of their last attempt."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import polars as pl

from flows.book.known_runs import KnownPlan
from flows.reports import work_kinds as kinds
from flows.reports.work import Work
from schemas.actions import ASK, FIX, RESUBMIT
from schemas.breaks import DECISIONS, EXPIRED, LOST
from schemas.corrections import is_at_source
from schemas.reasons import CANCELLED_CHUNK

# what is to be done about cardholders without a link, by the reason of their last attempt
_BY_REASON = {
    DECISIONS[LOST].reason: kinds.LOST_ROWS,
    DECISIONS[EXPIRED].reason: kinds.EXPIRED_ROWS,
    CANCELLED_CHUNK: kinds.CANCELLED_ROWS,
}
# how long a cardholder without a link waits before a run's can be given up beside newer ones
OLD = timedelta(days=14)
# and else by its action
_BY_ACTION = {FIX: kinds.CORRECT, RESUBMIT: kinds.SEND_AGAIN, ASK: kinds.ASK_ABOUT}


class _Refused(NamedTuple):
    """How many cardholders a reason left without a link, and when the first answer said so."""

    cardholders: int
    answered: datetime | None  # None: nobody answered, we refused their rows


def unlinked_work(
    issuer: str, committed: Iterable[KnownPlan], lacking: pl.DataFrame, now: datetime
) -> Iterator[Work]:
    """Yield the cardholders whose last attempt gave no link, by its run and what is to be done.

    `lacking`: as of `flows.reports.unlinked.unlinked`.
    """
    plans = {plan.run: plan for plan in committed}
    of_code = lacking.group_by("run", "stage", "reason", "action")
    grouped = of_code.agg(pl.len(), pl.col("since").min())
    refused: dict[tuple[str, str], dict[str, _Refused]] = {}
    for run, stage, code, action, cardholders, answered in grouped.iter_rows():
        kind = _unlinked_kind(run, stage, code, action)
        if kind:
            refused.setdefault((run, kind), {})[code] = _Refused(cardholders, answered)
    for (run, kind), codes in refused.items():
        yield _unlinked(issuer, kind, run, plans.get(run), codes, now)


def _unlinked(
    issuer: str,
    kind: str,
    run: str,
    plan: KnownPlan | None,
    codes: Mapping[str, _Refused],
    now: datetime,
) -> Work:
    """Return work about cardholders without a link; `plan`: of their run, None where the fields
    were typed in.
    """
    committed = plan.since if plan else now
    since = min(refused.answered or committed for refused in codes.values())
    return Work(
        due=since,
        kind=kind,
        issuer=issuer,
        run=run,
        rows=sum(refused.cardholders for refused in codes.values()),
        since=since,
        codes=frozenset(codes),
        is_late=plan is not None and plan.midnight < now - OLD,
        day=plan.as_of if plan else None,
    )


def _unlinked_kind(run: str, stage: str, code: str, action: str) -> str:
    """Return the kind of work about cards without a link; "" where nobody has to do anything."""
    kind = _BY_REASON.get(code) or _BY_ACTION.get(action, "")
    table = [
        (stage == "link", ""),  # a renewal says what is to be done: `link_work`
        (not kind, ""),
        (not run, kinds.TYPED_IN),
        (kind == kinds.CORRECT and is_at_source(code), kinds.CORRECT_CARD),
    ]
    return next((named for holds, named in table if holds), kind)
