"""The requests for a second person that an operator has to know of (`four_eyes.py`)."""

from collections.abc import Iterator
from typing import NamedTuple

from flows.runs.chains import records
from flows.runs.context import IssuerContext
from flows.runs.keys import approvals
from flows.steps import Step, parsed_line
from schemas.records import Approval

CARRIED_OUT = "carried out"


class StoredRequest(NamedTuple):
    """A stored request: its number, its first and last record, and its command.

    `has_ended`: it was carried out, and its command came to its end.
    """

    number: str
    first: Approval
    last: Approval
    has_ended: bool

    @property
    def step(self) -> Step:
        """The command that was requested."""
        return parsed_line(self.first.line)


def open_requests(context: IssuerContext) -> list[StoredRequest]:
    """Return the requests that nobody has carried out and that have not expired."""
    return [request for request in _requests(context) if request.last.what != CARRIED_OUT]


def stopped_requests(context: IssuerContext) -> list[StoredRequest]:
    """Return the requests whose command is under way or was stopped before its end, until they
    expire or the same is requested again.
    """
    requests = list(_requests(context))
    newest = {
        request.first.line: request.first.at
        for request in sorted(requests, key=lambda request: request.first.at)
    }
    return [
        request
        for request in requests
        if request.last.what == CARRIED_OUT
        and not request.has_ended
        and request.first.at == newest[request.first.line]
    ]


def _requests(context: IssuerContext) -> Iterator[StoredRequest]:
    """Yield the requests that have not expired."""
    adapters = context.adapters
    prefix = approvals(context.issuer.issuer)
    for folder in adapters.store.keys(prefix, shallow=True):
        history = list(records(adapters.store, folder.key, Approval))
        if history and adapters.now() < history[0].until:
            number = folder.key.removeprefix(prefix).rstrip("/")
            has_ended = [record.what for record in history[-2:]] == [CARRIED_OUT, CARRIED_OUT]
            yield StoredRequest(number, history[0], history[-1], has_ended)
