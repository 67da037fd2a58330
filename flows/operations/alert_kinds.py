"""Every kind of alert: its title, and what to do; and what an alert consists of."""

from functools import cache
from typing import NamedTuple

from flows.extensions import hooks


class Kind(NamedTuple):
    """A kind of alert: its title, and what to do (the runbook has a section for each)."""

    title: str
    then: str


_KINDS: dict[str, Kind] = {
    "extract-missing": Kind(
        "Extract missing by its hour", "Ask the issuer for the file; the next run submits it."
    ),
    "extract-waiting": Kind(
        "Extract incomplete by its hour",
        "Ask the issuer for the file it waits for; the next run submits it.",
    ),
    "calendar-unknown": Kind(
        "Public holidays of the schedule not known",
        "Correct [schedule] country and subdivision; until then, holidays are business days.",
    ),
    "night-skipped": Kind(
        "Night skipped by the calendar", "Nothing; the next business day submits what is there."
    ),
    "empty-extract": Kind("Empty extract", "Ask the issuer whether there was nothing to send."),
    "run-refused": Kind(
        "Run refused before its commit", "Read the reason; correct the extract, or open the gate."
    ),
    "extract-changed": Kind(
        "Extract held back: its name was committed with other content",
        "Ask the issuer which it is; then open the gate changed-extract, or dismiss the extract.",
    ),
    "extract-unclean": Kind(
        "Extract not found clean by the malware scanner",
        "Do not open it: tell security, have it removed, and ask the issuer for a clean one.",
    ),
    "extract-repeated": Kind(
        "Extract repeated under another name",
        "Ask the issuer for the right one, and dismiss this one.",
    ),
    "flow-failed": Kind(
        "Flow failed", "Read the flow's message; after a temporary failure, run it again."
    ),
    "out-of-balance": Kind(
        "Out of balance", "Read the breaks of the report; each names its next step."
    ),
    "ineligible-rows": Kind(
        "Many rows of the extract are not eligible",
        "Ask the issuer whether these cards belong in its extracts; see [eligible].",
    ),
    "drift": Kind(
        "Extract departs from those before it", "Ask the issuer what it changed, and why."
    ),
    "columns-changed": Kind(
        "Columns of the extract came or went",
        "Ask the issuer what they are; see [columns].",
    ),
    "result-overdue": Kind(
        "Result overdue", "Look at the outbox; fetch the results from the portal."
    ),
    "channel-failing": Kind(
        "A channel takes no notifications",
        "Check the issuer, which tries each channel; correct its address, or its server.",
    ),
    "key-ending": Kind(
        "Portal key expires soon", "Get the next key and pin it, or this one with a new subkey."
    ),
    "key-unusable": Kind(
        "Portal key cannot be used", "Nothing can be sealed: get a valid key from the portal."
    ),
}


@cache
def alert_kinds() -> dict[str, Kind]:
    """Return every kind of alert by name, those of extensions too."""
    kinds = dict(_KINDS)
    for of_extension in hooks("alert_kinds"):
        kinds |= of_extension()
    return kinds


class Alert(NamedTuple):
    """One alert; `text` holds names, counts and dates only."""

    kind: str
    issuer: str
    subject: str
    text: str

    @property
    def place(self) -> str:
        """Return the folder of its history: `<kind>/<subject>`."""
        return f"{self.kind}/{self.subject}"


class Cause(NamedTuple):
    """What is wrong now, of one issuer: the kind of its alert, what it is about, and its text."""

    kind: str
    subject: str
    text: str
