"""What entries of the journal say was done to a run, besides its plan and commit."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement

from flows.redaction import redact
from flows.runs.adapters import Adapters
from flows.runs.journal import Act, Entry, enter, entries
from flows.runs.keys import RunKeys
from flows.runs.run_status import Refusal
from schemas.database import JOURNAL

ANSWERED = "answered"  # by result files that were ingested: their names are `results`
TAKEN_BACK = "answer taken back"  # by result files that answer the run no more
REFUSED = "refused"  # at an attempt that an error ended
FOR_OPERATOR = "operator"  # who acts where the content of an extract is not to blame
CANCELLED = "cancelled"  # chunks that are never sent
ASKED = "asked"  # questions to the partner were written: their digest
REPEATED = "resubmitted"  # rows were sent again: by which `run`
REPORTED = "report written"  # its report was made anew: the digest of its facts

_ANSWERING = (ANSWERED, CANCELLED)  # from which the answer's age counts


def record_event(
    adapters: Adapters, keys: RunKeys, event: str, reason: str = "", **facts: str | int | list[str]
) -> None:
    """Enter in the journal what was done to a run, with facts; card numbers in texts are masked."""
    masked = {name: redact(fact) for name, fact in facts.items() if isinstance(fact, str)}

    def note(act: Act) -> None:
        act.facts |= {**facts, **masked}

    enter(adapters, keys.run.issuer, event, note, run=str(keys.run), reason=redact(reason))


def last_answer(committed: datetime, events: Iterable[Entry]) -> datetime:
    """Return when a run was last answered or its chunks cancelled, by what was done to it.

    A result file counts from its first entry: an unattributed one is ingested again and again.
    """
    first: dict[str, datetime] = {}
    for event in events:
        if event.what in _ANSWERING:
            for name in event.facts.get("digests") or [str(event.number)]:
                first[name] = min(event.at, first.get(name, event.at))
    return max(first.values(), default=committed)


def refusals(adapters: Adapters, issuer: str, which: ColumnElement[bool]) -> dict[str, Refusal]:
    """Return what refused the runs of which this holds at their last attempt, by run."""
    refused = dict[str, Refusal]()
    for entry in entries(adapters, issuer, JOURNAL.c.what == REFUSED, which):
        run = entry.run or ""
        first = refused[run].first if run in refused else entry.at
        refused[run] = _refusal(entry, first, entry.facts)
    return refused


def _refusal(entry: Entry, first: datetime, facts: Any) -> Refusal:
    of_content = facts.get("who") != FOR_OPERATOR
    more = (facts["under"], facts.get("then", ""), of_content)
    return Refusal(facts["why"], facts["sentence"], entry.at, first, *more)
