"""Acts that need a second person: one requests, another carries it out.

What is carried out is what was requested, and nothing else: where any of it is different now, the
request is refused, and the difference is named. A card number in the line or in the parameters is
masked before anything is stored or digested. The dry run comes first, so that nobody is asked to
agree to what would be refused.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, timedelta
from itertools import chain
from typing import Any, Final, NamedTuple

from pydantic_core import to_jsonable_python

from flows.errors import CardlinkError, GateError, OperatorError
from flows.extensions.governance.changes import Change, changes, flat, in_words
from flows.extensions.governance.in_force import Compared, settings_numbered
from flows.extensions.governance.requests import (
    CARRIED_OUT,
    ENDED,
    GIVEN_BACK,
    UNSIGNED,
    WHOLE,
    Request,
    is_as_numbered,
    move,
    of_names,
    requests,
    state_in_journal,
    store,
    unexpired,
)
from flows.extensions.governance.settings import normalised
from flows.extensions.governance.signatures import PersonSignatures
from flows.extensions.governance.tables import REQUEST
from flows.redaction import redact, redacted
from flows.runs.adapters import Adapters
from flows.runs.context import IssuerContext
from flows.runs.identity import digest
from flows.runs.keys import corrections, extracts, results
from flows.steps import YOUR_NAME, Option, Sentence, Step
from schemas.settings import Act

LONGEST: Final = 50  # items of a list that are stored one by one
WHO: Final = ("by", "holder")  # facts that differ with whoever runs a command


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


class Command(NamedTuple):
    """A command that needs a second person, as somebody gave it.

    `line` is the command line, `parameters` are the values that are set, by name; `files` are those
    it names, `local` the digests of those that are not in the store, by name; `actor` is "" for a
    schedule. `settings`: those in force. `rehearse` returns the facts of its dry run. `signatures`
    where names must be proved.
    """

    act: Act
    line: str
    parameters: Mapping[str, Any]
    files: Sequence[str]
    local: Mapping[str, str]
    actor: str
    reason: str
    settings: Compared
    rehearse: Callable[[], Mapping[str, Any]] = dict
    signatures: PersonSignatures | None = None


def request(context: IssuerContext, command: Command) -> Request:
    """Store a request for a second person, and return it. NobodyError.

    Whoever requests again what they have requested, and nobody has carried out, gets that request.
    """
    _refuse_nobody(command)
    adapters = context.adapters
    requested: dict[str, Any] = {
        "at": adapters.now(),
        "by": redact(adapters.actor),
        "until": adapters.now() + timedelta(hours=command.settings.hours),
        "actor": command.actor,
        "reason": redact(command.reason),
        "act": command.act,
        "line": redact(command.line),
        "parameters": _parameters(command),
        "files": _versions(context, command),
        "settings": command.settings.number,
        "would": _would(context, command),
    }
    for open_request in unexpired(context):
        if open_request.is_open and open_request.has(requested):
            return open_request
    requested["signature"] = _signature(command, of_names(requested, UNSIGNED))
    return stored_request(context.adapters, context.issuer.issuer, store(context, requested))


@contextmanager
def carrying_out(context: IssuerContext, number: str, command: Command) -> Iterator[str]:
    """Use up a request while its command runs, and yield who made it.

    A command that fails gives it back; one that is killed has used it up: only an ended one says
    that it ended. Raises NobodyError, and ApprovalError where the request does not fit.
    """
    _refuse_nobody(command)
    issuer = context.issuer.issuer
    stored = stored_request(context.adapters, issuer, number)
    _refuse_unfit(context, stored, command)
    signature = _signature(command, of_names(dict(stored), WHOLE))

    def refuse_used(adapters: Adapters) -> None:
        if not stored_request(adapters, issuer, number).is_open:
            raise ApprovalError(number=number, why="somebody else is carrying it out right now")

    second = {"second": command.actor, "second_signature": signature}
    move(context, number, CARRIED_OUT, refuse_used, **second)
    try:
        yield stored.actor
    except BaseException:
        move(context, number, GIVEN_BACK)
        raise
    with suppress(CardlinkError):  # the command has done what it should
        move(context, number, ENDED)


def stored_request(adapters: Adapters, issuer: str, number: str) -> Request:
    """Return the request of a number; ApprovalError where there is none."""
    for stored in requests(adapters, issuer, REQUEST.c.number == number):
        return stored
    raise ApprovalError(number=redact(number), why="there is no such request")


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


def _refuse_unfit(context: IssuerContext, stored: Request, command: Command) -> None:
    """Refuse a request that cannot be carried out, for the reason that costs least to find."""
    reasons = (
        (ApprovalError, _spent(context, stored, command)),
        (RequestChangedError, _tampered(context, stored, command.signatures)),
        (ApprovalError, _out_of_date(context, stored, command)),
    )
    for error, objections in reasons:
        objection = next(objections, None)
        if objection:
            raise error(number=stored.number, why=objection)


def _spent(context: IssuerContext, stored: Request, command: Command) -> Iterator[str]:
    """Yield why nobody, or not this person, may carry out a request."""
    if not stored.is_open:
        yield f"{stored.second} used it on {stored.since:%Y-%m-%d %H:%M}"
    if context.adapters.now() >= stored.until:
        yield f"it expired on {stored.until:%Y-%m-%d %H:%M}"
    if normalised(command.actor) == normalised(stored.actor):
        yield (
            f"{stored.actor} made it; a different person must carry it out, one whose name "
            "differs in more than case, punctuation and spaces"
        )


def _tampered(
    context: IssuerContext, stored: Request, signatures: PersonSignatures | None
) -> Iterator[str]:
    """Yield how a request is not the one that was stored."""
    if state_in_journal(context, stored) != stored.state:
        yield "it is not as the journal has it"
    if not is_as_numbered(dict(stored)):
        yield f"what is requested is not that of request {stored.number}"
    if signatures is None:
        return
    unsigned = of_names(dict(stored), UNSIGNED)
    if not signatures.holds(stored.actor, unsigned, stored.signature or ""):
        yield f"{stored.actor} did not sign it"


def _out_of_date(context: IssuerContext, stored: Request, command: Command) -> Iterator[str]:
    """Yield what is different from what was requested; what the command would do comes last."""
    settings = command.settings
    yield from _different("parameters", stored.parameters, _parameters(command))
    yield from _different("files", stored.files, _versions(context, command))
    if stored.settings != settings.number:
        before = settings_numbered(context, stored.settings)
        yield from _made_for_others("settings", changes(before, settings.ruling))
    yield from _different("what it would do", stored.would, _would(context, command))


def _different(part: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield how a part of a request differs from what it would be now, fact by fact."""
    yield from _made_for_others(part, changes(dict(flat(before)), dict(flat(after))))


def _made_for_others(part: str, changed: Sequence[Change]) -> Iterator[str]:
    if changed:
        yield f"it was made for other {part}: {in_words(changed)}"


def _parameters(command: Command) -> dict[str, Any]:
    """Return the values of the parameters that are set, as they are stored: all of them."""
    values: dict[str, Any] = redacted(to_jsonable_python(dict(command.parameters)))
    return values


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


def _would(context: IssuerContext, command: Command) -> dict[str, Any]:
    """Return what the command would do, as it is stored."""
    began = context.adapters.now()
    shown: dict[str, Any] = as_shown(command.rehearse(), began)
    return shown


def as_shown(fact: Any, since: datetime) -> Any:
    """Return a fact of a dry run as it is stored: no card numbers, and not who ran it.

    A long list is kept as its length and digest. A moment at or after `since`, when the dry run
    began, is "now", because it is another one each time.
    """
    match fact:
        case Mapping():
            shown = {str(name): value for name, value in fact.items() if name not in WHO}
            return {name: as_shown(value, since) for name, value in shown.items()}
        case bool() | int() | float() | None:
            return fact
        case set() | frozenset():
            return as_shown(sorted(fact), since)
        case list() | tuple():
            return _list([as_shown(value, since) for value in fact])
        case datetime() | date():
            return _moment(fact.isoformat(), since)
    return _moment(redact(str(fact)), since)


def _list(values: Sequence[Any]) -> Any:
    """Return a list as it is stored."""
    if len(values) <= LONGEST:
        return values
    content = json.dumps(values, sort_keys=True).encode()
    return {"number": len(values), "sha256": digest(content)}


def _moment(text: str, since: datetime) -> str:
    """Return a text, or "now" where it is a moment at or after `since`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    # written in whole seconds, it is the beginning of its second
    begin = since if moment.microsecond else since.replace(microsecond=0)
    return "now" if moment.tzinfo is not None and moment >= begin else text
