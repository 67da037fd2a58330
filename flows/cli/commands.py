"""The bodies of the commands: call the steps, say what was done, where it lies and what to type next."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from pathlib import Path
from typing import Any

from flows.cli.answer import Answer, table
from flows.cli.progress import ProgressLine
from flows.core.errors import CardlinkError
from flows.core.names import RunId
from flows.core.report.summary import EXIT_CODES, WAITING
from flows.steps.answers.ingest import ingest
from flows.steps.answers.report import rebuild
from flows.steps.edges import IssuerEdges
from flows.steps.night.pending import pending
from flows.steps.night.rehearse import guard_twice
from flows.steps.night.submit import Request, Submitted, submit
from flows.steps.runs import UnknownRunError, keys_of
from flows.wiring import wire


def submit_extracts(
    folder: Path, name: str, extract: str | None, day: date | None, opened: Collection[str], new_run: str
) -> Answer:
    """Submit the named extract, or all that are not submitted yet."""
    edges = wire(folder, name)
    names = [extract] if extract else [entry.key for entry in pending(edges)]
    tried = [_try(edges, Request(one, day, opened, new_run)) for one in names]
    done = [one for one in tried if isinstance(one, Submitted)]
    refused = [one for one in tried if isinstance(one, CardlinkError)]
    if refused and len(tried) == 1:
        raise refused[0]
    facts = {"issuer": name, "runs": [_facts(one) for one in done], "refused": [str(one) for one in refused]}
    if not tried:
        return Answer(facts, [f"{name}: every extract is submitted already"], f"cardlink ingest {name}")
    lines = [line for one in done for line in _submitted(edges, one)] + [f"refused: {one}" for one in refused]
    then = f"upload the chunks to the portal, drop the results, then: cardlink ingest {name}"
    return Answer(facts, lines, then, max((one.exit_code for one in refused), default=0))


def _try(edges: IssuerEdges, request: Request) -> Submitted | CardlinkError:
    """Submit one extract; an error of ours is returned, so that one that is refused leaves the others."""
    try:
        guard_twice(edges, request)
        with ProgressLine(request.extract.rpartition("/")[2]) as progress:
            return submit(edges, request, progress)
    except CardlinkError as error:
        return error


def _facts(done: Submitted) -> dict[str, Any]:
    manifest = done.manifest
    return {
        "run": manifest.run,
        "already": done.already,
        "counts": manifest.counts.model_dump(),
        "reasons": manifest.reasons,
        "repairs": manifest.repairs,
        "chunks": len(manifest.chunks),
        "remarks": list(done.remarks),
    }


def _submitted(edges: IssuerEdges, done: Submitted) -> list[str]:
    manifest, counts = done.manifest, done.manifest.counts
    if done.already:
        return [f"{manifest.run}: already committed, nothing to do"]
    fates = ("read", "submitted", "rejected", "duplicate", "suppressed")
    told = ", ".join(f"{getattr(counts, fate):,} {fate}" for fate in fates)
    root, keys = edges.issuer.root, keys_of(manifest.run)
    lines = [
        *done.remarks,
        f"{manifest.run}: {told}",
        f"{len(manifest.chunks):,} chunks to upload: {root}/{keys.chunks}",
    ]
    if counts.rejected or counts.duplicate:
        lines.append(f"rows not sent, each with its reason: {root}/{keys.report('rejects.csv')}")
    return lines


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
