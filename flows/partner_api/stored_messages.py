"""What the stored messages of cardholders say of their jobs.

Each message is given once, so that those which could not be read are kept, and read anew once the
settings are others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from flows.partner_api.job_records import Job, Placement, job
from flows.partner_api.responses import LOST_PAGE, messages_in
from flows.partner_api.translation import elements, meaning_of
from flows.runs.identity import canonical, digest
from schemas.partner_api.jobs import Messages, RunStatus
from schemas.partner_api.profile import INTERFACE, Profile, Words
from schemas.partner_api.unknowns import UNREADABLE


def with_messages(placement: Placement, content: bytes, profile: Profile) -> Placement:
    """Count in stored messages; a credential request carries its job's state too.

    Where none of them names a job, they are missed.
    """
    stored = json.loads(content)["messages"]
    messages = [_read(element, profile) for element in stored]
    states = list(chain.from_iterable(map(_states, messages)))
    known = _jobs(states)
    is_unread = any(element.unread for element in messages)
    if LOST_PAGE in stored or ((states or is_unread) and not known):
        placement = placement._replace(missed=placement.missed + 1)
    return placement.with_jobs(known)


def read_anew(placement: Placement, contents: Sequence[bytes], profile: Profile) -> Placement:
    """Read a row's stored messages with other settings than before, and what is known of its jobs.

    A row with jobs that nobody knew is due for their records.
    """
    jobs = tuple(_reworded(state, profile.words) for state in placement.jobs)
    recounted = placement._replace(missed=0, jobs=jobs)
    as_stored = placement._replace(missed=0)
    for content in contents:
        recounted = with_messages(recounted, content, profile)
        as_stored = with_messages(as_stored, content, INTERFACE)
    # answers that were lost left no object
    lost = max(0, placement.missed - as_stored.missed)
    recounted = recounted._replace(missed=recounted.missed + lost)
    if len(recounted.jobs) > len(placement.jobs):
        return recounted._replace(jobs_trouble=UNREADABLE)
    return recounted


def reading_of(profile: Profile) -> str:
    """Return a digest of the settings that messages and jobs are read with."""
    tables = profile.model_dump(mode="json", include={"message", "job", "words"})
    return digest(canonical(tables))


def _read(element: Any, profile: Profile) -> Messages:
    """Read a stored message: in the interface's words, as it is stored where it could be read, else
    in the partner's.
    """
    messages = messages_in(elements(element, INTERFACE))
    if _jobs(_states(messages)):
        return messages
    anew = messages_in(elements(element, profile))
    return anew if _jobs(_states(anew)) else messages


def _jobs(states: Iterable[tuple[str | None, RunStatus]]) -> list[Job]:
    jobs = [job(job_id, state) for job_id, state in states]
    return [state for state in jobs if state is not None]


def _states(messages: Messages) -> Iterator[tuple[str | None, RunStatus]]:
    """Yield the id of a job and its state, of each message."""
    for status in messages.statuses:
        yield status.job_id, status.message
    for request in messages.requests:
        yield request.job_id, request.message


def _reworded(state: Job, words: Words) -> Job:
    """Return a job whose stored words mean what the settings say now; its record is due in full."""
    end = state.termination_type
    return state._replace(
        status=meaning_of(state.status, words.status),
        termination_type=meaning_of(end, words.termination_type) if end else None,
        tag=None,
    )
