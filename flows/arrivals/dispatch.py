"""The dispatcher: starts a run for each batch that is due, and lets its messages go once the run
has begun.

A run that is already under way may have looked before the file came, so another one starts after
it. One that has not begun yet will find the file: none is started beside it.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol

from flows.arrivals.backlog import Backlog, Batch
from flows.arrivals.targets import Target
from flows.errors import CardlinkError, TryAgainError
from flows.steps import counted

LOOK = 1.0  # seconds between two looks at a run that is to begin or to end
FIRST_WAIT = 1.0  # seconds after an error; doubled each time
LONGEST_WAIT = 60.0


class Starts(Protocol):
    """Where runs are started: Prefect."""

    def begin(self, target: Target) -> str | None:
        """Return the id of a run that has not begun, a new one if there is none; None where one is
        under way.
        """

    def has_begun(self, run: str) -> bool | None:
        """Return whether a run has begun; None where it never will."""


class Backoff:
    """Waits that double from FIRST_WAIT to LONGEST_WAIT, until something succeeds."""

    def __init__(self) -> None:
        self._failures = 0

    def next(self) -> float:
        """Return how long to wait after one more failure."""
        self._failures += 1
        return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** (self._failures - 1))

    def reset(self) -> None:
        """Begin anew, after a success."""
        self._failures = 0


class Awaited(NamedTuple):
    """A batch whose run is to begin."""

    run: str
    batch: Batch


class Dispatcher:
    """Starts runs for what waits in a backlog.

    `files` and `runs` count by target what came and the runs that began for it; `problems` says by
    target why nothing starts, by None why nothing starts at all.
    """

    def __init__(self, backlog: Backlog, starts: Starts, note: Callable[[str], None]) -> None:
        self.files = Counter[Target]()
        self.runs = Counter[Target]()
        self.problems: dict[Target | None, str] = {}
        self._backlog = backlog
        self._starts = starts
        self._note = note
        self._awaited: dict[Target, Awaited] = {}
        self._not_before: dict[Target, float] = {}
        self._resume = 0.0
        self._backoff = Backoff()

    def step(self, now: float) -> None:
        """Do what is due; errors become `problems`, and the batches wait for the next try."""
        if now < self._resume:
            return
        try:
            for target in [*self._awaited]:
                self._follow(target, now)
            for target in self._backlog.due(now):
                self._start(target, now)
        except TryAgainError as error:  # of all runs alike
            self.problems[None] = error.what_happened
            self._resume = now + self._backoff.next()
        else:
            self._backoff.reset()
            self.problems.pop(None, None)

    def _start(self, target: Target, now: float) -> None:
        """Start the run of a batch, unless the last look at it was a moment ago."""
        if target in self._awaited or now < self._not_before.get(target, 0.0):
            return
        self._not_before[target] = now + LOOK
        try:
            run = self._starts.begin(target)
        except TryAgainError:
            raise
        except CardlinkError as error:
            self.problems[target] = str(error)
            self._not_before[target] = now + LONGEST_WAIT
            return
        self.problems.pop(target, None)
        if run is None:
            return
        batch = self._backlog.take(target)
        self._awaited[target] = Awaited(run, batch)
        self._note(
            f"{target.deployment}: {counted(len(batch.files), 'file')} came, run {run} takes them"
        )

    def _follow(self, target: Target, now: float) -> None:
        """Let a batch go whose run has begun; one whose run never will waits for another."""
        if now < self._not_before.get(target, 0.0):
            return
        self._not_before[target] = now + LOOK
        run, batch = self._awaited[target]
        has_begun = self._starts.has_begun(run)
        if has_begun is False:
            return
        del self._awaited[target]
        if has_begun:
            self.files[target] += len(batch.files)
            self.runs[target] += 1
            batch.taken(target)
            return
        self._backlog.put_back(target, batch)
        self._note(f"{target.deployment}: run {run} did not begin; another one takes its files")
