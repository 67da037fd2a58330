"""The funnel in words, the same on the page, in the workbook and at the terminal.

What is not known has no number and no share: the words say why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from flows.extensions.partner_api.funnel import REACHED
from flows.extensions.partner_api.placements import placements
from flows.extensions.partner_api.unknowns import why
from flows.operations.conditions import Gauge
from flows.reports.sections import Cell, Section, SectionTable
from flows.reports.wording import day_and_time, percent
from flows.runs.context import IssuerContext
from flows.runs.documents import read_facts
from flows.runs.store import Store
from flows.steps import counted

Facts = Mapping[str, Any]
PLACED = "placed"  # of whom it is known whether they failed or are under way


def stored_funnel(store: Store, issuer: str) -> dict[str, Any] | None:
    """Return the funnel over an issuer's runs of the last check; None without one."""
    checked = read_facts(store, f"{placements(issuer)}summary.json") or {}
    funnel: dict[str, Any] | None = checked.get("funnel")
    return funnel


def across_facts(context: IssuerContext) -> dict[str, Any]:
    """Return the funnel over an issuer's runs, as the last check found it."""
    return {"funnel": stored_funnel(context.adapters.store, context.issuer.issuer)}


def sections(facts: Facts) -> Iterator[Section]:
    """Yield the funnel as a report shows it."""
    if facts.get("funnel"):
        yield section(facts["funnel"])


def gauges() -> list[Gauge]:
    """Return how many cardholders reached a stage, and of how many that is not known."""
    return [
        Gauge("cardholders_reached", "Cardholders who reached a stage.", "stage", reached),
        Gauge("cardholders_unknown", "Cardholders of whom nobody knows.", "stage", unknown),
    ]


def section(funnel: Facts) -> Section:
    """Return the funnel as a section of a report: the stages, by merchant site, by age of link."""
    head = ("cardholders who reached", "count", "share of what is known", "known by")
    tables = [SectionTable(head, [_stage_cells(line) for line in stage_lines(funnel)])]
    for name, key, lines in (
        ("merchant site", "site", funnel["sites"]),
        ("age of link", "age", funnel["ages"]),
    ):
        rows = [_line_cells(line, key) for line in lines if line["linked"]]
        if rows:
            tables.append(SectionTable((name, *REACHED), rows, f"By {name}"))
    until = ""
    if funnel["seen"]:
        seen = day_and_time(datetime.fromisoformat(funnel["seen"]))
        until = f" the partner reported up to {seen}"
    note = (
        f"Each cardholder counts once, by the best state{until}. From links opened on, shares are "
        "of the linked cardholders of whom it is known."
    )
    coverage = coverage_in_words(funnel)
    if coverage:
        note += f" {coverage}."
    return Section("funnel", "From link to placed card", tables, note)


def _stage_cells(line: Facts) -> list[Cell]:
    """Return the row of a stage; what is not known has no number."""
    number = line["cardholders"]
    count = "" if number is None else number
    return [line["stage"], count, share_in_words(line), sources_in_words(line)]


def _line_cells(line: Facts, key: str) -> list[Cell]:
    """Return the row of a merchant site, or of an age of links."""
    return [line[key], *(number_in_words(line, stage) for stage in REACHED)]


def reached(context: IssuerContext) -> dict[str, float]:
    """Return how many cardholders reached each stage of which anything is known."""
    return {
        line["stage"]: line["cardholders"]
        for line in _stages(context)
        if line["cardholders"] is not None
    }


def unknown(context: IssuerContext) -> dict[str, float]:
    """Return of how many cardholders it is not known whether they reached a stage."""
    return {
        line["stage"]: sum(cause["cardholders"] for cause in line["unknown"])
        for line in _stages(context)
    }


def _stages(context: IssuerContext) -> Sequence[Facts]:
    funnel = stored_funnel(context.adapters.store, context.issuer.issuer)
    return funnel["stages"] if funnel else ()


def share_in_words(line: Facts) -> str:
    """Return the share of a stage: `12 of 30 known (40.0%), 10 unknown: refused 403 (10)`.

    `not known: refused 403` where nothing is.
    """
    unknown = sum(cause["cardholders"] for cause in line["unknown"])
    causes = in_words((cause["cause"], cause["cardholders"]) for cause in line["unknown"])
    if line["share"] is None:
        return f"not known: {causes}" if unknown else ""
    share = percent(line["share"])
    if not line["known_by"]:  # our own ledger
        return share
    text = f"{line['cardholders']:,} of {line['known']:,} known ({share})"
    return f"{text}, {unknown:,} unknown: {causes}" if unknown else text


def sources_in_words(line: Facts) -> str:
    """Return what a stage is known by: `service (28), transaction reports (2)`."""
    if line["cardholders"] is None:
        return ""
    sources = line["known_by"]
    if len(sources) > 1:
        return ", ".join(f"{source} ({number:,})" for source, number in sources.items())
    return next(iter(sources), "ledger" if line["known"] else "")


def in_words(causes: Iterable[tuple[str, int]]) -> str:
    """Return causes with their numbers, most first; one alone needs no number."""
    ordered = sorted(causes, key=lambda cause: (-cause[1], cause[0]))
    if len(ordered) == 1:
        return why(ordered[0][0])
    return ", ".join(f"{why(code)} ({number:,})" for code, number in ordered)


def stage_lines(funnel: Facts) -> list[Facts]:
    """Return the stages, the failures by kind and those under way, each as a stage.

    What is known of the ends, and why the others are not, is said once, with those placed.
    """
    ends = next(stage for stage in funnel["stages"] if stage["stage"] == PLACED)
    if ends["cardholders"] is None:
        return [*funnel["stages"], {**ends, "stage": "failed"}, {**ends, "stage": "under way"}]
    known = {**ends, "unknown": []}
    failures = [{**known, **line, "stage": f"failed: {line['kind']}"} for line in funnel["failed"]]
    number = funnel["under_way"]
    share = number / ends["known"] if ends["known"] else None
    under_way = {**known, "stage": "under way", "cardholders": number, "share": share}
    return [*funnel["stages"], *failures, under_way]


def number_in_words(line: Facts, stage: str) -> int | str:
    """Return how many linked cardholders of a merchant site or an age reached a stage."""
    number = line[stage]
    known = line["known"][stage]
    if number is None:
        return "not known"
    if stage == "linked" or known == line["linked"]:
        return int(number)
    return f"{number:,} of {known:,} known"


def coverage_in_words(funnel: Facts) -> str:
    """Return which links the service did not answer for, or was not queried for; "" for none."""
    parts = []
    unanswered = funnel["unanswered"]
    if unanswered:
        links = sum(cause["links"] for cause in unanswered)
        causes = in_words((cause["cause"], cause["links"]) for cause in unanswered)
        parts.append(f"{counted(links, 'link')} not answered at their last check: {causes}")
    if funnel["unasked"]:
        parts.append(f"{counted(funnel['unasked'], 'link')} not checked yet")
    return "; ".join(parts)
