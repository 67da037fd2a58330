"""What checks of links asked the service, what it answered, and the funnel, as they are shown; the
error where nothing was answered, and words that nobody knows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import polars as pl

from flows.commands.result import Part, Table
from flows.errors import CardlinkError, OperatorError, TryAgainError
from flows.extensions.partner_api.funnel_words import coverage_in_words, in_words, section
from flows.extensions.partner_api.jobs import PENDING
from flows.extensions.partner_api.link_check import LinkCheck
from flows.extensions.partner_api.link_placements import (
    AUTHENTICATED,
    AUTHENTICATING,
    ENDS,
    ENDS_WITH_DAY,
    PLACED,
)
from flows.extensions.partner_api.link_queries import ANSWERED, MESSAGES, Question
from flows.extensions.partner_api.placements import read_placements
from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.partner_api.unknowns import (
    NEVER_ASKED,
    REFUSED,
    UNAVAILABLE,
    UNSENT,
    base_of,
    correction_of,
)
from flows.runs.stored_run import StoredRun
from flows.steps import counted

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


def coverage(checks: Iterable[LinkCheck]) -> list[dict[str, Any]]:
    """Return by source how many questions were asked and answered, and the others by cause."""
    questions: Counter[Question] = Counter()
    for check in checks:
        questions += check.questions
    sources = dict.fromkeys(question.source for question in questions)
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
    if facts["stopped"] or _has_learned_nothing(facts) or MESSAGES in _names(sources):
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


def _has_learned_nothing(facts: Mapping[str, Any]) -> bool:
    links: int = sum(check["asked"] for check in facts["looked"])
    unanswered: int = sum(check["unanswered"] for check in facts["looked"])
    return links > 0 and links == unanswered


def _names(sources: Iterable[Mapping[str, Any]]) -> set[str]:
    return {source["source"] for source in sources}


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
    stages, *others = section(funnel).tables
    shown: list[Part] = [Table(stages.head, stages.rows, f"{name}-funnel", title)]
    for table in others:
        shown += ["", Table(table.head, table.rows)]
    coverage = coverage_in_words(funnel)
    return [*shown, "", coverage] if coverage else shown


STATUS: Final = "status"
END: Final = "termination_type"
_STATUSES: Final = AUTHENTICATED | AUTHENTICATING | ENDS | ENDS_WITH_DAY
_ENDS: Final = PLACED | ENDS


def unknown_words(runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """Return the statuses of running jobs, and the ends of others, that the interface lacks.

    Each with its setting in `[service.words]` (`word_of`), its name, and how many jobs have it.
    """
    jobs = pl.concat([pl.DataFrame(schema=_JOBS), *_jobs(runs)]).unique("job_id")
    runs_on = pl.col(END).is_null()
    is_known = pl.col(STATUS).is_in(_STATUSES) | pl.col(STATUS).str.starts_with(PENDING)
    statuses = jobs.filter(runs_on & ~is_known)
    ends = jobs.filter(~runs_on & ~pl.col(END).is_in(_ENDS))
    return [*_counted(statuses, STATUS), *_counted(ends, END)]


_JOBS: Final = pl.Schema({"job_id": pl.String(), STATUS: pl.String(), END: pl.String()})


def _jobs(runs: Iterable[StoredRun]) -> Iterator[pl.DataFrame]:
    for run in runs:
        for part in run.committed().ledger:
            jobs = read_placements(run, part, ["jobs"])["jobs"].explode().drop_nulls()
            if jobs.len():
                yield jobs.struct.unnest().select(*_JOBS)


def _counted(jobs: pl.DataFrame, column: str) -> Iterator[dict[str, Any]]:
    counts = jobs.group_by(column).len().sort("len", column, descending=[True, False])
    for word, number in counts.iter_rows():
        yield {"word_of": column, "word": word, "jobs": number}


def doubt_line(doubt: Mapping[str, Any]) -> str:
    """Return a doubt as a sentence."""
    words = {STATUS: "with a status", END: "that ended in a way"}
    return (
        f"doubt: {doubt['jobs']:,} jobs {words[doubt['word_of']]} nobody knows, {doubt['word']}: "
        f"say in [service.words] {doubt['word_of']} what it means"
    )
