"""The history of a run: everything that happened to it, composed of the journal, its plan
and records.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from flows.runs.adapters import Adapters
from flows.runs.answers import ANSWERS
from flows.runs.decisions import BREAK, decisions
from flows.runs.errors import UnknownRunError
from flows.runs.identity import canonical, digest
from flows.runs.journal import COMMAND
from flows.runs.single_links import CAME, REQUESTED
from flows.runs.stored_run import StoredRun
from flows.submissions.dismissals import dismissals
from schemas.records import Closing

# entries of the journal that records of their own tell in full
_TOLD_OTHERWISE = re.compile(
    f"break .+|{REQUESTED}|{CAME}|chunks sealed anew|extract .+|.+ purged|report.+|answers erased"
)


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
        *_journal(stored_run),
        *_closings(stored_run),
        *_single_links(stored_run),
        *_reseals(stored_run),
        *_dismissals(stored_run),
        *_purges(stored_run),
    ]
    if not events:
        raise UnknownRunError(run=run)
    return sorted(events, key=lambda event: datetime.fromisoformat(event.at))


def _journal(run: StoredRun) -> Iterator[HistoryEvent]:
    """Yield what was done to a run and to its claim, with what it was planned or committed as."""
    more = {"planned": _plan_facts(run), "committed": _commit_facts(run)}
    for entry in run.history:
        if _TOLD_OTHERWISE.fullmatch(entry.what):
            continue
        reason = {"reason": entry.reason} if entry.reason else {}
        facts = {**more.pop(entry.what, {}), **entry.facts, **reason}
        for name in (ANSWERS, COMMAND):
            facts.pop(name, None)
        yield HistoryEvent(entry.at.isoformat(), entry.what, entry.by, facts)


def _plan_facts(run: StoredRun) -> dict[str, Any]:
    plan = run.plan
    if plan is None:
        return {}
    return {
        "extract": plan.source.key,
        "version": plan.source.version,
        "sha256": plan.source.sha256,
        "bytes": plan.source.size,
        "as_of": str(plan.as_of),
        "settings": plan.settings_sha256,
        "sealed to": list(plan.recipients),
        "release": plan.release,
    }


def _commit_facts(run: StoredRun) -> dict[str, Any]:
    manifest = run.manifest
    if manifest is None:
        return {}
    facts = {
        **manifest.counts.model_dump(exclude={"lines", "set_aside"}, exclude_none=True),
        "chunks": len(manifest.chunks),
        "sha256": digest(canonical(manifest)),
    }
    return facts if run.dropped_at is None else {**facts, "dropped": run.dropped_at.isoformat()}


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
