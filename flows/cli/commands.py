"""The bodies of the commands: call the steps, say what was done, where it lies and what to type next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.cli.answer import Answer, table
from flows.core.names import RunId
from flows.core.report.summary import EXIT_CODES, WAITING
from flows.steps.answers.ingest import ingest
from flows.steps.answers.report import rebuild
from flows.steps.edges import IssuerEdges
from flows.steps.runs import UnknownRunError, keys_of
from flows.wiring import wire


def ingest_results(folder: Path, name: str) -> Answer:
    """Take up new results and rebuild the reports they touch."""
    edges = wire(folder, name)
    done = ingest(edges)
    answers = [report_answer(edges, report.summary) for report in done.reports]
    lines = [f"{name}: {done.files:,} new result files, {done.rows:,} rows"]
    lines += [f"break: {trouble}" for trouble in done.breaks]
    for answer in answers:
        lines += ["", *answer.lines]
    facts = {**done._asdict(), "issuer": name, "reports": [answer.facts for answer in answers]}
    codes = [answer.exit_code for answer in answers] + [4 if done.breaks else 0]
    return Answer(facts, lines, f"cardlink status {name}", max(codes))


def rebuild_report(folder: Path, run: str) -> Answer:
    """Rebuild the report of one run."""
    parsed = RunId.parse(run)
    if parsed is None:
        raise UnknownRunError(run)
    edges = wire(folder, parsed.issuer)
    return report_answer(edges, rebuild(edges, run).summary)


def report_answer(edges: IssuerEdges, summary: dict[str, Any]) -> Answer:
    """Say how a run stands: rows, balance, reasons, breaks, and where the files lie."""
    where = f"{edges.issuer.root}/{keys_of(summary['run']).report('')}"
    lines = [f"{summary['run']}: {summary['verdict']}", ""]
    lines += table(("rows", "count"), [[name, count] for name, count in summary["rows"].items()])
    equations = [[line["name"], line["left"], line["right"], _holds(line)] for line in summary["balance"]]
    lines += ["", *table(("balance", "left", "right", ""), equations)]
    for stage, title in (("submit", "why we refused or warned"), ("partner", "why the partner refused")):
        told = [[one["code"], one["rows"], one["action"]] for one in summary["reasons"][stage]]
        lines += ["", *table((title, "rows", "what to do"), told)] if told else []
    lines += _history(summary.get("attempts"))
    for one in summary["breaks"]:
        lines += ["", f"{one['name']} ({one['rows']:,} rows) {one['place']}", f"  {one['then']}"]
    for one in summary["closed"]:
        lines += [
            "",
            f"{one['name']} ({one['rows']:,} rows) {one['place']}",
            f"  closed by {one['by']}: {one['reason']}",
        ]
    lines += ["", f"files: {where} (report.html report.xlsx links.csv errors.csv rejects.csv chunks.csv summary.json)"]
    then = "upload what waits in chunks.csv" if summary["verdict"] == WAITING else ""
    return Answer(summary, lines, then, EXIT_CODES[summary["verdict"]])


def _history(attempts: dict[str, Any] | None) -> list[str]:
    """Say what was sent again, and what the run's rows came to."""
    if attempts is None:
        return []
    states = ("rows", "linked", "error", "awaiting")
    told = [[one["run"], *(one[state] for state in states)] for one in attempts["runs"]]
    after = [[state, rows] for state, rows in attempts["after"].items()]
    return ["", *table(("sent again", *states), told), "", *table(("rows after all attempts", "count"), after)]


def _holds(line: dict[str, Any]) -> str:
    told = "ok" if line["holds"] else "DIFFERS"
    return f"{told}, {line['closed']:,} closed by hand" if line["closed"] else told
