"""What a stage of the funnel is known by, and why it is not known: asked in vain, or never asked.

A code is stored and counted. A status, or the kind of a failure, may follow it, as in
`service.answer.refused.403`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

# what a stage is known by
RESULTS: Final = "result files"
SERVICE: Final = "service"
REPORTS: Final = "transaction reports"
SOURCES: Final = (RESULTS, SERVICE, REPORTS)

# why it is not
NEVER_ASKED: Final = "never.asked"
NO_RESULT: Final = "result.awaiting"
NO_LINK_ID: Final = "link.url.unknown"
SHARED_LINK_ID: Final = "link.id.shared"
OTHER_CARDHOLDER: Final = "link.record.other"
NO_RECORD: Final = "link.record.missing"
NO_CARDHOLDER: Final = "link.cardholder.missing"
NO_OPENING: Final = "link.opened.missing"
NO_AUTHENTICATION: Final = "job.authentication.missing"
LOST_MESSAGES: Final = "messages.lost"
REFUSED: Final = "service.answer.refused"
UNAVAILABLE: Final = "service.answer.unavailable"
UNREADABLE: Final = "service.answer.unreadable"
REPORT_WORD: Final = "report.status.unknown"

UNSENT: Final = frozenset({NO_LINK_ID, SHARED_LINK_ID, NO_CARDHOLDER})  # nobody could be asked
CREDENTIALS: Final = frozenset({f"{REFUSED}.401", f"{REFUSED}.403"})


class Cause(NamedTuple):
    """Why something is not known, in words, and the setting to correct, if that helps."""

    words: str
    correction: str = ""


_PERMISSION: Final = (
    "Compare the CARDLINK_SERVICE_* variables with the integrator's credentials, "
    "[service.auth] and [service.signing] with the partner's documentation; ask what they may read."
)
_DOCUMENTATION: Final = "Compare [service] with the partner's documentation."
CAUSES: Final = {
    NEVER_ASKED: Cause("never asked"),
    NO_RESULT: Cause("no result yet"),
    NO_LINK_ID: Cause(
        "no id in the link's URL",
        "Correct [service] link_id: it finds no id in a link's URL.",
    ),
    SHARED_LINK_ID: Cause(
        "one id for several links",
        "Correct [service] link_id, such as to the query parameter that holds the id (`?key`): "
        "now the same id is found in the URLs of different links, "
        "so the record of one would be taken for that of all.",
    ),
    OTHER_CARDHOLDER: Cause(
        "the record of another cardholder",
        "Correct [service] link_id: the records it leads to have the cuids of other cardholders.",
    ),
    NO_RECORD: Cause(
        "no such record",
        "Compare [service] link_id and base_url with the partner's documentation: "
        "the service knows none of these ids.",
    ),
    NO_CARDHOLDER: Cause(
        "no cardholder in the link record",
        "Compare [service] prefix with the partner's documentation: "
        "without its hydration header a record names no cardholder.",
    ),
    NO_OPENING: Cause(
        "the link record does not say",
        "Set [service] follow_cardholders to true: the link records alone say nothing.",
    ),
    NO_AUTHENTICATION: Cause("the job does not say"),
    LOST_MESSAGES: Cause("messages lost or unreadable"),
    REFUSED: Cause("refused", _DOCUMENTATION),
    UNAVAILABLE: Cause("no response"),
    UNREADABLE: Cause(
        "unreadable",
        "Compare [service] with the partner's documentation: a probe of the service shows what "
        "its records have, and proposes the settings that fit.",
    ),
    REPORT_WORD: Cause(
        "a status nobody knows in a transaction report:",
        "Say in [service.words] report what these statuses mean.",
    ),
}


def base_of(code: str) -> str:
    """Return a code without the status or kind that follows it."""
    return code if code in CAUSES else code.rpartition(".")[0]


def cause_of(code: str) -> Cause:
    """Return the cause of a code; a code that only a later version knows is its own words."""
    return CAUSES.get(base_of(code), Cause(code))


def correction_of(code: str) -> str:
    """Return which setting to correct, "" where none would help."""
    return _PERMISSION if code in CREDENTIALS else cause_of(code).correction


def why(code: str) -> str:
    """Return a code in words: `refused 403`."""
    base = base_of(code)
    detail = code.removeprefix(base).removeprefix(".")
    words = cause_of(code).words
    return f"{words} {detail}" if base in CAUSES and detail else words
