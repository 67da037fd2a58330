"""The requests for a second person as the database has them (`four_eyes.py`)."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import chain
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, select

from flows.runs.adapters import Adapters
from flows.runs.context import IssuerContext
from flows.runs.documents import record_of_row
from flows.runs.identity import canonical, digest
from flows.runs.journal import plain
from flows.steps import Step, parsed_line
from schemas.database import JOURNAL, REQUEST
from schemas.records import Request

WAITING: Final = "waiting"
CARRIED_OUT: Final = "carried out"  # its command is under way, or was killed
GIVEN_BACK: Final = "given back"  # its command failed
ENDED: Final = "ended"
ENTRIES: Final = {  # of the journal, by the state that a request is in from then on
    WAITING: "request made",
    CARRIED_OUT: "request carried out",
    GIVEN_BACK: "request given back",
    ENDED: "request ended",
}
_STATE = ("number", "entry", "state", "since", "second")
# what a person who is to be forgotten may be named in: the journal has none of it
OF_PEOPLE: Final = ("line", "parameters", "would")


class StoredRequest(NamedTuple):
    """A stored request, the number of its journal entry, its state, and who carried it out."""

    request: Request
    number: str
    entry: int
    state: str
    since: datetime
    second: str | None

    @property
    def is_open(self) -> bool:
        """Whether another person can carry it out."""
        return self.state in (WAITING, GIVEN_BACK)

    @property
    def step(self) -> Step:
        """The command that was requested."""
        return parsed_line(self.request.line)


def stored_requests(
    adapters: Adapters, issuer: str, *which: ColumnElement[bool]
) -> list[StoredRequest]:
    """Return the requests of which all these hold, the oldest first.

    Those are left out that name somebody who is forgotten, or of which a database that was made
    again from the journal does not know the command.
    """
    columns = [REQUEST.c[name] for name in (*Request.model_fields, *_STATE)]
    query = select(*columns).where(REQUEST.c.issuer == issuer, REQUEST.c.line.is_not(None), *which)
    with adapters.database.snapshot() as connection:
        rows = connection.execute(query.order_by(REQUEST.c.at, REQUEST.c.number)).mappings().all()
    return [
        StoredRequest(
            record_of_row(
                {name: row[name] for name in Request.model_fields},
                f"Request {row['number']}",
                Request,
            ),
            **{name: row[name] for name in _STATE},
        )
        for row in rows
    ]


def number_of(values: Mapping[str, Any]) -> str:
    """Return the number of a request with these values; others are not looked at."""
    requested = {name: plain(values[name]) for name in Request.model_fields}
    return digest(canonical(requested))[:12]


def state_in_journal(context: IssuerContext, stored: StoredRequest) -> str:
    """Return the state of a request by the journal, "" where that does not know it."""
    query = select(JOURNAL.c.changes).where(
        JOURNAL.c.issuer == context.issuer.issuer,
        JOURNAL.c.number >= stored.entry,
        JOURNAL.c.what.in_(ENTRIES.values()),
    )
    with context.adapters.database.snapshot() as connection:
        changes_of_each = connection.execute(query.order_by(JOURNAL.c.number)).scalars().all()
    state = ""
    for change in chain.from_iterable(changes_of_each):
        if (change.get("key") or change["values"]).get("number") == stored.number:
            state = change["values"]["state"]
    return state


def unexpired_requests(context: IssuerContext) -> list[StoredRequest]:
    """Return the requests that have not expired."""
    unexpired = REQUEST.c.until > context.adapters.now()
    return stored_requests(context.adapters, context.issuer.issuer, unexpired)


def open_requests(context: IssuerContext) -> list[StoredRequest]:
    """Return the requests that nobody has carried out and that have not expired."""
    return [request for request in unexpired_requests(context) if request.is_open]


def stopped(requests: Iterable[StoredRequest]) -> list[StoredRequest]:
    """Return those of an issuer's requests whose command is under way or was stopped before its
    end, unless the same was requested again.
    """
    in_order = sorted(requests, key=lambda request: request.request.at)
    newest = {request.request.line: request for request in in_order}
    return [request for request in newest.values() if request.state == CARRIED_OUT]
