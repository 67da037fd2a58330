"""The events of a run: what happened, when, by whom; written once and never changed."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from flows.redaction import redact
from flows.runs.adapters import Adapters
from flows.runs.identity import canonical, digest
from flows.runs.keys import RunKeys

ANSWERED = "answered"  # the event of result files that were ingested: their names are `results`
TAKEN_BACK = "answer taken back"  # the event of a result file that answers the run no more
REFUSED = "refused"  # the event of an attempt that an error ended
CANCELLED = "cancelled"  # the event of chunks that are never sent
ASKED = "asked"  # the event of questions to the partner that were written: their digest

# of an event's object
REPEATED_BY = re.compile(r"resubmitted-(.+)\.json$")  # the event names the run that sent rows again
_ANSWERING = (ANSWERED, CANCELLED)  # events from which the answer's age counts
_NAME = re.compile(r"\d{8}T\d{12}-(?P<kind>.+)-[0-9a-f]{8}\.json")


def record_event(
    adapters: Adapters,
    keys: RunKeys,
    kind: str,
    once: str = "",
    when: datetime | None = None,
    /,
    **facts: str | int | list[str],
) -> bool:
    """Add an event of a `kind` to a run's history: when (by default now), by whom, and facts.

    Card numbers in texts are masked. `once` is a fixed name, so that of many processes only one
    records it: False for the others.
    """
    moment = when or adapters.now()
    masked = {name: redact(fact) for name, fact in facts.items() if isinstance(fact, str)}
    envelope = {"what": kind, "at": moment.isoformat(), "by": redact(adapters.actor)}
    event = canonical({**envelope, **facts, **masked})
    name = f"{moment:%Y%m%dT%H%M%S%f}-{kind.replace(' ', '-')}-{digest(event)[:8]}.json"
    return adapters.store.create(keys.events + (once or name), event)


def kind_of(key: str) -> str:
    """Return what the name of an event's object says has happened, "" where it says nothing."""
    name = _NAME.fullmatch(key.rpartition("/")[2])
    return name["kind"] if name else ""


def last_answer(committed: datetime, events: Iterable[Mapping[str, Any]]) -> datetime:
    """Return when a run was last answered or its chunks cancelled, by its events.

    A result file counts from its first event: an unattributed one is ingested again and again.
    """
    first: dict[str, datetime] = {}
    for event in events:
        if event["what"] in _ANSWERING:
            moment = datetime.fromisoformat(event["at"])
            for name in event.get("digests") or [event["at"]]:
                first[name] = min(moment, first.get(name, moment))
    return max(first.values(), default=committed)
