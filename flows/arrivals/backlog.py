"""What has come and is not taken yet: by target, until a run has begun that finds it.

A message stays held until each of its targets has a run that began after it came; only then it is
settled. So a process that dies loses nothing: its messages come again. What comes twice or late is
settled with what it repeats.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from flows.arrivals.events import ObjectEvent
from flows.arrivals.targets import LONGEST, QUIET, Target, Watched, quiet_seconds

KNOWN = 10_000  # objects whose last event is remembered


@dataclass(eq=False)
class Message:
    """Events that came together; `settle` is called once, when no target is left."""

    events: Sequence[ObjectEvent]
    settle: Callable[[], None]
    targets: set[Target] = field(default_factory=set)

    def taken_by(self, target: Target) -> None:
        """Take a target off; with the last one the message is settled."""
        self.targets.discard(target)
        if not self.targets:
            self.settle()


@dataclass
class Batch:
    """What waits for one target: since when, when the last of it came, and how many files."""

    first: float
    last: float
    messages: list[Message] = field(default_factory=list)
    files: set[str] = field(default_factory=set)

    def taken(self, target: Target) -> None:
        """Let the messages go: a run has begun that finds these files."""
        for message in self.messages:
            message.taken_by(target)


class _Known(NamedTuple):
    place: str
    key: str


class Backlog:
    """The batches that wait, by target."""

    def __init__(self, issuers: Sequence[Watched]) -> None:
        self._issuers = issuers
        self._batches: dict[Target, Batch] = {}
        self._last = OrderedDict[_Known, str]()  # the sequencer of each object's last event

    def add(self, message: Message, now: float) -> None:
        """Put a message to the targets of its events; one that is for nobody is settled."""
        for event in message.events:
            target = self._target(event)
            if target is None:
                continue
            is_news = self._is_news(event)
            if is_news and not event.is_removal:
                self._put(message, target, event.key, now)
            elif not is_news and target in self._batches:  # it repeats what may wait there
                self._join(message, target)
        if not message.targets:
            message.settle()

    def _target(self, event: ObjectEvent) -> Target | None:
        targets = (issuer.target(event) for issuer in self._issuers)
        return next(filter(None, targets), None)

    def _is_news(self, event: ObjectEvent) -> bool:
        """Return whether an event is later than all that are known of its object."""
        known = _Known(event.place, event.key)
        if not event.is_later_than(self._last.get(known, "")):
            return False
        self._last[known] = event.sequencer
        self._last.move_to_end(known)
        if len(self._last) > KNOWN:
            self._last.popitem(last=False)
        return True

    def _put(self, message: Message, target: Target, key: str, now: float) -> None:
        batch = self._batches.setdefault(target, Batch(now, now))
        batch.last = now
        batch.files.add(key)
        self._join(message, target)

    def _join(self, message: Message, target: Target) -> None:
        if target not in message.targets:
            message.targets.add(target)
            self._batches[target].messages.append(message)

    def due(self, now: float) -> list[Target]:
        """Return the targets whose files have been left alone long enough, the oldest first."""
        waiting = sorted(self._batches.items(), key=lambda pair: pair[1].first)
        return [target for target, batch in waiting if self._due_at(target, batch) <= now]

    def _due_at(self, target: Target, batch: Batch) -> float:
        quiet = quiet_seconds(target, self._issuers)
        is_over = batch.last + quiet
        return is_over if quiet > QUIET else min(is_over, batch.first + LONGEST)

    def take(self, target: Target) -> Batch:
        """Take out what waits for a target; what comes from now on waits for the run after that."""
        return self._batches.pop(target)

    def put_back(self, target: Target, batch: Batch) -> None:
        """Let a batch wait again, whose run did not begin."""
        later = self._batches.get(target)
        if later is not None:
            batch.last = later.last
            batch.messages += [kept for kept in later.messages if kept not in batch.messages]
            batch.files |= later.files
        self._batches[target] = batch
