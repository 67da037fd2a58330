"""The beat of the process of arrivals: that it lives, what hinders it, and what it did.

The process replaces it every half minute beside the issuer's metrics. Whoever looks (the watch, the
metrics, `check`, `status`) reads it there, and needs no other way to the process.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

from flows.errors import OperatorError
from flows.reports.ages import duration
from flows.runs.context import IssuerContext
from flows.runs.identity import canonical
from flows.runs.keys import metrics
from flows.runs.store import Store
from flows.runs.versions import read_facts
from flows.steps import counted
from schemas.issuer import Issuer

EVERY: Final = 30.0  # seconds between two beats
SILENT: Final = timedelta(minutes=5)  # without a beat
HINDERED: Final = timedelta(minutes=2)  # a problem that lasts no longer needs nobody


class ArrivalsDownError(OperatorError):
    """The process that starts runs when a file arrives does not run, or cannot do its work."""

    message = "Nothing starts when a file arrives: {state}."
    next_step = (
        "See that `python -m flows.arrivals` runs beside the worker, and remove what hinders it; "
        "meanwhile the schedules start every hour."
    )


class Beat(NamedTuple):
    """One beat: when its parts last worked, and its `problem` with the moment since when.

    `files` and `runs` count by flow what came and what was started, over all its processes.
    """

    at: datetime
    problem: str = ""
    since: datetime | None = None
    files: Mapping[str, int] = {}
    runs: Mapping[str, int] = {}


def read_beat(store: Store, issuer: str) -> Beat | None:
    """Return an issuer's last beat, None where there was none."""
    facts = read_facts(store, _key(issuer))
    if facts is None:
        return None
    since = facts["since"]
    return Beat(
        datetime.fromisoformat(facts["at"]),
        facts["problem"],
        datetime.fromisoformat(since) if since else None,
        facts["files"],
        facts["runs"],
    )


def write_beat(store: Store, issuer: str, beat: Beat) -> None:
    """Replace an issuer's beat."""
    facts: dict[str, Any] = beat._asdict()
    facts["at"] = beat.at.isoformat()
    facts["since"] = beat.since.isoformat() if beat.since else ""
    store.replace(_key(issuer), [canonical(facts)])


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
    beat = read_beat(store, issuer.issuer)
    if beat is None:
        return Liveness("its process has never run", is_down=True)
    if now - beat.at > SILENT:
        return Liveness(f"its process is silent for {duration(now - beat.at)}", is_down=True)
    if beat.problem and beat.since is not None:
        text = f"for {duration(now - beat.since)}: {beat.problem}"
        return Liveness(text, is_down=now - beat.since > HINDERED)
    files = sum(beat.files.values())
    started = counted(sum(beat.runs.values()), "run was started", "runs were started")
    return Liveness(f"{counted(files, 'file')} came, {started}", is_down=False)


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
