"""One placement job to its end, as interface.md 1 to 4 and 9 describe: followed, or only watched.

Who follows it is shown its progress, warned before its time is up, and prompted for what it needs.
The list `account_link` decides what to collect; the type of a request only whether it is
acknowledged. What is typed in goes to the service and nowhere else. Who watches it has a broadcast
channel of its own, and answers nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from flows.partner_api.service import (
    AnswerLostError,
    Jobs,
    NoSuchRecordError,
    ServiceBusyError,
    ServiceRefusedError,
)
from schemas.partner_api.jobs import (
    ACK,
    ACK_KEY,
    CredentialRequest,
    JobMessage,
    JobRecord,
    Prompt,
    RunStatus,
)
from schemas.partner_api.profile import INTERFACE, Profile

WARN_SECONDS: Final = 60  # before a job times out (2.1, rule 3)
EVERY_SECONDS: Final = 2.0  # between two polls
ADDED_SECONDS: Final = 5.0  # a deadline that moves by more than rounding: time was added
# polls without a message before the record is read: another client may have read the messages
QUIET_LOOKS: Final = 5
MOST_SILENT: Final = 10  # polls in a row without a response
# A job has five minutes and is given more where it waits for input (2.1): no job has hours.
LONGEST_TIMEOUT: Final = 7200  # seconds

PLACED: Final = "BILLABLE"
MEANINGS: Final[Mapping[str, str]] = {
    PLACED: "The card is placed with the merchant.",
    "USER_DATA_FAILURE": (
        "The cardholder's input was not accepted, or came too late: let them start again."
    ),
    "SITE_INTERACTION_FAILURE": "The merchant's site did not work as expected: try again later.",
    "PROCESS_FAILURE": (
        "The service failed: try again, and send the partner the job's id if it fails again."
    ),
    "NEVER_STARTED": (
        "The job was never started: let the cardholder open the link and choose the site again."
    ),
}
UNKNOWN_END: Final = "Unknown termination type: ask the partner what it means."


class Screen(Protocol):
    """What a person sees of a job."""

    def show(self, standing: RunStatus, left: float | None) -> None:
        """Show the job's state; `left`: seconds until it times out, if known."""
        ...

    def warn(self, left: float) -> None:
        """Warn that the job is about to time out."""
        ...

    def note(self, text: str) -> None:
        """Show a sentence."""
        ...


class Clock(NamedTuple):
    """Monotonic seconds, sleep, and the seconds between two polls."""

    now: Callable[[], float]
    sleep: Callable[[float], None]
    every: float = EVERY_SECONDS


class Followed(NamedTuple):
    """How a job ended: `meaning` is for people; `answered` counts requests.

    Nothing that was typed is kept.
    """

    job_id: str
    status: str
    termination_type: str
    meaning: str
    answered: int

    @property
    def placed(self) -> bool:
        """Whether the card is placed."""
        return self.termination_type == PLACED


class JobProgress:
    """The last state of a job, and how long it has."""

    def __init__(self, screen: Screen, clock: Clock) -> None:
        self.last = RunStatus()
        self._screen = screen
        self._clock = clock
        self._deadline: float | None = None
        self._warned = False
        self._doubted = False
        self._silent = 0  # polls in a row without a response

    def responded(self) -> None:
        """Note that the service responds."""
        self._silent = 0

    def missed(self, error: ServiceBusyError) -> None:
        """Tolerate a service that does not respond for a while; raise the error of the tenth poll
        in a row.
        """
        self._silent += 1
        if self._silent >= MOST_SILENT:
            raise error
        self._screen.note("The service does not respond; the job continues. Trying again.")

    def update(self, standing: RunStatus) -> None:
        """Take in one state; a heartbeat without news is not shown."""
        if standing.job_timeout is not None:
            self._set_deadline(standing.job_timeout)
        if not self.last.ended and _shown_state(standing) != _shown_state(self.last):
            self.last = standing
            self._screen.show(standing, self.left())

    def _set_deadline(self, seconds: int) -> None:
        """Take in how long the job has; what no job has is doubted instead."""
        if seconds > LONGEST_TIMEOUT:
            self._deadline = None
            self._doubt_timeout(seconds)
            return
        deadline = self._clock.now() + seconds
        self._warned = self._warned and deadline < (self._deadline or 0) + ADDED_SECONDS
        self._deadline = deadline

    def _doubt_timeout(self, seconds: int) -> None:
        if not self._doubted:
            self._doubted = True
            self._screen.note(
                f"The service says that {seconds:,} seconds are left, which no job has: these may "
                "be milliseconds ([service.job] job_timeout_unit). No time is shown."
            )

    def warn(self) -> None:
        """Warn, once, a minute before the time is up."""
        left = self.left()
        if left is not None and left <= WARN_SECONDS and not self._warned:
            self._warned = True
            self._screen.warn(left)

    def left(self) -> float | None:
        """Return how many seconds are left until it times out, None where nobody knows."""
        return None if self._deadline is None else max(0.0, self._deadline - self._clock.now())

    def ending(self, job_id: str, answered: int = 0) -> Followed:
        """Return how the job ended."""
        end = self.last.termination_type or ""
        meaning = MEANINGS.get(end, UNKNOWN_END)
        return Followed(job_id, self.last.status or "", end, meaning, answered)


def _shown_state(standing: RunStatus) -> tuple[object, ...]:
    """Return what is shown again when it changes."""
    return (
        standing.status,
        standing.percent_complete,
        standing.auth_percent_complete,
        standing.status_message,
        standing.termination_type,
    )


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
