"""The history of a run: everything that happened to it, composed of its plan, claims, events and
records.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from flows.runs.adapters import Adapters
from flows.runs.decisions import BREAK, decisions
from flows.runs.documents import read_events
from flows.runs.errors import UnknownRunError
from flows.runs.identity import digest
from flows.runs.single_links import CAME, REQUESTED
from flows.runs.store import Store, read
from flows.runs.stored_run import StoredRun
from flows.submissions.dismissals import dismissals
from schemas.records import Abandoned, Closing

_ENVELOPE = ("at", "what", "by")  # of an event; the others are its facts


class HistoryEvent(NamedTuple):
    """One thing that happened: when (ISO), what, by whom ("" where nothing says), and its facts."""

    at: str
    what: str
    by: str
    facts: dict[str, Any]


def history(adapters: Adapters, run: str) -> list[HistoryEvent]:
    """Return everything that happened to a run, oldest first; UnknownRunError."""
    stored_run = StoredRun.by_id(adapters, run)
    events = [
        *_planning(stored_run),
        *_claims(stored_run),
        *_events(stored_run),
        *_end(stored_run),
        *_closings(stored_run),
        *_single_links(stored_run),
        *_reseals(stored_run),
        *_dismissals(stored_run),
        *_purges(stored_run),
    ]
    if not events:
        raise UnknownRunError(run=run)
    return sorted(events, key=lambda event: datetime.fromisoformat(event.at))


def _planning(run: StoredRun) -> Iterator[HistoryEvent]:
    plan = run.plan
    if plan is None:
        return
    facts = {
        "extract": plan.source.key,
        "version": plan.source.version,
        "sha256": plan.source.sha256,
        "bytes": plan.source.size,
        "as_of": str(plan.as_of),
        "settings": plan.settings_sha256,
        "settings in force": plan.settings_in_force,
        "sealed to": list(plan.recipients),
    }
    if plan.reason:
        facts["reason"] = plan.reason
    if plan.release:
        facts["release"] = plan.release
    yield HistoryEvent(_written(run.store, run.keys.plan), "planned", "", facts)


def _claims(run: StoredRun) -> Iterator[HistoryEvent]:
    """Yield who claimed the run and who gave it back; renewals are left out."""
    last = None  # holder and process, None once the claim was given back
    for claim in read_events(run.store, list(run.store.keys(run.keys.claims))):
        name = claim["holder"]
        since = datetime.fromisoformat(claim["since"])
        until = datetime.fromisoformat(claim["until"])
        if until <= since:
            yield HistoryEvent(since.isoformat(), "claim given back", name, {})
            last = None
        elif last != (name, claim["process"]):
            yield HistoryEvent(since.isoformat(), "claimed", name, {})
            last = name, claim["process"]


def _events(run: StoredRun) -> Iterator[HistoryEvent]:
    for event in run.events():
        facts = {name: fact for name, fact in event.items() if name not in _ENVELOPE}
        yield HistoryEvent(event["at"], event["what"], event["by"], facts)


def _end(run: StoredRun) -> Iterator[HistoryEvent]:
    end = run.end
    if isinstance(end, Abandoned):
        yield HistoryEvent(end.at.isoformat(), "abandoned", end.by, {"reason": end.reason})
    elif end is not None:
        facts = {
            **end.counts.model_dump(exclude={"lines", "set_aside"}, exclude_none=True),
            "chunks": len(end.chunks),
            "sha256": digest(read(run.store, run.keys.manifest)),
        }
        yield HistoryEvent(_written(run.store, run.keys.manifest), "manifest written", "", facts)


def _closings(run: StoredRun) -> Iterator[HistoryEvent]:
    """Yield the breaks that were closed and reopened."""
    for closing in decisions(run.adapters, run.issuer, BREAK, Closing, run.id):
        facts = {
            "break": closing.name,
            "place": closing.place,
            "rows": closing.rows,
            "reason": closing.reason,
        }
        yield HistoryEvent(closing.at.isoformat(), f"break {closing.what}", closing.by, facts)


def _single_links(run: StoredRun) -> Iterator[HistoryEvent]:
    for single in run.single_link_attempts:
        request = single.asked
        answer = single.answered
        name = {"attempt": single.name}
        yield HistoryEvent(request.at.isoformat(), REQUESTED, request.by, name)
        if answer is not None:
            facts = {**name, "outcome": answer.outcome}
            yield HistoryEvent(answer.at.isoformat(), CAME, request.by, facts)


def _reseals(run: StoredRun) -> Iterator[HistoryEvent]:
    for reseal in run.reseals:
        facts = {
            "chunks": [chunk.name for chunk in reseal.chunks],
            "sealed to": list(reseal.recipients),
            "reason": reseal.reason,
        }
        yield HistoryEvent(reseal.at.isoformat(), "sealed anew", reseal.by, facts)


def _dismissals(run: StoredRun) -> Iterator[HistoryEvent]:
    """Yield that the run's extract was dismissed, and that it was taken back."""
    if run.plan is None:
        return
    for dismissal in dismissals(run.adapters, run.issuer, run.plan.source.sha256):
        facts = {"extract": dismissal.key, "reason": dismissal.reason}
        moment = dismissal.at.isoformat()
        yield HistoryEvent(moment, f"extract {dismissal.what}", dismissal.by, facts)


def _purges(run: StoredRun) -> Iterator[HistoryEvent]:
    for purged in run.purges:
        facts = {
            "objects": sum(purged.objects.values()),
            "bytes": purged.bytes,
            "setting": purged.setting,
        }
        yield HistoryEvent(purged.at.isoformat(), f"{purged.part} purged", purged.by, facts)


def _written(store: Store, key: str) -> str:
    with store.open(key) as source:
        return source.entry.modified.isoformat()
