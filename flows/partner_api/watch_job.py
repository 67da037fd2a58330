"""Watch one placement job to its end by a broadcast channel (interface.md 4), without taking part.

A channel of its own hears every status message, and takes none from the client that follows the
job. Credential requests do not come there, and nothing is answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from flows.partner_api.job_progress import QUIET_LOOKS, Clock, Followed, JobProgress, Screen
from flows.partner_api.service import AnswerLostError, ServiceBusyError, ServiceRefusedError
from schemas.partner_api.jobs import JobMessage, JobRecord, RunStatus

WAITING: Final = "The job waits for input; whoever follows it is asked."
REGISTERED_AGAIN: Final = "The channel was closed; another one is registered."


class Broadcasting(Protocol):
    """Jobs whose status messages are broadcast."""

    def job(self, job_id: str) -> JobRecord:
        """Return the job's record, which can be read any number of times."""
        ...

    def register(self, job_id: str) -> str:
        """Register a channel of a job and return its access key."""
        ...

    def broadcasts(self, job_id: str, access_key: str) -> Sequence[JobMessage]:
        """Read the status messages of a channel, each only once."""
        ...


def watch(jobs: Broadcasting, job_id: str, screen: Screen, clock: Clock) -> Followed:
    """Show a job's progress until it ends; nothing is answered, and no other client misses a
    message.

    Raises NoSuchRecordError, ServiceRefusedError where no channel is to be had, and
    ServiceBusyError after ten polls in a row without a response.
    """
    return _Watching(jobs, job_id, screen, clock).to_the_end()


class _Watching:
    def __init__(self, jobs: Broadcasting, job_id: str, screen: Screen, clock: Clock) -> None:
        self._jobs = jobs
        self._job_id = job_id
        self._screen = screen
        self._clock = clock
        self._progress = JobProgress(screen, clock)
        self._key = ""
        self._quiet = 0  # polls in a row without a message

    def to_the_end(self) -> Followed:
        self._key = self._jobs.register(self._job_id)  # first: nothing is missed from here on
        self._update([self._jobs.job(self._job_id)])
        while not self._progress.last.ended:
            self._clock.sleep(self._clock.every)
            self._update(self._poll())
        return self._progress.ending(self._job_id)

    def _poll(self) -> Sequence[RunStatus]:
        """Poll once; tolerate a service that does not respond for a while."""
        try:
            standings = self._heard() or self._record()
        except ServiceBusyError as error:
            self._progress.missed(error)
            return ()
        self._progress.responded()
        return standings

    def _heard(self) -> Sequence[RunStatus]:
        """Read the channel; a closed one is replaced."""
        try:
            messages = self._jobs.broadcasts(self._job_id, self._key)
        except AnswerLostError:
            self._quiet = QUIET_LOOKS
            return ()
        except ServiceRefusedError:
            self._key = self._jobs.register(self._job_id)
            self._screen.note(REGISTERED_AGAIN)
            self._quiet = QUIET_LOOKS
            return ()
        self._quiet = 0 if messages else self._quiet + 1
        return [message.message for message in messages]

    def _record(self) -> Sequence[RunStatus]:
        """Read the job's record where the channel was silent for a while."""
        if self._quiet < QUIET_LOOKS:
            return ()
        self._quiet = 0
        return [self._jobs.job(self._job_id)]

    def _update(self, standings: Sequence[RunStatus]) -> None:
        was_blocked = self._progress.last.blocked
        for standing in standings:
            self._progress.update(standing)
        if self._progress.last.blocked and not was_blocked:
            self._screen.note(WAITING)
        if not self._progress.last.ended:
            self._progress.warn()
