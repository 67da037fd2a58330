"""The beat of the process of arrivals: that it lives, what hinders it, and what it did.

The process replaces it every half minute beside the issuer's metrics. Whoever looks (the watch, the
metrics, `check`, `worklist`) reads it there, and needs no other way to the process. Of several
processes each has its own: one that falls silent is noticed beside another that works.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

from flows.errors import OperatorError
from flows.reports.ages import duration
from flows.runs.context import IssuerContext
from flows.runs.documents import read_facts
from flows.runs.identity import canonical
from flows.runs.keys import metrics
from flows.runs.store import Store
from flows.steps import counted
from schemas.issuer import Issuer

EVERY: Final = 30.0  # seconds between two beats
SILENT: Final = timedelta(minutes=5)  # without a beat
FORGOTTEN: Final = timedelta(hours=1)  # without a beat, where another process beats
HINDERED: Final = timedelta(minutes=2)  # a problem that lasts no longer needs nobody


class ArrivalsDownError(OperatorError):
    """The process that starts runs when a file arrives does not run, or cannot do its work."""

    message = "Nothing starts when a file arrives: {state}."
    next_step = (
        "See that `python -m flows.arrivals` runs beside the worker, and remove what hinders it; "
        "meanwhile the schedules start every hour."
    )


class Beat(NamedTuple):
    """One beat of a process: when its parts last worked, and its `problem` with the moment since
    when.

    `files` and `runs` count by flow what came and what was started.
    """

    at: datetime
    problem: str = ""
    since: datetime | None = None
    files: Mapping[str, int] = {}
    runs: Mapping[str, int] = {}


class Processes(NamedTuple):
    """The last beats of processes by name; those that ended are one beat, with what they counted.

    They share one object, which each replaces as it read it: what two do at the same moment is put
    right by the next beat.
    """

    ended: Beat | None = None
    living: Mapping[str, Beat] = {}

    @property
    def beats(self) -> list[Beat]:
        """The beats that say whether runs start: of the living, else the last one of all."""
        return list(self.living.values()) or ([self.ended] if self.ended else [])

    def total(self, counted_by: Callable[[Beat], Mapping[str, int]]) -> dict[str, int]:
        """Return a count over all processes, by flow."""
        counts = Counter[str]()
        for beat in filter(None, [self.ended, *self.living.values()]):
            counts.update(counted_by(beat))
        return dict(counts)

    def without(self, names: Collection[str]) -> "Processes":
        """Return them after processes of these names have ended."""
        gone = {name: beat for name, beat in self.living.items() if name in names}
        if not gone:
            return self
        known = Processes(self.ended, gone)
        moments = [beat.at for beat in filter(None, [self.ended, *gone.values()])]
        files = known.total(lambda beat: beat.files)
        runs = known.total(lambda beat: beat.runs)
        left = {name: beat for name, beat in self.living.items() if name not in names}
        return Processes(Beat(max(moments), files=files, runs=runs), left)

    def after(self, name: str, beat: Beat) -> "Processes":
        """Return them after a beat; whoever was silent for so long that nobody expects it to come
        back has ended.
        """
        others = {other: last for other, last in self.living.items() if other != name}
        lost = [other for other, last in others.items() if beat.at - last.at > FORGOTTEN]
        return Processes(self.ended, {**others, name: beat}).without(lost)


def read_beats(store: Store, issuer: str) -> Processes:
    """Return the beats of an issuer's processes; ConflictError."""
    facts = read_facts(store, _key(issuer))
    if facts is None:
        return Processes()
    living = {name: _beat(written) for name, written in facts.get("processes", {}).items()}
    return Processes(_beat(facts), living)


def _beat(facts: Mapping[str, Any]) -> Beat:
    since = facts["since"]
    return Beat(
        datetime.fromisoformat(facts["at"]),
        facts["problem"],
        datetime.fromisoformat(since) if since else None,
        facts["files"],
        facts["runs"],
    )


def write_beats(store: Store, issuer: str, known: Processes) -> None:
    """Replace the beats of an issuer's processes, of which there is one at least.

    A version before this one, which knows of one process alone, reads the newest moment.
    """
    last = max(beat.at for beat in filter(None, [known.ended, *known.living.values()]))
    facts = {**_facts(known.ended or Beat(last)), "at": last.isoformat()}
    facts["processes"] = {name: _facts(beat) for name, beat in known.living.items()}
    store.replace(_key(issuer), [canonical(facts)])


def _facts(beat: Beat) -> dict[str, Any]:
    since = beat.since.isoformat() if beat.since else ""
    return {**beat._asdict(), "at": beat.at.isoformat(), "since": since}


def _key(issuer: str) -> str:
    return f"{metrics(issuer)}arrivals.json"


class Liveness(NamedTuple):
    """What a beat says at a moment, and whether somebody has to act."""

    text: str
    is_down: bool

    @property
    def line(self) -> str:
        """It as a line of its own."""
        return f"arrivals: {self.text}"


def liveness(store: Store, issuer: Issuer, now: datetime) -> Liveness | None:
    """Return whether runs start when a file arrives; None where that is not wanted."""
    if issuer.arrivals is None:
        return None
    known = read_beats(store, issuer.issuer)
    if not known.beats:
        return Liveness("its process has never run", is_down=True)
    silence = max(now - beat.at for beat in known.beats)
    if silence > SILENT:
        return Liveness(f"{_silent(known, now)} silent for {duration(silence)}", is_down=True)
    hindered = [(beat.since, beat.problem) for beat in known.beats if beat.problem and beat.since]
    if hindered:
        since, problem = min(hindered)
        text = f"for {duration(now - since)}: {problem}"
        return Liveness(text, is_down=now - since > HINDERED)
    files = sum(known.total(lambda beat: beat.files).values())
    runs = sum(known.total(lambda beat: beat.runs).values())
    started = counted(runs, "run was started", "runs were started")
    return Liveness(f"{counted(files, 'file')} came, {started}", is_down=False)


def _silent(known: Processes, now: datetime) -> str:
    """Return which processes are silent, and the verb."""
    if len(known.living) < 2:
        return "its process is"
    names = [name for name, beat in known.living.items() if now - beat.at > SILENT]
    verb = "is" if len(names) == 1 else "are"
    return f"of its {len(known.living)} processes, {' and '.join(sorted(names))} {verb}"


class Measured(Protocol):
    """A queue whose messages can be counted."""

    def length(self) -> int:
        """Return about how many messages wait."""


def check_arrivals(context: IssuerContext, opened: Callable[[str], Measured]) -> Iterator[str]:
    """Yield what works of an issuer's arrivals: the queue, then the process; raise what does not.

    Nothing where runs start by schedule alone.
    """
    settings = context.issuer.arrivals
    if settings is None:
        return
    if settings.queue is not None:
        messages = opened(settings.queue).length()
        yield f"{settings.queue}: {counted(messages, 'message waits', 'messages wait')}"
    state = liveness(context.adapters.store, context.issuer, context.adapters.now())
    if state is None:
        return
    if state.is_down:
        raise ArrivalsDownError(state=state.text)
    yield state.text
