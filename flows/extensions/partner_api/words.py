"""The funnel and what a check of links asked, in words: the same on the page, in the workbook and
at the terminal; and the error where nothing was answered.

What is not known has no number and no share: the words say why.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from flows.commands.result import Part, Table
from flows.errors import CardlinkError, OperatorError, TryAgainError
from flows.extensions.partner_api.causes import (
    NEVER_ASKED,
    REFUSED,
    UNAVAILABLE,
    UNSENT,
    base_of,
    correction_of,
    why,
)
from flows.extensions.partner_api.funnel import REACHED
from flows.extensions.partner_api.link_queries import ANSWERED, MESSAGES, Question
from flows.extensions.partner_api.placements import stored_funnel
from flows.extensions.partner_api.settings import ServiceSettings
from flows.operations.conditions import Gauge
from flows.reports.sections import Cell, Section, SectionTable
from flows.reports.wording import day_and_time, percent
from flows.runs.context import IssuerContext
from flows.steps import counted

Facts = Mapping[str, Any]


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
    funnel = stored_funnel(context.adapters, context.issuer.issuer)
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
    ends = next(stage for stage in funnel["stages"] if stage["stage"] == "placed")
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


# The check
# --------------------------------------------------------------------------------------------------

_MESSAGE = "The service did not answer what became of links of {issuer} ({coverage})."
_STILL_DUE = "Then run {same_command} again: these links are still due."


class LinksRefusedError(OperatorError):
    """The service refused the questions about links."""

    message = _MESSAGE
    next_step = "{correction} " + _STILL_DUE


class LinksUnreadableError(OperatorError):
    """What the service answers about links says nothing, or no question fits a link."""

    message = _MESSAGE
    next_step = "{correction} " + _STILL_DUE


class LinksUnansweredError(TryAgainError):
    """The service did not respond to the questions about links."""

    message = _MESSAGE
    next_step = (
        "Run {same_command} again when the service has recovered: these links are still due."
    )


class LinksUnknownError(OperatorError):
    """Nothing is known of what became of links, and none is due to be queried."""

    message = "Nothing is known of what became of {links} links of {issuer}: {causes}."
    next_step = (
        "Add [service] to its TOML, which deploy/SETTINGS.md explains, or put the partner's "
        "transaction reports below {place}. Links that have expired are not queried."
    )


class JobsNeverAskedError(OperatorError):
    """What became of links beyond their opening is known of none: nobody was asked."""

    message = "Of none of the {links} links of {issuer} it is known whether a card was placed."
    next_step = (
        "Set [service] follow_cardholders to true, if no other client reads these messages, or put "
        "the partner's transaction reports below {place}."
    )


def coverage(questions: Counter[Question]) -> list[dict[str, Any]]:
    """Return by source how many questions were asked and answered, and the others by cause."""
    sources = {question.source for question in questions}
    return [_source(source, questions) for source in sorted(sources)]


def _source(source: str, questions: Counter[Question]) -> dict[str, Any]:
    numbers = {
        question.cause: number
        for question, number in questions.items()
        if question.source == source
    }
    in_vain = {cause: number for cause, number in numbers.items() if cause != ANSWERED}
    return {
        "source": source,
        "asked": sum(number for cause, number in numbers.items() if cause not in UNSENT),
        "answered": numbers.get(ANSWERED, 0),
        "unanswered": [
            {"cause": cause, "questions": number} for cause, number in sorted(in_vain.items())
        ],
    }


def line_of(source: Mapping[str, Any]) -> str:
    """Return the coverage of a source: `link records: asked 40, answered 0: refused 403`."""
    text = f"{source['source']}: asked {source['asked']:,}, answered {source['answered']:,}"
    causes = [(cause["cause"], cause["questions"]) for cause in source["unanswered"]]
    return f"{text}: {in_words(causes)}" if causes else text


def problem_of(facts: Mapping[str, Any], place: str) -> CardlinkError | None:
    """Return why a command learned nothing of links or of their jobs, or was stopped; else None.

    `facts` are those of `follow_links.py`; `place` is where transaction reports are
    dropped.
    """
    sources = [source for source in facts["coverage"] if not source["answered"]]
    looked = facts["looked"]
    has_learned_nothing = 0 < looked["asked"] == looked["unanswered"]
    is_without_messages = MESSAGES in {source["source"] for source in sources}
    if facts["stopped"] or has_learned_nothing or is_without_messages:
        return _unanswered(facts, sources)
    return _unknown_stages(facts, place)


def _unknown_stages(facts: Mapping[str, Any], place: str) -> CardlinkError | None:
    """Return the error of a funnel in which nothing is known of links, or of their jobs."""
    stages = {stage["stage"]: stage for stage in facts["funnel"]["stages"]}
    links = stages["linked"]["cardholders"]
    issuer = facts["issuer"]
    if not links or stages["placed"]["cardholders"] is not None:
        return None
    if stages["opened"]["cardholders"] is not None:
        is_asked = NEVER_ASKED not in {cause["cause"] for cause in stages["placed"]["unknown"]}
        return None if is_asked else JobsNeverAskedError(links=links, issuer=issuer, place=place)
    causes = [(cause["cause"], cause["cardholders"]) for cause in stages["opened"]["unknown"]]
    return LinksUnknownError(links=links, issuer=issuer, causes=in_words(causes), place=place)


def _unanswered(facts: Mapping[str, Any], sources: Sequence[Mapping[str, Any]]) -> CardlinkError:
    """Return the error of the cause that ended the queries, else of the most frequent one.

    `sources`: those that answered nothing.
    """
    causes: Counter[str] = Counter()
    for source in sources:
        for cause in source["unanswered"]:
            causes[cause["cause"]] += cause["questions"]
    decisive = facts["stopped"] or max(causes, key=lambda cause: (causes[cause], cause))
    issuer = facts["issuer"]
    shown = "; ".join(map(line_of, facts["coverage"]))
    if base_of(decisive) == UNAVAILABLE:
        return LinksUnansweredError(issuer=issuer, coverage=shown)
    correction = correction_of(decisive)
    if base_of(decisive) == REFUSED:
        return LinksRefusedError(issuer=issuer, coverage=shown, correction=correction)
    return LinksUnreadableError(issuer=issuer, coverage=shown, correction=correction)


def has_no_response(facts: Mapping[str, Any]) -> bool:
    """Return whether the service did not respond to some question, so that asking again helps."""
    causes = chain.from_iterable(source["unanswered"] for source in facts["coverage"])
    return any(base_of(cause["cause"]) == UNAVAILABLE for cause in causes)


def queries(service: ServiceSettings | None, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was queried and read, and what the service answered."""
    looked = facts["looked"]
    links = f"{counted(looked['asked'], 'link')} queried, {counted(looked['messages'], 'message')}"
    yield f"{facts['issuer']}: {counted(len(facts['runs']), 'run')}, {links}"
    if service is None:
        yield "the TOML has no [service]: only transaction reports count"
    elif not service.follow_cardholders:
        yield "[service] follow_cardholders is off: jobs are not queried"
    yield from map(line_of, facts["coverage"])
    if looked["waiting"] and service and not facts["stopped"]:
        yield _waiting(looked["waiting"], looked["asked"], service)
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
    stages, *others = section(funnel).tables
    shown: list[Part] = [Table(stages.head, stages.rows, f"{name}-funnel", title)]
    for table in others:
        shown += ["", Table(table.head, table.rows)]
    coverage = coverage_in_words(funnel)
    return [*shown, "", coverage] if coverage else shown


def doubt_line(doubt: Mapping[str, Any]) -> str:
    """Return a doubt as a sentence."""
    words = {"status": "with a status", "termination_type": "that ended in a way"}
    return (
        f"doubt: {doubt['jobs']:,} jobs {words[doubt['word_of']]} nobody knows, {doubt['word']}: "
        f"say in [service.words] {doubt['word_of']} what it means"
    )
