"""Follow one placement job to its end, as interface.md 1 to 3 and 9 describe.

Show, warn, prompt, answer, report. The list `account_link` decides what to collect; the type of a
request only whether it is acknowledged. What is typed in goes to the service and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from flows.partner_api.job_progress import QUIET_LOOKS, Clock, Followed, JobProgress, Screen
from flows.partner_api.service import (
    AnswerLostError,
    Jobs,
    NoSuchRecordError,
    ServiceBusyError,
    ServiceRefusedError,
)
from schemas.partner_api.jobs import ACK, ACK_KEY, CredentialRequest, Prompt, RunStatus
from schemas.partner_api.profile import INTERFACE, Profile

MOST_REFUSED: Final = 3  # answers to one request


Answer = Callable[[str, str, Mapping[str, str]], object]  # of a job, an envelope, by key


class JobDialogue(Screen, Protocol):
    """The person who follows the job and is prompted for what it needs."""

    def collect(self, request: CredentialRequest, left: float | None) -> dict[str, str]:
        """Return what the user types for each key of a request; warn while they type."""
        ...


def follow(
    jobs: Jobs,
    job_id: str,
    talk: JobDialogue,
    clock: Clock,
    *,
    polling: bool = False,
    profile: Profile = INTERFACE,
    answer: Answer | None = None,
) -> Followed:
    """Follow a job to its end by its messages, or by polling its record, and answer its requests.

    `answer`: sends an answer another way than `jobs` does.

    Raises NoSuchRecordError, and ServiceBusyError after ten polls in a row without a response.
    """
    return _Following(
        jobs, job_id, talk, clock, polling, profile, answer or jobs.answer
    ).to_the_end()


class _Poll(NamedTuple):
    """What one poll returned."""

    standings: Sequence[RunStatus]
    requests: Sequence[CredentialRequest]


class _Following:
    def __init__(
        self,
        jobs: Jobs,
        job_id: str,
        talk: JobDialogue,
        clock: Clock,
        polling: bool,
        profile: Profile,
        answer: Answer,
    ) -> None:
        self._jobs = jobs
        self._job_id = job_id
        self._talk = talk
        self._clock = clock
        self._polling = polling
        self._profile = profile
        self._send_answer = answer
        self._progress = JobProgress(talk, clock)
        self._seen: set[str] = set()  # envelope ids that need no answer any more
        self._refused: Counter[str] = Counter()  # answers, by envelope id
        self._acknowledged: tuple[Prompt, ...] = ()  # what the last acknowledged request asked
        self._answered = 0
        self._quiet = 0  # polls in a row without a message

    def to_the_end(self) -> Followed:
        poll = self._record()
        while not self._take_in(poll):
            self._clock.sleep(self._clock.every)
            poll = self._poll()
        return self._progress.ending(self._job_id, self._answered)

    def _poll(self) -> _Poll:
        """Poll once; tolerate a service that does not respond for a while."""
        try:
            poll = self._messages() or self._record()
        except ServiceBusyError as error:
            self._progress.missed(error)
            return _Poll((), ())
        self._progress.responded()
        return poll

    def _record(self) -> _Poll:
        self._quiet = 0
        record = self._jobs.job(self._job_id)
        return _Poll([record], record.requests)

    def _messages(self) -> _Poll | None:
        """Read the messages; None if the record must be read instead."""
        if self._polling or self._quiet >= QUIET_LOOKS:
            return None
        try:
            messages = self._jobs.messages(self._job_id)
        except AnswerLostError:
            return None
        standings = [status.message for status in messages.statuses]
        requests: Sequence[CredentialRequest] = messages.requests
        self._quiet = 0 if standings or requests else self._quiet + 1
        if not requests and standings and standings[-1].blocked:
            # only a status says so: read what it waits for
            requests = self._jobs.credential_requests(self._job_id)
        return _Poll(standings, requests)

    def _take_in(self, poll: _Poll) -> bool:
        """Show, warn and answer; True at the end."""
        for standing in poll.standings:
            self._progress.update(standing)
        if self._progress.last.ended:
            return True
        for request in poll.requests:
            if request.envelope_id not in self._seen and request.job_id in (None, self._job_id):
                self._respond(request)
        self._progress.warn()
        return False

    def _respond(self, request: CredentialRequest) -> None:
        self._progress.update(request.message)
        if not request.account_link:
            self._seen.add(request.envelope_id)
            self._talk.note("The job is waiting, but requests no input.")
            return
        if self._is_to_acknowledge(request):
            self._talk.note(request.account_link[0].label or "A message was sent to you.")
            answers = {ACK_KEY: ACK}
            self._acknowledged = request.account_link
        else:
            answers = self._talk.collect(request, self._progress.left())
        self._answer(request, answers)

    def _is_to_acknowledge(self, request: CredentialRequest) -> bool:
        """Return whether a request wants no input.

        One that was refused an acknowledgement, or comes anew after it, wants some.
        """
        is_repeated = self._acknowledged == request.account_link
        is_refused = self._refused[request.envelope_id] > 0
        return self._profile.acknowledged.wants_no_input(request) and not (
            is_repeated or is_refused
        )

    def _answer(self, request: CredentialRequest, answers: Mapping[str, str]) -> None:
        """Send an answer once; a request that is still open comes with the next poll."""
        try:
            self._send_answer(self._job_id, request.envelope_id, answers)
        except AnswerLostError:
            self._talk.note("The answer may not have arrived; if so, the job requests it again.")
        except (NoSuchRecordError, ServiceRefusedError):
            self._note_refusal(request.envelope_id)
        except ServiceBusyError:
            self._talk.note("The service is busy and did not accept the answer.")
        else:
            self._seen.add(request.envelope_id)
            self._answered += 1

    def _note_refusal(self, envelope_id: str) -> None:
        """Say that an answer was refused; after some, the request is not answered any more."""
        self._talk.note("The service did not accept that answer; the request may have timed out.")
        self._refused[envelope_id] += 1
        if self._refused[envelope_id] >= MOST_REFUSED:
            self._seen.add(envelope_id)
            self._talk.note(
                f"The service refused {MOST_REFUSED} answers to this request; "
                "no more are sent. Ask the partner what it expects."
            )
