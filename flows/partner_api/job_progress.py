"""The progress of one placement job (interface.md 2.1, 3), as somebody who looks at it is shown it.

What is new is shown, the time left is counted, and a warning comes before it is up. Put here what
following a job and watching it have in common; keep out how its state is read, and its requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from flows.partner_api.service import ServiceBusyError
from schemas.partner_api.jobs import RunStatus

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
