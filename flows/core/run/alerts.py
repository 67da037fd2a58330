"""Alerts: what somebody must be told about, from facts of the store alone, each opened once and closed once.

An alert is a kind and a subject (a run, a day, a deployment). Its history is a chain of numbered objects, written
create-only: odd numbers open it, even ones close it. So of two watchers one opens, and nobody is told twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Kind(NamedTuple):
    """What an alert is about, and what to do: one section of the runbook each."""

    title: str
    then: str


KINDS: dict[str, Kind] = {
    "extract-missing": Kind("Extract missing by its hour", "Ask the issuer for the drop; the next night takes it."),
    "night-skipped": Kind("Night skipped by the calendar", "Nothing; what is there goes with the next business night."),
    "empty-extract": Kind("Empty extract", "Ask the issuer whether there was nothing to send."),
    "run-refused": Kind("Run refused before its commit", "Read the reason; mend the extract or open the gate."),
    "flow-failed": Kind("Flow failed", "Read the flow's message; passing trouble needs the same run again."),
    "out-of-balance": Kind("Out of balance", "Read the breaks of the report; each names its next step."),
    "result-overdue": Kind("Result overdue", "Look at the outbox; fetch the results from the portal."),
    "key-ending": Kind("Portal key ends soon", "Get the next key from the portal and pin its fingerprint."),
    "key-unusable": Kind("Portal key cannot be used", "Nothing can be sealed: get a sound key from the portal."),
}


class Alert(NamedTuple):
    """One thing to tell; `text` holds names, counts and dates only."""

    kind: str
    issuer: str
    subject: str
    text: str

    @property
    def place(self) -> str:
        """Where its history lies: `<kind>/<subject>`."""
        return f"{self.kind}/{self.subject}"


class Change(NamedTuple):
    """One step of an alert's history: the number in its chain; odd opens, even closes."""

    alert: Alert
    number: int

    @property
    def opened(self) -> bool:
        """True where this step opens the alert."""
        return is_open(self.number)


def is_open(number: int) -> bool:
    """Tell from the last number of a chain whether its alert is open."""
    return number % 2 == 1


def changes(standing: Mapping[str, tuple[int, Alert]], holding: Iterable[Alert]) -> list[Change]:
    """Return what is to be opened and closed: `standing` has the last number of each chain by place."""
    now = {alert.place: alert for alert in holding}
    opened = [
        Change(alert, number + 1)
        for place, alert in now.items()
        if not is_open(number := standing[place][0] if place in standing else 0)
    ]
    closed = [
        Change(alert, number + 1) for place, (number, alert) in standing.items() if is_open(number) and place not in now
    ]
    return opened + closed
