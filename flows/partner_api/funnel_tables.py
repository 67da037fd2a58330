"""What `placements` shows: what was asked, and the funnel as tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from flows.commands.result import Part, Table
from flows.partner_api.coverage import line_of
from flows.partner_api.funnel import REACHED
from flows.reports.funnel_words import (
    coverage_in_words,
    number_in_words,
    share_in_words,
    sources_in_words,
    stage_lines,
)
from flows.steps import counted
from schemas.partner_api.service import ServiceSettings


def queries(service: ServiceSettings | None, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was queried and read, and what the service answered."""
    checks = facts["looked"]
    queried = sum(check["asked"] for check in checks)
    messages = sum(check["messages"] for check in checks)
    runs = len(facts["runs"])
    links = f"{counted(queried, 'link')} queried, {counted(messages, 'message')}"
    yield f"{facts['issuer']}: {counted(runs, 'run')}, {links}"
    if service is None:
        yield "the TOML has no [service]: only transaction reports count"
    elif not service.follow_cardholders:
        yield "[service] follow_cardholders is off: jobs are not queried"
    yield from map(line_of, facts["coverage"])
    waiting = sum(check["waiting"] for check in checks)
    if waiting and service and not facts["stopped"]:
        yield _waiting(waiting, queried, service)
    reports = facts["transactions"]
    if reports["files"]:
        files = counted(reports["files"], "transaction report")
        yield f"{files}, {counted(reports['rows'], 'row')}"


def _waiting(waiting: int, queried: int, service: ServiceSettings) -> str:
    """Say how many links a check has left to the next ones, and about how many these are."""
    more = math.ceil(waiting / max(1, queried))
    checks = "the next check" if more == 1 else f"about {more:,} more checks"
    limits = (
        f"{service.look_minutes:g} minutes at {service.requests_per_second:g} requests a second"
    )
    settings = "[service] look_minutes, requests_per_second"
    links = counted(waiting, "link that is due waits", "links that are due wait")
    return f"{links} for {checks} of {limits} ({settings})"


def funnel_tables(name: str, funnel: Mapping[str, Any]) -> list[Part]:
    """Return the funnel as tables: stages, failures by kind, by merchant site, by age of link."""
    title = f"{name}: from link to placed card"
    heading = ("cardholders who reached", "count", "share of what is known", "known by")
    shown: list[Part] = [Table(heading, _stages(funnel), f"{name}-funnel", title)]
    for part, column, lines in (
        ("merchant site", "site", funnel["sites"]),
        ("age of link", "age", funnel["ages"]),
    ):
        linked = [line for line in lines if line["linked"]]
        rows = [
            [line[column], *(number_in_words(line, stage) for stage in REACHED)] for line in linked
        ]
        if rows:
            shown += ["", Table((part, *REACHED), rows)]
    coverage = coverage_in_words(funnel)
    return [*shown, "", coverage] if coverage else shown


def _stages(funnel: Mapping[str, Any]) -> list[list[Any]]:
    """Return the rows of the funnel itself; what is not known has no number."""
    rows = []
    for line in stage_lines(funnel):
        number = line["cardholders"]
        count = "" if number is None else number
        rows.append([line["stage"], count, share_in_words(line), sources_in_words(line)])
    return rows
