"""How what runs beside the flows of an issuer is doing, as the extensions say that run it."""

from datetime import datetime
from typing import NamedTuple

from flows.errors import CardlinkError
from flows.extensions import hooks
from flows.runs.store import Store
from schemas.issuer import Issuer


class Condition(NamedTuple):
    """How what runs beside the flows is doing.

    `trouble` is the error that says what to do where somebody has to act; its alert is of the kind
    `<name>-down`.
    """

    name: str
    text: str
    trouble: CardlinkError | None = None


def conditions(issuer: Issuer, store: Store, now: datetime) -> list[Condition]:
    """Return the conditions that somebody wants to know of."""
    states = [condition(issuer, store, now) for condition in hooks("condition")]
    return [state for state in states if state is not None]
