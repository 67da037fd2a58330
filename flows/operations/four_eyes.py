"""Acts that need a second person: one asks, another carries it out.

A request is a chain of create-only records: requested, carried out, and given back where the
command failed. It holds the digest of the command line and of the files it names, so that nothing
else can be done with it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

from flows.errors import OperatorError
from flows.redaction import redact
from flows.runs.chains import add_next, records
from flows.runs.context import IssuerContext
from flows.runs.identity import canonical, digest
from flows.runs.keys import approvals, corrections, extracts
from schemas.records import Approval
from schemas.settings import Act

NOBODY = "a schedule"


class ApprovalError(OperatorError):
    """A request for a second person cannot be carried out."""

    message = "Request {number} was not carried out: {why}. Nothing was done."
    next_step = (
        "Have a different person run the request's line unchanged before it expires, or run the command without "
        "--approve to make a new request."
    )


class Asked(NamedTuple):
    """What a person asks for: the act, the command line, the files it names, who ("" for a
    schedule), and why.

    `local` are digests of those files that are not in the store.
    """

    act: Act
    line: str
    files: Sequence[str]
    local: Sequence[str]
    actor: str
    reason: str


def request(context: IssuerContext, asked: Asked) -> tuple[str, Approval]:
    """Store a request for a second person; return its number and record."""
    adapters, until = (
        context.adapters,
        context.adapters.now() + timedelta(hours=context.issuer.four_eyes.hours),
    )
    record = Approval(
        at=adapters.now(), by=redact(adapters.actor), reason=redact(asked.reason), what="requested", act=asked.act,
        actor=asked.actor or NOBODY, line=redact(asked.line), digest=_digest(context, asked), until=until,
    )  # fmt: skip
    number = digest(canonical(record))[:12]
    add_next(adapters.store, f"{approvals(context.issuer.issuer)}{number}/", 1, record)
    return number, record


@contextmanager
def carrying_out(context: IssuerContext, number: str, asked: Asked) -> Iterator[str]:
    """Use up a request while its command runs, and yield who asked; ApprovalError where it does not
    fit.

    A command that fails gives it back; one that is killed has used it up.
    """
    adapters, place = context.adapters, f"{approvals(context.issuer.issuer)}{number}/"
    chain = list(records(adapters.store, place, Approval))
    if why := _objection(context, chain, asked):
        raise ApprovalError(number=redact(number), why=why)
    now = {
        "at": adapters.now(),
        "by": redact(adapters.actor),
        "actor": asked.actor,
        "what": "carried out",
    }
    used = chain[0].model_copy(update=now)
    if not add_next(adapters.store, place, len(chain) + 1, used):
        raise ApprovalError(number=number, why="somebody else is carrying it out right now")
    try:
        yield chain[0].actor
    except BaseException:
        add_next(
            adapters.store, place, len(chain) + 2, used.model_copy(update={"what": "given back"})
        )
        raise


def _objection(context: IssuerContext, chain: Sequence[Approval], asked: Asked) -> str:
    """Return why a request cannot be carried out, "" where it can."""
    if not chain:
        return "there is no such request"
    first, last = chain[0], chain[-1]
    if last.what == "carried out":
        return f"{last.actor} used it on {last.at:%Y-%m-%d %H:%M}"
    if context.adapters.now() >= first.until:
        return f"it expired on {first.until:%Y-%m-%d %H:%M}"
    if asked.actor.casefold() in ("", first.actor.casefold()):
        return f"{first.actor} made it; a different person must carry it out"
    same = _digest(context, asked) == first.digest
    return "" if same else f"it was made for other parameters or files: {first.line}"


def _digest(context: IssuerContext, asked: Asked) -> str:
    """Return the digest of a command line, of which no card number is kept, and of the versions of
    files it names.
    """
    store, issuer, names = context.adapters.store, context.issuer.issuer, tuple(asked.files)
    places = [extracts(issuer), corrections(issuer)] if names else []
    places += [name for name in names if name.startswith(f"{issuer}/")]
    versions = {
        one.key: one.version
        for place in places
        for one in store.keys(place)
        if one.key.endswith(names)
    }
    return digest(
        canonical({"line": redact(asked.line), "versions": versions, "local": list(asked.local)})
    )
