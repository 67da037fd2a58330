"""What one person requested, for a second person to carry out: the rows of the table `request`.

A request is stored whole: the command with its parameters, the versions of the files that it names,
the settings in force, and what the command would have done, as its dry run said. Its number is the
digest of all that, and the journal says what was done with it; so one that was edited, put there or
put back by another way is known. The journal repeats nothing that may name a cardholder.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import Any, Final

import polars as pl
from sqlalchemy import ColumnElement, Table, or_, select, update

from flows.book.book import Book
from flows.extensions.governance.in_force import made_with
from flows.extensions.governance.tables import REQUEST
from flows.operations.audit_journal import CHANGED, EMPTIED
from flows.redaction import redact
from flows.reports.work import Work
from flows.reports.work_kinds import OPERATOR, Kind
from flows.runs.adapters import Adapters
from flows.runs.context import IssuerContext
from flows.runs.documents import record_of_row
from flows.runs.erased import Mention, People, Place
from flows.runs.identity import canonical, digest
from flows.runs.journal import Act, enter, plain
from flows.runs.keys import extracts
from flows.runs.store import Cleaner
from flows.runs.stored_run import StoredRun
from flows.steps import YOUR_NAME, Slot, Step, parsed_line
from schemas.database import JOURNAL
from schemas.records import Record

PLACE: Final = "requests"
PLACES: Final = {
    PLACE: Place(
        "a cuid that a command named, which needed two persons",
        "evidence of what was agreed to",
        "not purged; an erasure leaves that there was a request, and not for what",
        erased=True,
    ),
}
MADE: Final = "made"
CARRIED_OUT: Final = "carried out"  # its command is under way, or was killed
GIVEN_BACK: Final = "given back"  # its command failed
ENDED: Final = "ended"
# what a person who is to be forgotten may be named in
OF_PEOPLE: Final = ("line", "parameters", "would")
# who requests what; and with the rest, what its number is the digest of
CONTENT: Final = ("actor", "reason", "act", "files", "settings", *OF_PEOPLE)
UNSIGNED: Final = (*CONTENT, "at", "by", "until")
WHOLE: Final = (*UNSIGNED, "signature")

REQUESTS = Kind(
    "requests for a second person",
    OPERATOR,
    "Requested, and nobody has carried it out",
    Step("worklist", Slot("issuer")),  # each request has its own line instead
    noun="request",
    of_one_run=True,
)
STOPPED = Kind(
    "requests used up",
    OPERATOR,
    "A second person began to carry them out, and the command has not finished",
    Step("worklist", Slot("issuer")),  # each request has its own line instead
    "It is under way, or was stopped. Run the line again to request what is left to do.",
    noun="request",
    of_one_run=True,
)

Values = Mapping[str, Any]


class Request(Record):
    """A request as it is stored."""

    number: str
    actor: str
    act: str
    files: dict[str, str]
    settings: int
    line: str
    parameters: dict[str, Any]
    would: dict[str, Any]
    until: datetime
    signature: str | None
    entry: int
    state: str
    since: datetime
    second: str | None
    second_by: str | None
    second_signature: str | None

    @property
    def is_open(self) -> bool:
        """Whether another person can carry it out."""
        return self.state in (MADE, GIVEN_BACK)

    @property
    def step(self) -> Step:
        """The command that was requested."""
        return parsed_line(self.line)

    def has(self, content: Values) -> bool:
        """Return whether this is what the same person requests."""
        return of_names(dict(self), CONTENT) == of_names(content, CONTENT)


def of_names(values: Values, names: Iterable[str]) -> bytes:
    """Return these of the values, to be compared, digested or signed."""
    return canonical({name: plain(values[name]) for name in names})


def number_of(values: Values) -> str:
    """Return the number of a request with these values; others are not looked at."""
    return digest(of_names(values, WHOLE))[:12]


def requests(adapters: Adapters, issuer: str, *which: ColumnElement[bool]) -> list[Request]:
    """Return the requests of which all these hold, the oldest first.

    Those are left out that name somebody who is forgotten, or of which a database that was made
    again from the journal does not know the command.
    """
    columns = [REQUEST.c[name] for name in Request.model_fields]
    query = select(*columns).where(REQUEST.c.issuer == issuer, REQUEST.c.line.is_not(None), *which)
    with adapters.database.snapshot() as connection:
        rows = connection.execute(query.order_by(REQUEST.c.at, REQUEST.c.number)).mappings().all()
    return [record_of_row(dict(row), f"Request {row['number']}", Request) for row in rows]


def unexpired(context: IssuerContext) -> list[Request]:
    """Return the requests that have not expired."""
    is_unexpired = REQUEST.c.until > context.adapters.now()
    return requests(context.adapters, context.issuer.issuer, is_unexpired)


def stopped(unexpired_requests: Iterable[Request]) -> list[Request]:
    """Return those whose command is under way or was stopped before its end, unless the same was
    requested again.
    """
    newest = {request.line: request for request in unexpired_requests}
    return [request for request in newest.values() if request.state == CARRIED_OUT]


def store(context: IssuerContext, values: Values) -> str:
    """Store a request; return its number, or that of the open one that is the same."""

    def make(act: Act) -> str:
        now = context._replace(adapters=context.adapters.within(act.connection))
        for request in unexpired(now):
            if request.is_open and request.has(values):  # a concurrent process was first
                return request.number
        number = number_of(values)
        entered = {name: value for name, value in values.items() if name not in OF_PEOPLE}
        state = {"state": MADE, "since": values["at"], "entry": act.number}
        act.insert(REQUEST, number=number, **entered, **state)
        row = act.row(REQUEST, {"number": number})
        of_people = {name: values[name] for name in OF_PEOPLE}
        act.connection.execute(update(REQUEST).where(row).values(**of_people))
        return number

    return enter(context.adapters, context.issuer.issuer, "request made", make)


def move(
    context: IssuerContext,
    number: str,
    state: str,
    refuse: Callable[[Adapters], None] = lambda _: None,
    **others: str | None,
) -> None:
    """Bring a request into another state, unless `refuse` raises within the transaction."""
    adapters = context.adapters

    def work(act: Act) -> None:
        refuse(adapters.within(act.connection))
        by = redact(adapters.actor)
        key = {"number": number}
        act.update(REQUEST, key, state=state, since=adapters.now(), second_by=by, **others)

    enter(adapters, context.issuer.issuer, f"request {state}", work)


def work_kinds() -> tuple[Kind, ...]:
    """Return the kinds of lines of the worklist about requests."""
    return REQUESTS, STOPPED


def matters(context: IssuerContext, _book: Book, _now: datetime) -> Iterator[Work]:
    """Yield the requests that another person can carry out, and those whose command may have been
    stopped.
    """
    issuer = context.issuer.issuer
    waiting = unexpired(context)
    yield from (_open_request(issuer, request) for request in waiting if request.is_open)
    for request in stopped(waiting):
        note = f"{request.second} began to carry it out for {request.actor}."
        yield _line(issuer, request, STOPPED)._replace(note=note)


def _open_request(issuer: str, request: Request) -> Work:
    reason = f" ({request.reason})" if request.reason else ""
    return _line(issuer, request, REQUESTS)._replace(
        step=request.step.adding(approve=request.number, actor=YOUR_NAME),
        note=(
            f"{request.actor} requested it{reason}; a different person runs the line, or "
            f"lets it expire at {request.until:%Y-%m-%d %H:%M} UTC."
        ),
    )


def _line(issuer: str, request: Request, kind: Kind) -> Work:
    return Work(
        due=request.until,
        kind=kind.name,
        issuer=issuer,
        since=request.since,
        fields=(("name", request.number),),
        step=request.step,
    )


def state_in_journal(context: IssuerContext, request: Request) -> str:
    """Return the state of a request by the journal, "" where that does not know it."""
    query = select(JOURNAL.c.changes).where(
        JOURNAL.c.issuer == context.issuer.issuer,
        JOURNAL.c.number >= request.entry,
        JOURNAL.c.what.startswith("request "),
    )
    with context.adapters.database.snapshot() as connection:
        changes_of_each = connection.execute(query.order_by(JOURNAL.c.number)).scalars().all()
    state = ""
    for change in chain.from_iterable(changes_of_each):
        if (change.get("key") or change["values"]).get("number") == request.number:
            state = change["values"].get("state", state)
    return state


def is_as_numbered(values: Values) -> bool:
    """Return whether a request as it is stored is what its number says."""
    return bool(number_of(values) == values["number"])


def row_finding(table: Table, entered: Values, values: Values) -> str:
    """Return that a request is not what its number says, or lost it by no entry; "" if neither."""
    if table is not REQUEST:
        return ""
    if values["line"] is None:
        return "" if "line" in entered else EMPTIED
    return "" if is_as_numbered(values) else CHANGED


def evidence_of(run: StoredRun) -> dict[str, Any]:
    """Return the settings that a run was made with, and the requests that name it."""
    return {"settings_in_force.json": made_with(run), "requests.json": _naming(run)}


def _naming(run: StoredRun) -> list[dict[str, Any]]:
    """Return the requests whose command names a run or its extract: which command, by whom, when;
    not what it was given, since it may name somebody.
    """
    extract = run.planned().source.key.removeprefix(extracts(run.issuer))
    is_named = or_(*(REQUEST.c.line.contains(name, autoescape=True) for name in (run.id, extract)))
    return [
        {
            "command": request.step.entry,
            **request.model_dump(exclude=set(OF_PEOPLE)),
        }
        for request in requests(run.adapters, run.issuer, is_named)
    ]


def places() -> dict[str, Place]:
    """Return where personal data is kept."""
    return PLACES


def mentions(context: IssuerContext, people: People, _runs: Collection[str]) -> Iterator[Mention]:
    """Yield the requests in which a word names some of these cardholders."""
    for request in requests(context.adapters, context.issuer.issuer):
        words = pl.Series(list(_words_in([request.parameters, request.would])), dtype=pl.String)
        if people.named_by(words).any():
            facts = {"line": request.line, "at": request.at.isoformat(), "by": request.by}
            yield Mention(PLACE, request.number, [facts])


def erase(
    context: IssuerContext, _cleaner: Cleaner, _people: People, named: Iterable[Mention]
) -> None:
    """Remove what requests say of somebody, but that there was one."""

    def work(act: Act) -> None:
        for mention in named:
            if mention.place == PLACE:
                act.update(REQUEST, {"number": mention.key}, **dict.fromkeys(OF_PEOPLE))

    enter(context.adapters, context.issuer.issuer, "requests emptied", work)


def _words_in(value: Any) -> set[str]:
    """Return all texts in a document."""
    match value:
        case str():
            return {value}
        case dict():
            return set(chain.from_iterable(map(_words_in, value.values())))
        case list() | tuple():
            return set(chain.from_iterable(map(_words_in, value)))
    return set()
