"""One placement job to its end, as interface.md 1 to 4 and 9 describe: followed, or only watched.

Who follows it is shown its progress, warned before its time is up, and prompted for what it needs.
The list `account_link` decides what to collect; the type of a request only whether it is
acknowledged. What is typed in goes to the service and nowhere else. Who watches it has a broadcast
channel of its own, and answers nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from flows.errors import CardlinkError
from flows.extensions.partner_api.profile import INTERFACE, Profile
from flows.extensions.partner_api.service import (
    AnswerLostError,
    Broadcasting,
    Jobs,
    NoSuchRecordError,
    ServiceBusyError,
    ServiceRefusedError,
    SessionEndedError,
)
from flows.extensions.partner_api.service_objects import (
    ACK,
    ACK_KEY,
    BILLABLE,
    MEANINGS,
    UNKNOWN_END,
    CredentialRequest,
    Prompt,
    RunStatus,
)

WARN_SECONDS: Final = 60  # before a job times out (2.1, rule 3)
EVERY_SECONDS: Final = 2.0  # between two polls
ADDED_SECONDS: Final = 5.0  # a deadline that moves by more than rounding: time was added
# polls without a message before the record is read: another client may have read the messages
QUIET_LOOKS: Final = 5
MOST_SILENT: Final = 10  # polls in a row without a response
# A job has five minutes and is given more where it waits for input (2.1): no job has hours.
LONGEST_TIMEOUT: Final = 7200  # seconds

_SHOWN: Final = RunStatus.model_fields.keys() - {"job_timeout"}


class Screen(Protocol):
    """What a person sees of a job."""

    def show(self, standing: RunStatus, left: float | None) -> None:
        """Show the job's state; `left`: seconds until it times out, if known."""

    def warn(self, left: float) -> None:
        """Warn that the job is about to time out."""

    def note(self, text: str) -> None:
        """Show a sentence."""


class Clock(NamedTuple):
    """Monotonic seconds, sleep, and the seconds between two polls."""

    now: Callable[[], float]
    sleep: Callable[[float], None]
    every: float = EVERY_SECONDS


class Followed(NamedTuple):
    """How a job ended: `meaning` is for people; `answered` counts requests."""

    job_id: str
    status: str
    termination_type: str
    meaning: str
    answered: int

    @property
    def placed(self) -> bool:
        """Whether the card is placed."""
        return self.termination_type == BILLABLE


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
        """Tolerate a service that does not respond for a while: nine polls in a row."""
        self._silent += 1
        if self._silent >= MOST_SILENT:
            raise error
        problem = "The service does not respond"
        if isinstance(error, SessionEndedError):
            problem = "Another login with the same user ended our session"
        self._screen.note(f"{problem}; the job continues. Trying again.")

    def update(self, standing: RunStatus) -> None:
        """Take in a state of a message; a heartbeat without news is not shown, nor what is older.

        Messages wait until they are read, and the record may have been read meanwhile (2.1).
        """
        if not standing.is_older_than(self.last):
            self.update_by_record(standing)

    def update_by_record(self, standing: RunStatus) -> None:
        """Take in the state of the record, which is the current one."""
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
                "be milliseconds ([service.names] job.job_timeout_ms). No time is shown."
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


def _shown_state(standing: RunStatus) -> dict[str, object]:
    """Return what is shown again when it changes."""
    return standing.model_dump(include=_SHOWN)


MOST_REFUSED: Final = 3  # answers to one request
WAITING: Final = "The job waits for input; whoever follows it is asked."
REGISTERED_AGAIN: Final = "The channel was closed; another one is registered."

Answer = Callable[[str, str, Mapping[str, str]], object]  # of a job, an envelope, by key


class JobDialogue(Screen, Protocol):
    """The person who follows the job and is prompted for what it needs."""

    def collect(self, request: CredentialRequest, look: Callable[[], bool]) -> dict[str, str]:
        """Return what the user types for each key of a request.

        `look`: looks at the job while they type, and returns whether it has ended; then the prompt
        ends with PromptEndedError.
        """


class PromptEndedError(Exception):
    """The job ended while somebody typed what it needed."""


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
    progress = JobProgress(talk, clock)

    def look() -> bool:
        """Take in the job's record while somebody types."""
        with suppress(CardlinkError):  # it is read again after that
            progress.update_by_record(jobs.job(job_id))
        progress.warn()
        return progress.last.ended

    requests = _Requests(job_id, talk, profile, answer or jobs.answer, progress, look)

    def messages() -> _Poll | None:
        if polling:
            return None
        messages = jobs.messages(job_id)
        standings = [status.message for status in messages.statuses]
        pending: Sequence[CredentialRequest] = messages.requests
        if not pending and standings and standings[-1].blocked:
            # only a status says so: read what it waits for
            pending = jobs.credential_requests(job_id)
        return _Poll(standings, pending)

    _look_to_the_end(jobs, job_id, progress, clock, messages, requests.respond)
    return progress.ending(job_id, requests.answered)


def watch(jobs: Broadcasting, job_id: str, screen: Screen, clock: Clock) -> Followed:
    """Show a job's progress until it ends, without a message that another client would miss.

    Raises NoSuchRecordError, ServiceRefusedError where no channel is to be had, and
    ServiceBusyError after ten polls in a row without a response.
    """
    progress = JobProgress(screen, clock)
    key = jobs.register(job_id)  # first: nothing is missed from here on
    was_blocked = False

    def broadcasts() -> _Poll | None:
        nonlocal key
        try:
            heard = jobs.broadcasts(job_id, key)
        except ServiceRefusedError:
            key = jobs.register(job_id)
            screen.note(REGISTERED_AGAIN)
            return None
        return _Poll([message.message for message in heard], ())

    def note_waiting(_: Sequence[CredentialRequest]) -> None:
        nonlocal was_blocked
        if progress.last.blocked and not was_blocked:
            screen.note(WAITING)
        was_blocked = progress.last.blocked

    _look_to_the_end(jobs, job_id, progress, clock, broadcasts, note_waiting)
    return progress.ending(job_id)


class _Poll(NamedTuple):
    """What one poll returned."""

    standings: Sequence[RunStatus]
    requests: Sequence[CredentialRequest]


def _look_to_the_end(
    jobs: Jobs | Broadcasting,
    job_id: str,
    progress: JobProgress,
    clock: Clock,
    hear: Callable[[], _Poll | None],
    respond: Callable[[Sequence[CredentialRequest]], None],
) -> None:
    """Show a job's states, warn and respond until it has ended.

    `hear`: reads its messages; None where its record is to be read instead, as it is where they may
    be lost, and where none come for a while. A service that does not respond for a while is
    tolerated. The record is read first; how much time is left is in messages alone, so they are
    heard before anybody is prompted.
    """
    quiet = 0  # polls in a row without a message

    def record() -> Sequence[CredentialRequest]:
        nonlocal quiet
        quiet = 0
        state = jobs.job(job_id)
        progress.update_by_record(state)
        return state.requests

    def poll() -> Sequence[CredentialRequest]:
        nonlocal quiet
        try:
            heard = hear() if quiet < QUIET_LOOKS else None
        except AnswerLostError:
            heard = None
        if heard is None:
            return record()
        quiet = 0 if heard.standings or heard.requests else quiet + 1
        for standing in heard.standings:
            progress.update(standing)
        return heard.requests

    requests = record()
    while not progress.last.ended:
        try:
            requests = [*requests, *poll()]
        except ServiceBusyError as error:
            progress.missed(error)
        else:
            progress.responded()
        if not progress.last.ended:
            respond(requests)
            requests = ()
            progress.warn()
        if not progress.last.ended:
            clock.sleep(clock.every)


class _Requests:
    """The credential requests of a job that is followed, and what was answered."""

    def __init__(
        self,
        job_id: str,
        talk: JobDialogue,
        profile: Profile,
        answer: Answer,
        progress: JobProgress,
        look: Callable[[], bool],
    ) -> None:
        self.answered = 0
        self._look = look
        self._job_id = job_id
        self._talk = talk
        self._profile = profile
        self._send_answer = answer
        self._progress = progress
        self._seen: set[str] = set()  # envelope ids that need no answer any more
        self._refused: Counter[str] = Counter()  # answers, by envelope id
        self._acknowledged: tuple[Prompt, ...] = ()  # what the last acknowledged request asked

    def respond(self, requests: Sequence[CredentialRequest]) -> None:
        """Acknowledge or answer what is open; a request of another job is left aside."""
        for request in requests:
            is_own = request.job_id in (None, self._job_id)
            if is_own and request.envelope_id not in self._seen and not self._progress.last.ended:
                self._respond(request)

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
            try:
                answers = self._talk.collect(request, self._look)
            except PromptEndedError:
                self._talk.note("The job has ended; nothing more is sent.")
                return
        self._answer(request, answers)

    def _is_to_acknowledge(self, request: CredentialRequest) -> bool:
        """Return whether a request wants no input.

        One that was refused an acknowledgement, or comes anew after it, wants some.
        """
        is_repeated = self._acknowledged == request.account_link
        is_refused = self._refused[request.envelope_id] > 0
        return self._profile.wants_no_input(request) and not (is_repeated or is_refused)

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
            self.answered += 1

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
