"""The beat of the process of arrivals: that it lives, and what hinders it.

The process replaces an issuer's every half minute beside its metrics. Whoever looks (the watch, the
metrics, `check`, `worklist`) reads it there, and needs no other way to the process.
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from pydantic import BaseModel

from flows.errors import OperatorError
from flows.extensions.arrivals.settings import Arrivals
from flows.reports.ages import duration
from flows.runs.documents import read_document
from flows.runs.keys import metrics
from flows.runs.store import Store
from schemas.issuer import Issuer

BEAT_SECONDS: Final = 30.0  # between two beats
SILENT: Final = timedelta(minutes=5)  # without a look that worked


class ArrivalsDownError(OperatorError):
    """The process that starts runs when a file arrives does not run, or cannot do its work."""

    message = "Nothing starts when a file arrives: {state}."
    next_step = (
        "See that `python -m flows.extensions.arrivals` runs beside the worker, and remove what "
        "hinders it; meanwhile the schedules start every hour."
    )


class Beat(BaseModel):
    """When the process last looked and could start what was needed, and what hinders it since."""

    at: datetime
    problem: str = ""


def read_beat(store: Store, issuer: str) -> Beat | None:
    """Return the last beat of an issuer, None where there was none; ConflictError."""
    return read_document(store, _key(issuer), Beat)


def write_beat(store: Store, issuer: str, beat: Beat) -> None:
    """Replace the beat of an issuer."""
    store.replace(_key(issuer), [beat.model_dump_json().encode()])


def _key(issuer: str) -> str:
    return f"{metrics(issuer)}arrivals.json"


class Liveness(NamedTuple):
    """What a beat says at a moment, and whether somebody has to act."""

    text: str
    is_down: bool


def liveness(store: Store, issuer: Issuer, now: datetime) -> Liveness | None:
    """Return whether runs start when a file arrives; None where that is not wanted."""
    if issuer.table(Arrivals) is None:
        return None
    beat = read_beat(store, issuer.issuer)
    if beat is None:
        return Liveness("its process has never run", is_down=True)
    silence = now - beat.at
    is_down = silence > SILENT
    if beat.problem:
        return Liveness(f"for {duration(silence)}: {beat.problem}", is_down)
    if is_down:
        return Liveness(f"its process is silent for {duration(silence)}", is_down)
    return Liveness("its process works", is_down)
