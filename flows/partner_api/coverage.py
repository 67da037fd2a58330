"""What checks of links asked the service, what it answered, and the error where it did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from flows.errors import CardlinkError, OperatorError, TryAgainError
from flows.partner_api.link_check import LinkCheck
from flows.partner_api.link_queries import ANSWERED, MESSAGES, Question
from flows.reports.funnel_words import in_words
from schemas.partner_api.unknowns import (
    NEVER_ASKED,
    REFUSED,
    UNAVAILABLE,
    UNSENT,
    base_of,
    correction_of,
)

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

    `facts` are those of `flows.partner_api.follow_links`; `place` is where transaction reports are
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
