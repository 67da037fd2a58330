"""`cardlink placements`: from links to placed cards, and the funnel that counts it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from flows.cli.answer import Answer, table
from flows.core.errors import OperatorError
from flows.core.names import placements
from flows.core.report.funnel import REACHED
from flows.core.report.page import percent
from flows.steps.beyond.placements import follow_links
from flows.steps.edges import IssuerEdges
from flows.steps.operate.outbox import run_of
from flows.steps.runs import keys_of
from flows.wiring import service_client, wire


class OtherIssuerError(OperatorError):
    """A run of another issuer than the one named."""

    says = "{0} is no run of {1}."
    then = "`cardlink status {1}` lists its runs."

    def __init__(self, run: str, issuer: str) -> None:
        super().__init__(run, issuer)


def show_placements(folder: Path, name: str, run: str | None, *, again: bool) -> Answer:
    """Look at the links of an issuer's runs, or of one, and show the funnel; exit 4 where a report does not fit."""
    if run is not None and run_of(run).issuer != name:
        raise OtherIssuerError(run, name)
    edges = wire(folder, name)
    with service_client(edges.issuer) if edges.issuer.service else nullcontext() as service:
        facts = follow_links(edges, service, run or "", again=again)
    unanswered = sum(one["unanswered"] for one in facts["looked"])
    lines = [*_did(edges, facts), "", *funnel_lines(facts["funnel"]), *_breaks(facts), *_where(edges, facts, run)]
    code = 4 if facts["breaks"] else 75 if unanswered else 0
    return Answer(facts, lines, f"cardlink placements {name}" if unanswered else "", code)


def funnel_lines(funnel: dict[str, Any]) -> list[str]:
    """Return the funnel as tables: stages, failures by kind, by merchant site, by age of link."""
    stages = [[one["stage"], one["cardholders"], percent(one["share"])] for one in funnel["stages"]]
    stages += [[f"failed: {one['kind']}", one["cardholders"], percent(one["share"])] for one in funnel["failed"]]
    stages += [["placement under way", funnel["under_way"], ""]] if funnel["under_way"] else []
    lines = table(("cardholders that came to", "count", "share"), stages)
    for title, name, found in (("merchant site", "site", funnel["sites"]), ("age of link", "age", funnel["ages"])):
        told = [[one[name], *(one[stage] for stage in REACHED)] for one in found if one["linked"]]
        lines += ["", *table((title, *REACHED), told)] if told else []
    return lines


def _did(edges: IssuerEdges, facts: dict[str, Any]) -> list[str]:
    """Say what was asked, and what was not and why."""
    settings, looked, reports = edges.issuer.service, facts["looked"], facts["transactions"]
    asked, messages = (sum(one[what] for one in looked) for what in ("asked", "messages"))
    lines = [f"{facts['issuer']}: {len(facts['runs']):,} runs, {asked:,} links asked of, {messages:,} messages kept"]
    if settings is None:
        lines += ["no [service] in the TOML: only transaction reports count"]
    elif not settings.follow_cardholders:
        lines += ["jobs are not looked for: [service] follow_cardholders is off"]
    lines += [f"{one['unanswered']:,} links of {one['run']} got no answer" for one in looked if one["unanswered"]]
    lines += [f"{reports['files']:,} transaction reports, {reports['rows']:,} rows"] if reports["files"] else []
    return lines


def _breaks(facts: dict[str, Any]) -> list[str]:
    return [
        line
        for one in facts["breaks"]
        for line in ("", f"{one['name']} ({one['rows']:,} rows) {one['place']}", f"  {one['then']}")
    ]


def _where(edges: IssuerEdges, facts: dict[str, Any], run: str | None) -> list[str]:
    root = edges.issuer.root
    where = keys_of(run).report("") if run else placements(facts["issuer"])
    return ["", f"files: {root}/{where}"]
