"""The requests for a second person that an operator has to know of (`four_eyes.py`)."""

from collections.abc import Iterable
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
    def is_open(self) -> bool:
        """Whether another person can carry it out."""
        return self.last.what != CARRIED_OUT

    @property
    def step(self) -> Step:
        """The command that was requested."""
        return parsed_line(self.first.line)


def open_requests(context: IssuerContext) -> list[StoredRequest]:
    """Return the requests that nobody has carried out and that have not expired."""
    return [request for request in unexpired_requests(context) if request.is_open]


def stopped(requests: Iterable[StoredRequest]) -> list[StoredRequest]:
    """Return those of an issuer's requests whose command is under way or was stopped before its
    end, unless the same was requested again.
    """
    in_order = sorted(requests, key=lambda request: request.first.at)
    newest = {request.first.line: request for request in in_order}
    return [request for request in newest.values() if not request.is_open and not request.has_ended]


def unexpired_requests(context: IssuerContext) -> list[StoredRequest]:
    """Return the requests that have not expired."""
    adapters = context.adapters
    prefix = approvals(context.issuer.issuer)
    requests: list[StoredRequest] = []
    for folder in adapters.store.keys(prefix, shallow=True):
        history = list(records(adapters.store, folder.key, Approval))
        if history and adapters.now() < history[0].until:
            number = folder.key.removeprefix(prefix).rstrip("/")
            has_ended = [record.what for record in history[-2:]] == [CARRIED_OUT, CARRIED_OUT]
            requests.append(StoredRequest(number, history[0], history[-1], has_ended))
    return requests
