"""The report across runs: what is outstanding since when, what failed over time, what expires soon.

Put here what adds up runs and writes the report; what is read of each run is in `run_facts`, what
is to be done in `worklist`. The runs' own reports stay unchanged: all that is written is below
`<issuer>/reconciliation/`, that of a period in a folder of its own.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from itertools import chain
from typing import Any

import polars as pl

from flows.extensions import hooks
from flows.reports import page, verdicts
from flows.reports.ages import AGES, age_step, by_expiry
from flows.reports.hours import hours_of
from flows.reports.open_items import LACKS, ReportTerms, WaitingChunk
from flows.reports.run_facts import RunFacts
from flows.reports.summary import FIGURES
from flows.reports.survey import Survey, survey
from flows.reports.work import each, lines
from flows.reports.workbook import across_workbook
from flows.runs.context import IssuerContext
from flows.runs.frames import csv_pieces
from flows.runs.identity import canonical
from flows.runs.keys import period
from flows.runs.store import Store
from schemas.reasons import reason
from schemas.tables import Work as WorkTable

LISTED = 200  # reasons, and lines of the worklist, listed here; worklist.csv has each thing to do


def reconcile_runs(
    context: IssuerContext, start: date | None = None, end: date | None = None
) -> dict[str, Any]:
    """Write the report across the issuer's committed runs of these business dates.

    Returns its facts.
    """
    return report_across(context, survey(context, start, end), start, end)


def report_across(
    context: IssuerContext, known: Survey, start: date | None = None, end: date | None = None
) -> dict[str, Any]:
    """Write the report across runs from what a survey of these dates found; return its facts."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    now = known.terms.now
    records = [line.record(now) for line in each(known.work)]
    work = pl.DataFrame(records, WorkTable.dtypes())
    conversation = [line.facts(now) for line in lines(known.work)]
    spreads = (run.hours for run in known.runs)
    facts = {
        "issuer": issuer,
        "from": start.isoformat() if start else None,
        "to": end.isoformat() if end else None,
        "cardholders": known.balance.facts,
        **across(known.runs, known.cards, known.terms),
        "worklist": conversation[:LISTED],
        "more_work": max(0, len(conversation) - LISTED),
        "to_do": dict(work.group_by("kind", maintain_order=True).len().iter_rows()),
        "hours": hours_of(spreads, context.issuer.portal.link_within_hours),
        "active_twice": known.active_twice.height,
    }
    for across_facts in hooks("across_facts"):
        facts |= across_facts(context)
    tables = {
        "worklist": work,
        "unlinked": known.cards.drop("since"),
        "active-twice": known.active_twice,
    }
    html = page.across_page(facts, context.forms_url)
    _write(store, period(issuer, start, end), facts, tables, html)
    return facts


def _write(
    store: Store,
    folder: str,
    facts: dict[str, Any],
    tables: Mapping[str, pl.DataFrame],
    html: str,
) -> None:
    """Write the tables, the facts as JSON, and page and workbook."""
    for name, table in tables.items():
        store.replace(f"{folder}{name}.csv", csv_pieces([table], table.columns))
    store.replace(f"{folder}summary.json", [canonical(facts)])
    store.replace(f"{folder}report.html", [html.encode()])
    store.replace(f"{folder}report.xlsx", [across_workbook(tables)])


def across(runs: Sequence[RunFacts], unlinked: pl.DataFrame, terms: ReportTerms) -> dict[str, Any]:
    """Return the facts of the report across runs.

    `unlinked` comes from `flows.reports.unlinked.unlinked`.
    """
    waiting = list(chain.from_iterable(run.waiting for run in runs))
    overdue = [chunk for chunk in waiting if terms.overdue(chunk)]
    expiries = chain.from_iterable(run.expires.items() for run in runs)
    return {
        "seen": terms.now.isoformat(timespec="seconds"),
        "answer_within_hours": terms.within,
        "verdict": _verdict(runs, waiting, overdue),
        "rows": {name: sum(run.rows.get(name, 0) for run in runs) for name in FIGURES},
        "runs": [
            {"run": run.run, "as_of": run.as_of.isoformat(), "state": run.state, **run.rows}
            for run in runs
        ],
        "outstanding": {
            **_sizes(waiting),
            "overdue": _sizes(overdue),
            "missing": _sizes_by(LACKS, lambda chunk: chunk.missing, waiting),
            "ages": _sizes_by(AGES, lambda chunk: age_step(chunk.since, terms.now), waiting),
        },
        "links": by_expiry(expiries, terms.now.date()),
        "reasons": _reasons(runs)[:LISTED],
        "unlinked": _unlinked(unlinked),
    }


def _verdict(
    runs: Sequence[RunFacts], waiting: Sequence[WaitingChunk], overdue: Sequence[WaitingChunk]
) -> str:
    if any(run.state == verdicts.OUT_OF_BALANCE for run in runs):
        return verdicts.OUT_OF_BALANCE
    if overdue:
        return verdicts.OVERDUE
    if waiting:
        return verdicts.AWAITED
    return verdicts.CLEAR


def _sizes(chunks: Sequence[WaitingChunk]) -> dict[str, int]:
    return {"count": len(chunks), "rows": sum(chunk.awaiting for chunk in chunks)}


def _sizes_by(
    groups: Sequence[str],
    group_of: Callable[[WaitingChunk], str],
    chunks: Sequence[WaitingChunk],
) -> dict[str, dict[str, int]]:
    """Return the sizes of each group of chunks, zeros included."""
    members: dict[str, list[WaitingChunk]] = {group: [] for group in groups}
    for chunk in chunks:
        members[group_of(chunk)].append(chunk)
    return {group: _sizes(members[group]) for group in groups}


def _reasons(runs: Sequence[RunFacts]) -> list[dict[str, Any]]:
    """Return every reason, ours and the partner's, with its rows per business date.

    Those with most rows come first.
    """
    nights: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for run in runs:
        for stage, reasons in run.reasons.items():
            for code, rows in reasons:
                nights[code, stage][run.as_of.isoformat()] += rows
    listed: list[dict[str, Any]] = [
        {
            "code": code,
            "stage": stage,
            "action": reason(code).action,
            "rows": sum(days.values()),
            "nights": dict(days),
        }
        for (code, stage), days in nights.items()
    ]
    return sorted(listed, key=lambda line: (-line["rows"], line["code"], line["stage"]))


def _unlinked(unlinked: pl.DataFrame) -> dict[str, Any]:
    """Return how many cardholders have no link, after how many attempts and why."""
    attempts = unlinked["attempts"].value_counts(name="cardholders").sort("attempts")
    codes = unlinked.group_by(code="reason").agg(cardholders=pl.len()).drop_nulls("code")
    most_first = codes.sort("cardholders", "code", descending=[True, False]).head(LISTED)
    return {
        "cardholders": unlinked.height,
        "by_attempts": attempts.to_dicts(),
        "reasons": [
            {**line, "action": reason(line["code"]).action} for line in most_first.to_dicts()
        ],
    }
