"""Acts that need a second person: one requests, another carries it out.

A request is a chain of create-only records: requested, carried out, and given back where the
command failed. It is stored whole: the command with its parameters, the versions of the files that
it names, the settings in force, and what the command would have done, as its dry run said. What is
carried out is that, and nothing else: where any of it is different now, the request is refused, and
the difference is named.

The number of a request is the digest of its first record, and the journal names each of its
records; so one that was edited, put there or cut off by another way is refused. A card number in
the line or in the parameters is masked before anything is stored or digested. The dry run comes
first, so that nobody is asked to agree to what would be refused.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import chain
from typing import Any, NamedTuple, Protocol

from pydantic_core import to_jsonable_python

from flows.errors import CardlinkError, GateError, OperatorError
from flows.operations.settings_in_force import in_words, settings_of, values_of
from flows.operations.shown_facts import as_shown, departures
from flows.operations.stored_requests import open_requests
from flows.redaction import redact, redacted
from flows.runs.audited_store import UNDER_WAY, WRITING, WRITTEN, named_since
from flows.runs.chains import add_next, records
from flows.runs.context import IssuerContext
from flows.runs.identity import canonical, digest
from flows.runs.keys import approvals, corrections, extracts, link, results
from flows.runs.store import read_if_stored
from flows.steps import YOUR_NAME, Option, Sentence, Step
from schemas.governed import changes
from schemas.persons import normalised
from schemas.records import Approval
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
    """The records of a request are not those that were stored: somebody changed them."""

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


class _Request(NamedTuple):
    """A stored request: its folder, and its records from the first."""

    place: str
    history: Sequence[Approval]

    @property
    def first(self) -> Approval:
        """What was requested."""
        return self.history[0]


def request(context: IssuerContext, command: Command) -> tuple[str, Approval]:
    """Store a request for a second person; return its number and record. NobodyError.

    Whoever requests again what they have requested, and nobody has carried out, gets that request.
    """
    _refuse_nobody(command)
    adapters = context.adapters
    record = Approval(
        at=adapters.now(),
        by=redact(adapters.actor),
        reason=redact(command.reason),
        what="requested",
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
    for stored in open_requests(context):
        if _content(stored.first) == _content(record):
            return stored.number, stored.first
    signature = _signature(command, canonical(record))
    record = record.model_copy(update={"signature": signature})
    number = _number(record)
    add_next(adapters.store, _place(context, number), 1, record)
    return number, record


@contextmanager
def carrying_out(context: IssuerContext, number: str, command: Command) -> Iterator[str]:
    """Use up a request while its command runs, and yield who made it.

    A command that fails gives it back; one that is killed has used it up, and a second record that
    it was carried out says that the command ended. Raises NobodyError, and ApprovalError where the
    request does not fit.
    """
    _refuse_nobody(command)
    adapters = context.adapters
    place = _place(context, number)
    history = list(records(adapters.store, place, Approval))
    _refuse_unfit(context, number, _Request(place, history), command)
    used = history[0].model_copy(
        update={
            "at": adapters.now(),
            "by": redact(adapters.actor),
            "actor": command.actor,
            "what": "carried out",
            "signature": _signature(command, canonical(history[0])),
        }
    )
    if not add_next(adapters.store, place, len(history) + 1, used):
        raise ApprovalError(number=number, why="somebody else is carrying it out right now")
    try:
        yield history[0].actor
    except BaseException:
        given_back = used.model_copy(update={"what": "given back"})
        add_next(adapters.store, place, len(history) + 2, given_back)
        raise
    with suppress(CardlinkError):  # the command has done what it should
        ended = used.model_copy(update={"at": adapters.now()})
        add_next(adapters.store, place, len(history) + 2, ended)


def _place(context: IssuerContext, number: str) -> str:
    return f"{approvals(context.issuer.issuer)}{number}/"


def _content(record: Approval) -> bytes:
    """Return who requests what, without when, and from which process."""
    beside = ("at", "by", "until", "signature")
    return canonical(record.model_copy(update=dict.fromkeys(beside)))


def _number(record: Approval) -> str:
    return digest(canonical(record))[:12]


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


def _refuse_unfit(context: IssuerContext, number: str, stored: _Request, command: Command) -> None:
    """Refuse a request that cannot be carried out, for the reason that costs least to find."""
    reasons = (
        (ApprovalError, _spent(context, stored, command)),
        (ApprovalError, _under_way(context, stored)),
        (RequestChangedError, _tampered(context, number, stored, command.signatures)),
        (ApprovalError, _out_of_date(context, stored, command)),
    )
    for error, objections in reasons:
        objection = next(objections, None)
        if objection:
            raise error(number=redact(number), why=objection)


def _spent(context: IssuerContext, stored: _Request, command: Command) -> Iterator[str]:
    """Yield why nobody, or not this person, may carry out a request."""
    if not stored.history:
        yield "there is no such request"
        return
    last = stored.history[-1]
    if last.what == "carried out":
        yield f"{last.actor} used it on {last.at:%Y-%m-%d %H:%M}"
    if context.adapters.now() >= stored.first.until:
        yield f"it expired on {stored.first.until:%Y-%m-%d %H:%M}"
    if normalised(command.actor) == normalised(stored.first.actor):
        yield (
            f"{stored.first.actor} made it; a different person must carry it out, one whose name "
            "differs in more than case, punctuation and spaces"
        )


def _under_way(context: IssuerContext, stored: _Request) -> Iterator[str]:
    """Yield that somebody has begun to carry a request out, where that may still be so."""
    adapters = context.adapters
    since = adapters.now() - UNDER_WAY
    next_record = link(stored.place, len(stored.history) + 1)
    acts = [named.what for named in named_since(adapters, next_record, since)]
    if acts and acts[-1] == WRITING:
        yield "somebody is carrying it out, or was killed doing so in the last quarter of an hour"


def _is_signed(first: Approval, signatures: Signatures) -> bool:
    """Return whether a request was signed by who made it."""
    statement = canonical(first.model_copy(update={"signature": None}))
    return signatures.holds(first.actor, statement, first.signature or "")


def _tampered(
    context: IssuerContext, number: str, stored: _Request, signatures: Signatures | None
) -> Iterator[str]:
    """Yield how the records of a request are not those that the journal names."""
    store = context.adapters.store
    named = dict[str, set[str]]()
    for entry in named_since(context.adapters, stored.place, stored.first.at - UNDER_WAY):
        if entry.what == WRITTEN:
            named.setdefault(entry.key, set()).add(entry.sha256)
    keys = [link(stored.place, each) for each in range(1, len(stored.history) + 1)]
    for key in sorted({*keys, *named}):
        content = read_if_stored(store, key)
        sha256 = digest(content) if content else ""
        if sha256 not in named.get(key, set()):
            yield f"{key} is not as the journal has it"
    if _number(stored.first) != number:
        yield f"its record is not that of request {number}"
    if signatures is not None and not _is_signed(stored.first, signatures):
        yield f"{stored.first.actor} did not sign it"


def _out_of_date(context: IssuerContext, stored: _Request, command: Command) -> Iterator[str]:
    """Yield what is different from what was requested: command, files, settings, what it does."""
    first = stored.first
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
    # those of the TOML may be recorded only with the first write
    after = settings_of(context, context.settings_in_force) or values_of(context)
    if before is None:
        return f"there is no record of {sha256[:12]}"
    return in_words(changes(before, after))


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
