"""The history of alerts: an alert opens once and closes once, however many watches look.

Each alert has a chain of create-only objects, `<issuer>/alerts/<kind>/<subject>/000001.json` and so
on: odd numbers open it, even ones close it. An empty `000001.told` says that the step was notified.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from flows.operations.alert_kinds import Alert
from flows.operations.alerts import Failure, current_alerts
from flows.runs.context import IssuerContext
from flows.runs.documents import read_facts
from flows.runs.identity import canonical
from flows.runs.store import Store

_STEP = re.compile(r"^(?P<place>.+/.+)/(?P<number>\d{6})\.(?P<ending>json|told)$")


class Change(NamedTuple):
    """One step in an alert's history, by its number in the chain: odd numbers open the alert."""

    alert: Alert
    number: int

    @property
    def opened(self) -> bool:
        """True where this step opens the alert."""
        return self.number % 2 == 1


class _Step(NamedTuple):
    """The place of an alert, and the number of one of its changes."""

    place: str
    number: int


class _History(NamedTuple):
    """The last change of every alert by place, and the changes not notified yet, in order."""

    standing: dict[str, Change]
    unnotified: list[Change]


def changes(standing: Mapping[str, Change], alerts: Iterable[Alert]) -> list[Change]:
    """Return the changes that open these alerts, as far as they are not open, and close the others.

    `standing` has the last change of each alert by place.
    """
    current = {alert.place: alert for alert in alerts}
    opening = []
    for place, alert in current.items():
        last = standing.get(place, Change(alert, 0))
        if not last.opened:
            opening.append(Change(alert, last.number + 1))
    closing = [
        Change(last.alert, last.number + 1)
        for place, last in standing.items()
        if last.opened and place not in current
    ]
    return opening + closing


def watch(context: IssuerContext, failures: Collection[Failure] = ()) -> list[Change]:
    """Open and close alerts by what the store shows now; return every change not notified yet.

    They are in order. The caller notifies each and calls `record_notified`; killed in between, the
    next watch returns the rest.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    standing = _read_history(store, issuer).standing
    for change in changes(standing, current_alerts(context, failures)):
        facts = {
            "at": context.adapters.now().isoformat(),
            "opened": change.opened,
            **change.alert._asdict(),
        }
        # False: another watcher was first
        store.create(_change_key(issuer, change, "json"), canonical(facts))
    return _read_history(store, issuer).unnotified


def record_notified(context: IssuerContext, change: Change) -> None:
    """Record that a change was notified."""
    context.adapters.store.create(_change_key(context.issuer.issuer, change, "told"), b"")


def open_alerts(store: Store, issuer: str) -> list[Alert]:
    """Return the alerts that are open."""
    standing = _read_history(store, issuer).standing
    return [change.alert for change in standing.values() if change.opened]


def _read_history(store: Store, issuer: str) -> _History:
    prefix = f"{issuer}/alerts/"
    written: list[_Step] = []
    notified: set[_Step] = set()
    for entry in store.keys(prefix):
        match = _STEP.match(entry.key.removeprefix(prefix))
        if match is None:
            continue
        step = _Step(match["place"], int(match["number"]))
        if match["ending"] == "told":
            notified.add(step)
        else:
            written.append(step)
    # keys come in order: the highest number of each chain stays
    last = {step.place: step for step in written}
    unnotified = sorted(set(written) - notified)
    stored = {step: _read_change(store, issuer, step) for step in {*last.values(), *unnotified}}
    return _History(
        standing={place: stored[step] for place, step in last.items()},
        unnotified=[stored[step] for step in unnotified],
    )


def _read_change(store: Store, issuer: str, step: _Step) -> Change:
    facts = read_facts(store, _step_key(issuer, step, "json")) or {}
    return Change(Alert(*(facts[name] for name in Alert._fields)), step.number)


def _change_key(issuer: str, change: Change, ending: str) -> str:
    return _step_key(issuer, _Step(change.alert.place, change.number), ending)


def _step_key(issuer: str, step: _Step, ending: str) -> str:
    return f"{issuer}/alerts/{step.place}/{step.number:06d}.{ending}"
