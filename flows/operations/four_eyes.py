"""Acts that need a second person: one requests, another carries it out.

A request is a chain of create-only records: requested, carried out, and given back where the
command failed. It holds the digest of the command line and of the files it names, so that nothing
else can be done with it.

The entry writes the command line itself, from the parameters, and binds the request to it and to
the versions of the files it names; a card number in the line is masked before it is digested. The
dry run comes first, so that nobody is asked to agree to what would be refused.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from typing import NamedTuple

from flows.errors import OperatorError
from flows.redaction import redact
from flows.runs.chains import add_next, records
from flows.runs.context import IssuerContext
from flows.runs.identity import canonical, digest
from flows.runs.keys import approvals, corrections, extracts
from flows.steps import Option, Sentence, Step, parsed_line
from schemas.records import Approval
from schemas.settings import Act

NOBODY = "a schedule"


class ApprovalError(OperatorError):
    """A request for a second person cannot be carried out."""

    message = "Request {number} was not carried out: {why}. Nothing was done."
    next_step = Sentence(
        "Have a different person run the request's line unchanged before it expires, "
        "or run the command without {approve} to make a new request.",
        approve=Option("--approve"),
    )


class Command(NamedTuple):
    """A command that needs a second person, as somebody gave it.

    `line` is the command line, `files` are those it names, `local` the digests of those that are
    not in the store; `actor` is "" for a schedule.
    """

    act: Act
    line: str
    files: Sequence[str]
    local: Sequence[str]
    actor: str
    reason: str


class OpenRequest(NamedTuple):
    """A request that another person can carry out: its number, its record, and its command."""

    number: str
    record: Approval
    step: Step


def request(context: IssuerContext, command: Command) -> tuple[str, Approval]:
    """Store a request for a second person; return its number and record."""
    adapters = context.adapters
    record = Approval(
        at=adapters.now(),
        by=redact(adapters.actor),
        reason=redact(command.reason),
        what="requested",
        act=command.act,
        actor=command.actor or NOBODY,
        line=redact(command.line),
        digest=_digest(context, command),
        until=adapters.now() + timedelta(hours=context.issuer.four_eyes.hours),
    )
    number = digest(canonical(record))[:12]
    add_next(adapters.store, _place(context, number), 1, record)
    return number, record


@contextmanager
def carrying_out(context: IssuerContext, number: str, command: Command) -> Iterator[str]:
    """Use up a request while its command runs, and yield who made it.

    A command that fails gives it back; one that is killed has used it up. Raises ApprovalError
    where the request does not fit.
    """
    adapters = context.adapters
    place = _place(context, number)
    history = list(records(adapters.store, place, Approval))
    objection = _objection(context, history, command)
    if objection:
        raise ApprovalError(number=redact(number), why=objection)
    requested = history[0]
    used = requested.model_copy(
        update={
            "at": adapters.now(),
            "by": redact(adapters.actor),
            "actor": command.actor,
            "what": "carried out",
        }
    )
    if not add_next(adapters.store, place, len(history) + 1, used):
        raise ApprovalError(number=number, why="somebody else is carrying it out right now")
    try:
        yield requested.actor
    except BaseException:
        given_back = used.model_copy(update={"what": "given back"})
        add_next(adapters.store, place, len(history) + 2, given_back)
        raise


def open_requests(context: IssuerContext) -> list[OpenRequest]:
    """Return the requests that nobody has carried out and that have not expired."""
    adapters = context.adapters
    prefix = approvals(context.issuer.issuer)
    still_open: list[OpenRequest] = []
    for folder in adapters.store.keys(prefix, shallow=True):
        history = list(records(adapters.store, folder.key, Approval))
        is_open = history and history[-1].what != "carried out"
        if is_open and adapters.now() < history[0].until:
            number = folder.key.removeprefix(prefix).rstrip("/")
            still_open.append(OpenRequest(number, history[0], parsed_line(history[0].line)))
    return still_open


def _place(context: IssuerContext, number: str) -> str:
    return f"{approvals(context.issuer.issuer)}{number}/"


def _objection(context: IssuerContext, history: Sequence[Approval], command: Command) -> str:
    """Return why a request cannot be carried out, "" where it can."""
    if not history:
        return "there is no such request"
    requested = history[0]
    last = history[-1]
    if last.what == "carried out":
        return f"{last.actor} used it on {last.at:%Y-%m-%d %H:%M}"
    if context.adapters.now() >= requested.until:
        return f"it expired on {requested.until:%Y-%m-%d %H:%M}"
    if command.actor.casefold() in ("", requested.actor.casefold()):
        return f"{requested.actor} made it; a different person must carry it out"
    if _digest(context, command) != requested.digest:
        return f"it was made for other parameters or files: {requested.line}"
    return ""


def _digest(context: IssuerContext, command: Command) -> str:
    """Return the digest of a command line and of the versions of the files it names.

    No card number is kept of the line.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    names = tuple(command.files)
    places = [name for name in names if name.startswith(f"{issuer}/")]
    if names:
        places = [extracts(issuer), corrections(issuer), *places]
    entries = chain.from_iterable(store.keys(place) for place in places)
    versions = {entry.key: entry.version for entry in entries if entry.key.endswith(names)}
    facts = {"line": redact(command.line), "versions": versions, "local": list(command.local)}
    return digest(canonical(facts))
