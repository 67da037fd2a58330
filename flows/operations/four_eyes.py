"""Acts that need a second person: one requests, another carries it out.

A request is a row of the table `request`: waiting, carried out, given back where the command
failed, ended where it did not. It is stored whole: the command with its parameters, the versions of
the files that it names, the settings in force, and what the command would have done, as its dry run
said. What is carried out is that, and nothing else: where any of it is different now, the request
is refused, and the difference is named.

The number of a request is the digest of what is requested, and the journal says what was done with
it; so one that was edited, put there or put back by another way is refused. The journal repeats
nothing that may name a cardholder. A card number in the line or in the parameters is masked before
anything is stored or digested. The dry run comes first, so that nobody is asked to agree to what
would be refused.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import chain
from typing import Any, NamedTuple, Protocol

from pydantic_core import to_jsonable_python
from sqlalchemy import update

from flows.errors import CardlinkError, GateError, OperatorError
from flows.operations.settings_in_force import in_words, settings_of, values_of
from flows.operations.shown_facts import as_shown, departures
from flows.operations.stored_requests import (
    CARRIED_OUT,
    ENDED,
    ENTRIES,
    GIVEN_BACK,
    OF_PEOPLE,
    WAITING,
    StoredRequest,
    number_of,
    open_requests,
    state_in_journal,
    stored_requests,
)
from flows.redaction import redact, redacted
from flows.runs import journal
from flows.runs.context import IssuerContext
from flows.runs.identity import canonical, digest
from flows.runs.journal import enter
from flows.runs.keys import corrections, extracts, results
from flows.steps import YOUR_NAME, Option, Sentence, Step
from schemas.database import REQUEST
from schemas.governed import changes
from schemas.persons import normalised
from schemas.records import Request
from schemas.settings import Act


class ApprovalError(OperatorError):
    """A request for a second person cannot be carried out."""

    message = "Request {number} was not carried out: {why}. Nothing was done."
    next_step = Sentence(
        "Run the command without {approve}: it names the request that waits, or makes a new one; a "
        "different person runs the line that it prints, unchanged, before it expires.",
        approve=Option("--approve"),
    )


class RequestChangedError(ApprovalError):
    """A request is not the one that was stored: somebody changed it."""

    message = "Request {number} was not carried out: {why}. Nothing was done."
    next_step = Sentence(
        "Tell security, and see what else was changed: {verify}. Then run the command without "
        "{approve} to make a new request.",
        verify=Step("audit verify", "ISSUER"),
        approve=Option("--approve"),
    )


class NobodyError(GateError):
    """An act that needs two persons was begun by none: by a schedule, or without a name."""

    message = "This needs two persons, and nobody was named: {line}. Nothing was done."
    next_step = Sentence("A person asks for it, with {actor}.", actor=Option("--actor", YOUR_NAME))


class NotProvedError(GateError):
    """A person's name does not count, because it is only given and not signed for."""

    message = "{actor} is not proved to be who they are: {why}. Nothing was done."
    next_step = (
        "On the command line, name your own private key with CARDLINK_PERSON_KEY_FILE, "
        "and its passphrase with CARDLINK_PERSON_PASSPHRASE_FILE. Those who may: {persons}."
    )


class Signatures(Protocol):
    """Signatures of the persons whose keys are pinned."""

    @property
    def persons(self) -> Collection[str]:
        """Their names."""

    def sign(self, statement: bytes) -> str:
        """Return the signature of whoever runs the command, "" where they have no key at hand."""

    def holds(self, name: str, statement: bytes, signature: str) -> bool:
        """Return whether a signature is of a statement, by the person of that name."""


class Command(NamedTuple):
    """A command that needs a second person, as somebody gave it.

    `line` is the command line, `parameters` are the values that are set, by name; `files` are those
    it names, `local` the digests of those that are not in the store, by name; `actor` is "" for a
    schedule. `rehearse` returns the facts of its dry run. `signatures` where names must be proved.
    """

    act: Act
    line: str
    parameters: Mapping[str, Any]
    files: Sequence[str]
    local: Mapping[str, str]
    actor: str
    reason: str
    hours: int = 24
    rehearse: Callable[[], Mapping[str, Any]] = dict
    signatures: Signatures | None = None


def request(context: IssuerContext, command: Command) -> tuple[str, Request]:
    """Store a request for a second person; return its number and record. NobodyError.

    Whoever requests again what they have requested, and nobody has carried out, gets that request.
    """
    _refuse_nobody(command)
    adapters = context.adapters
    requested = Request(
        at=adapters.now(),
        by=redact(adapters.actor),
        reason=redact(command.reason),
        act=command.act,
        actor=command.actor,
        line=redact(command.line),
        digest=_digest(context, command),
        until=adapters.now() + timedelta(hours=command.hours),
        parameters=_parameters(command),
        files=_versions(context, command),
        settings=context.settings_in_force,
        would=_would(context, command),
    )
    same = _open_like(context, requested)
    if same is not None:
        return same.number, same.request
    requested = requested.model_copy(
        update={"signature": _signature(command, canonical(requested))}
    )

    def store(act: journal.Act) -> tuple[str, Request]:
        now = context._replace(adapters=adapters.within(act.connection))
        same = _open_like(now, requested)
        if same is not None:  # a concurrent process was first
            return same.number, same.request
        values = dict(requested)
        number = number_of(values)
        of_people = {name: values.pop(name) for name in OF_PEOPLE}
        state = {"state": WAITING, "since": requested.at, "entry": act.number}
        act.insert(REQUEST, number=number, **values, **state)
        row = act.row(REQUEST, {"number": number})
        act.connection.execute(update(REQUEST).where(row).values(**of_people))
        return number, requested

    return enter(adapters, context.issuer.issuer, ENTRIES[WAITING], store, reason=requested.reason)


@contextmanager
def carrying_out(context: IssuerContext, number: str, command: Command) -> Iterator[str]:
    """Use up a request while its command runs, and yield who made it.

    A command that fails gives it back; one that is killed has used it up: only an ended one says
    that it ended. Raises NobodyError, and ApprovalError where the request does not fit.
    """
    _refuse_nobody(command)
    stored = _stored(context, number)
    _refuse_unfit(context, stored, command)
    signature = _signature(command, canonical(stored.request))

    def begin(act: journal.Act) -> None:
        now = context._replace(adapters=context.adapters.within(act.connection))
        if not _stored(now, number).is_open:
            raise ApprovalError(number=number, why="somebody else is carrying it out right now")
        _move(act, context, number, CARRIED_OUT, second=command.actor, second_signature=signature)

    issuer = context.issuer.issuer
    enter(context.adapters, issuer, ENTRIES[CARRIED_OUT], begin)
    try:
        yield stored.request.actor
    except BaseException:
        _enter_end(context, number, GIVEN_BACK)
        raise
    with suppress(CardlinkError):  # the command has done what it should
        _enter_end(context, number, ENDED)


def _enter_end(context: IssuerContext, number: str, state: str) -> None:
    """Enter how the command of a request ended."""
    issuer = context.issuer.issuer
    enter(
        context.adapters,
        issuer,
        ENTRIES[state],
        lambda act: _move(act, context, number, state),
    )


def _move(
    act: journal.Act, context: IssuerContext, number: str, state: str, **others: str | None
) -> None:
    """Bring a request into another state."""
    adapters = context.adapters
    by = redact(adapters.actor)
    key = {"number": number}
    act.update(REQUEST, key, state=state, since=adapters.now(), second_by=by, **others)


def _stored(context: IssuerContext, number: str) -> StoredRequest:
    """Return the request of a number; ApprovalError where there is none."""
    issuer = context.issuer.issuer
    for stored in stored_requests(context.adapters, issuer, REQUEST.c.number == number):
        return stored
    raise ApprovalError(number=redact(number), why="there is no such request")


def _open_like(context: IssuerContext, requested: Request) -> StoredRequest | None:
    """Return the open request of the same person for the same, None where there is none."""
    content = _content(requested)
    waiting = open_requests(context)
    return next((stored for stored in waiting if _content(stored.request) == content), None)


def _content(requested: Request) -> bytes:
    """Return who requests what, without when, and from which process."""
    beside = ("at", "by", "until", "signature")
    return canonical(requested.model_copy(update=dict.fromkeys(beside)))


def _unsigned(requested: Request) -> bytes:
    """Return what the first person signs; the second signs that with this signature."""
    return canonical(requested.model_copy(update={"signature": None}))


def _refuse_nobody(command: Command) -> None:
    """Raise NobodyError where no person was named."""
    if not normalised(command.actor):
        raise NobodyError(line=redact(command.line))


def _signature(command: Command, statement: bytes) -> str | None:
    """Return the signature of a statement by the command's actor, None where names are given alone.

    NotProvedError.
    """
    signatures = command.signatures
    if signatures is None:
        return None
    why = ""
    signature = ""
    if normalised(command.actor) not in map(normalised, signatures.persons):
        why = "[four_eyes] persons does not name them"
    else:
        signature = signatures.sign(statement)
    if not signature:
        why = why or "no key of theirs is at hand"
    elif not signatures.holds(command.actor, statement, signature):
        why = "the key at hand is not theirs"
    if why:
        persons = ", ".join(sorted(signatures.persons))
        raise NotProvedError(actor=command.actor, why=why, persons=persons)
    return signature


def _refuse_unfit(context: IssuerContext, stored: StoredRequest, command: Command) -> None:
    """Refuse a request that cannot be carried out, for the reason that costs least to find."""
    reasons = (
        (ApprovalError, _spent(context, stored, command)),
        (RequestChangedError, _tampered(context, stored, command.signatures)),
        (ApprovalError, _out_of_date(context, stored.request, command)),
    )
    for error, objections in reasons:
        objection = next(objections, None)
        if objection:
            raise error(number=stored.number, why=objection)


def _spent(context: IssuerContext, stored: StoredRequest, command: Command) -> Iterator[str]:
    """Yield why nobody, or not this person, may carry out a request."""
    requested = stored.request
    if not stored.is_open:
        yield f"{stored.second} used it on {stored.since:%Y-%m-%d %H:%M}"
    if context.adapters.now() >= requested.until:
        yield f"it expired on {requested.until:%Y-%m-%d %H:%M}"
    if normalised(command.actor) == normalised(requested.actor):
        yield (
            f"{requested.actor} made it; a different person must carry it out, one whose name "
            "differs in more than case, punctuation and spaces"
        )


def _tampered(
    context: IssuerContext, stored: StoredRequest, signatures: Signatures | None
) -> Iterator[str]:
    """Yield how a request is not the one that was stored."""
    if state_in_journal(context, stored) != stored.state:
        yield "it is not as the journal has it"
    requested = stored.request
    if number_of(dict(requested)) != stored.number:
        yield f"what is requested is not that of request {stored.number}"
    if signatures is None:
        return
    if not signatures.holds(requested.actor, _unsigned(requested), requested.signature or ""):
        yield f"{requested.actor} did not sign it"


def _out_of_date(context: IssuerContext, first: Request, command: Command) -> Iterator[str]:
    """Yield what is different from what was requested: command, files, settings, what it does."""
    parameters = departures(first.parameters, _parameters(command))
    if parameters or first.digest != _digest(context, command, first.files):
        yield f"it was made for other parameters: {first.line}; {parameters}".rstrip("; ")
    files = _changed_files(first.files, _versions(context, command))
    if files:
        yield f"files are not those that were seen: {files}"
    if first.settings != context.settings_in_force:
        yield f"the settings changed since: {_changed_settings(context, first.settings)}"
    state = departures(first.would, _would(context, command))
    if state:
        yield f"what it would do is not what was shown: {state}"


def _changed_files(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return which files were replaced, came or went since, "" for none."""
    states = {True: {True: "replaced", False: "gone"}, False: {True: "new"}}
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(f"{name} is {states[name in before][name in after]}" for name in names)


def _changed_settings(context: IssuerContext, sha256: str) -> str:
    """Return in words how the settings in force differ from those of a digest."""
    before = settings_of(context, sha256)
    if before is None:
        return f"there is no record of {sha256[:12]}"
    return in_words(changes(before, values_of(context)))


def _parameters(command: Command) -> dict[str, Any]:
    """Return the values of the parameters that are set, as they are stored: all of them."""
    values: dict[str, Any] = redacted(to_jsonable_python(dict(command.parameters)))
    return values


def _would(context: IssuerContext, command: Command) -> dict[str, Any]:
    """Return what the command would do, as it is stored."""
    began = context.adapters.now()
    shown: dict[str, Any] = as_shown(command.rehearse(), began)
    return shown


def _digest(
    context: IssuerContext, command: Command, versions: Mapping[str, str] | None = None
) -> str:
    """Return the digest of a command line and of the versions of the files it names.

    No card number is kept of the line.
    """
    files = _versions(context, command) if versions is None else versions
    return digest(canonical({"line": redact(command.line), "files": dict(files)}))


def _versions(context: IssuerContext, command: Command) -> dict[str, str]:
    """Return the versions of the files that a command names, by key.

    Of those that are not in the store their digests, by name.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    names = tuple(command.files)
    places = [name for name in names if name.startswith(f"{issuer}/")]
    if names:
        places = [extracts(issuer), corrections(issuer), *places]
    if names and all(names):  # no name stands for every extract, and for no result
        places.append(results(issuer))
    entries = chain.from_iterable(store.keys(place) for place in places)
    versions = {entry.key: entry.version for entry in entries if entry.key.endswith(names)}
    return {**versions, **command.local}
