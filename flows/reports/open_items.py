"""What is open about a run: chunks without an answer, what they lack, since when, if overdue."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import polars as pl

from flows.reports.ages import AGES, age_step
from flows.runs.chunks import OutboxChunk

# What a chunk with unanswered rows lacks.
MISSING = "no result"
PARTIAL = "partial result"
UNSETTLED = "result unsettled"
NOT_DUE = "on hold or cancelled"  # in the outbox: no answer can come
LACKS = (MISSING, PARTIAL, UNSETTLED, NOT_DUE)
DUE = (MISSING, PARTIAL)  # what can be overdue


class WaitingChunk(NamedTuple):
    """A chunk with unanswered rows: what it lacks (LACKS), since when, its state in the outbox.

    `sealed_to`: the fingerprints of its keys, where it is not uploaded yet.
    """

    run: str
    chunk: int
    missing: str
    awaiting: int
    since: datetime
    state: str = "uploaded"
    sealed_to: tuple[str, ...] = ()

    @property
    def is_cancelled(self) -> bool:
        """Whether it was never sent and never will be, so that nobody waits for an answer."""
        return self.state == "cancelled" and self.missing == NOT_DUE


class ReportTerms(NamedTuple):
    """The time of the report, and how many hours an answer may take."""

    now: datetime
    within: int

    def overdue(self, chunk: WaitingChunk) -> bool:
        """Return whether the answer should have come by now.

        An answer that came and does not fit is not overdue.
        """
        return chunk.missing in DUE and self.now - chunk.since > timedelta(hours=self.within)


def waiting_chunks(chunks: pl.DataFrame, items: Iterable[OutboxChunk]) -> list[WaitingChunk]:
    """Return the chunks (chunk, sent, answers, awaiting) with rows that wait.

    No answer is due for a chunk that is on hold or cancelled, unless it has answers: somebody
    uploaded it all the same.
    """
    items_by_number = {item.chunk.number: item for item in items}
    unanswered = chunks.filter(pl.col("awaiting") > 0).select("chunk", missing(), "awaiting")
    waiting = []
    for number, lacks, rows in unanswered.iter_rows():
        item = items_by_number[number]
        is_unsent = item.state in ("held", "cancelled") and lacks == MISSING
        kind = NOT_DUE if is_unsent else lacks
        waiting.append(WaitingChunk(item.run, number, kind, rows, item.clock, item.state))
    return waiting


def missing() -> pl.Expr:
    """Return what a chunk with awaiting rows lacks: a result, a part of it, or a usable answer."""
    no_result = pl.col("answers") == 0
    partial = pl.col("answers") < pl.col("sent")
    return (
        pl.when(no_result)
        .then(pl.lit(MISSING))
        .when(partial)
        .then(pl.lit(PARTIAL))
        .otherwise(pl.lit(UNSETTLED))
        .alias("missing")
    )


class _OpenItem(NamedTuple):
    since: datetime
    rows: int


def open_items(
    waiting: Sequence[WaitingChunk],
    breaks: Sequence[Mapping[str, Any]],
    terms: ReportTerms,
    committed: datetime,
) -> dict[str, Any]:
    """Return the open items by kind and age, and what is overdue.

    `breaks` are those of a summary; an answer that came but does not fit is one of them.
    """
    items: dict[str, list[_OpenItem]] = {kind: [] for kind in (*LACKS, "breaks")}
    for chunk in waiting:
        items[chunk.missing].append(_OpenItem(chunk.since, chunk.awaiting))
    for run_break in breaks:
        if not run_break["notice"]:
            since = datetime.fromisoformat(run_break["since"])
            items["breaks"].append(_OpenItem(since, run_break["rows"]))
    overdue = [chunk.awaiting for chunk in waiting if terms.overdue(chunk)]
    return {
        "sent": committed.isoformat(timespec="seconds"),
        "answer_within_hours": terms.within,
        "overdue": {"chunks": len(overdue), "rows": sum(overdue)},
        "items": [_by_age(kind, items[kind], terms.now) for kind in items],
    }


def _by_age(kind: str, items: Sequence[_OpenItem], now: datetime) -> dict[str, Any]:
    ages = {age: {"items": 0, "rows": 0} for age in AGES}
    for item in items:
        step = ages[age_step(item.since, now)]
        step["items"] += 1
        step["rows"] += item.rows
    return {
        "kind": kind,
        "items": len(items),
        "rows": sum(item.rows for item in items),
        "ages": ages,
    }
