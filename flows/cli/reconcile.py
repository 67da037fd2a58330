"""The body of `cardlink reconcile`: what is open across runs, per issuer, and where the whole of it lies."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from flows.cli.answer import Answer, table
from flows.core.names import reconciliation
from flows.core.report.across import EXIT_CODES
from flows.core.report.advice import across_advice
from flows.steps.answers.reconcile import reconcile_runs
from flows.wiring import issuers, wire

SHOWN = 10  # lines of a table on a terminal; the files have them all


def reconcile_issuers(folder: Path, name: str | None, start: date | None, end: date | None) -> Answer:
    """Reconcile across the runs of one issuer or of all."""
    names = [name] if name else issuers(folder)
    found, lines = [], []
    for issuer in names:
        edges = wire(folder, issuer)
        facts = reconcile_runs(edges, start, end)
        found.append(facts)
        lines += [*_told(facts), f"files: {edges.issuer.root}/{reconciliation(issuer)}", ""]
    then = f"cardlink status {next((one['issuer'] for one in found if EXIT_CODES[one['verdict']]), '')}".rstrip()
    code = max((EXIT_CODES[one["verdict"]] for one in found), default=0)
    return Answer({"issuers": found}, lines[:-1] or ["no issuers yet"], then, code)


def _told(facts: dict[str, Any]) -> list[str]:
    waiting, alerts = facts["outstanding"], facts["alerts"]
    lines = [f"{facts['issuer']}: {len(facts['runs']):,} runs, {facts['verdict']}", ""]
    lines += table(("rows", "count"), [[name, count] for name, count in facts["rows"].items()])
    held = [[state, number] for state, number in facts["cardholders"].items()]
    lines += ["", *table(("cardholders by last state", "count"), held)]
    if waiting["count"]:
        ages = [[age, sizes["count"], sizes["rows"]] for age, sizes in waiting["ages"].items()]
        lines += ["", *table(("outstanding since", "chunks", "rows"), ages), ""]
        chunks = [[one["name"], one["awaiting"], one["age"], _late(one)] for one in waiting["chunks"][:SHOWN]]
        lines += table(("chunk", "awaiting", "age", ""), chunks)
        lines += [f"and {waiting['count'] - SHOWN:,} more in outstanding.csv"] if waiting["count"] > SHOWN else []
    lines += [f"alert: the answer of {run} is overdue" for run in alerts["opened"]]
    lines += [f"still overdue, told before: {run}" for run in alerts["standing"]]
    lines += [f"closed, its answer has come: {run}" for run in alerts["closed"]]
    return [*lines, "", *(f"{at}. {one}" for at, one in enumerate(across_advice(facts), start=1))]


def _late(chunk: dict[str, Any]) -> str:
    return "overdue" if chunk["overdue"] else ""
