"""Forget cardholders: nothing is sent for them again, and what names them is removed.

The act is a decision: from then on every run leaves their rows
out. What names them is then written anew without them or deleted (`erasing.py`). Who was handed
their links is told not to use them, and once that is confirmed the next purge takes them out of
what was handed over, too. What has to stay until its own end is named (`personal_data.py`).

Who has a row that was sent and not answered cannot be erased yet: the answer would name somebody
whom nobody knows. A single link without an answer gets none, once its request has ended.
"""

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import polars as pl

from flows.book.attempts import SINGLE
from flows.book.book import Book, read_book
from flows.book.people import counted_cards
from flows.errors import OperatorError, TryAgainError
from flows.extensions import hooks
from flows.extensions.privacy.erasing import erase_mentions
from flows.extensions.privacy.personal_data import is_under_way, mentions, place_of
from flows.reports.work import Work
from flows.reports.work_kinds import CARDHOLDERS, OPERATOR, Kind
from flows.runs.adapters import Adapters
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.decisions import ERASURE, decide
from flows.runs.erased import (
    IDENTITY,
    ErasedPeople,
    Mention,
    NamedPeople,
    People,
    content_of,
    erased_by,
    erased_people,
    erasures,
    is_interrupted,
    unfinished_erasures,
)
from flows.runs.errors import NoSuchRowError, numbered
from flows.runs.journal import Act, enter
from flows.runs.keys import runs
from flows.runs.single_links import prompted_singles, with_ids
from flows.runs.store import Cleaner
from flows.runs.stored_run import StoredRun
from flows.steps import CUID, WHY, Sentence, Slot, Step
from schemas.breaks import LOST, RESULT_SHORT
from schemas.ledger import AWAITING
from schemas.reasons import ERASED
from schemas.records import Erasure

FINISHING = "the withdrawal of their links is confirmed"
RESUMING = "the process that erased them ended before it was done"
REQUEST_ENDS = timedelta(hours=1)  # longer than any request for a single link takes


ERASING = Kind(
    "erasures to finish",
    OPERATOR,
    "Begun, and their process ended before everything was removed",
    Step("purge", Slot("issuer")),
    "Until then `audit verify` may find what is half removed.",
    noun="erasure",
    rows=CARDHOLDERS,
    of_one_run=True,
)


class UnansweredError(OperatorError):
    """A row of the cardholder was sent, and its answer is awaited."""

    message = (
        "Row {row} of {run} is of this cardholder, and its chunk {chunk} waits for its answer. "
        "Nothing was erased."
    )
    next_step = Sentence(
        "Where it is not uploaded yet: {cancel}. Else ingest its result first; where none comes: "
        "{lost}.",
        cancel=Step("outbox cancel", Slot("run"), Slot("chunk"), reason=WHY),
        lost=Step(
            "mend close",
            Slot("run"),
            RESULT_SHORT,
            Slot("place"),
            decision=LOST,
            reason=WHY,
            dry_run=True,
        ),
    )


class UnderWayError(TryAgainError):
    """A link for the cardholder is being requested."""

    message = (
        "A link for this cardholder was requested within the hour and has no answer: {key}. "
        "Nothing was erased."
    )
    next_step = "Run {same_command} again: with the answer, or an hour after the request."


class NoSuchLinkError(OperatorError):
    """A single link that an issuer does not have."""

    message = "{issuer} has no link {name} whose fields were typed in."
    next_step = Sentence(
        "{export} shows what is stored of a cardholder, with the names of such links.",
        export=Step("person export", CUID),
    )


class OfRows(NamedTuple):
    """The cardholders that rows of a run name."""

    run: str
    rows: Sequence[int]


class OfSingle(NamedTuple):
    """The cardholder of a link whose fields were typed in, by the name of its object."""

    name: str


Whom = OfRows | OfSingle


class Kept(NamedTuple):
    """What names a cardholder until its own end: where, what it has, why, and until when."""

    where: str
    holds: str
    why: str
    until: str


VERSIONS = Kept(
    "versions of what is deleted or written over",
    "what it was",
    "the bucket keeps versions",
    "its lifecycle rule (deploy/s3-lifecycle.json)",
)


class ErasurePlan(NamedTuple):
    """Whom an erasure is about, what of them it removes, and what has to stay.

    `removed`: objects by place (PLACES). `cardholders` and `cards`: of the book. `links`: the
    step that withdraws those that somebody may still use, None where nobody does.
    """

    people: NamedPeople
    mentions: tuple[Mention, ...]
    cardholders: int
    cards: int
    removed: dict[str, int]
    kept: tuple[Kept, ...]
    links: Step | None


def plan_erasure(context: IssuerContext, whom: Whom, *, hides: bool | None = None) -> ErasurePlan:
    """Return what the erasure of these cardholders removes and what stays.

    Nothing is changed. `hides`: the store keeps versions of what is deleted. Raises NoSuchRowError
    where a row names nobody, NoSuchLinkError, LedgerPurgedError, UnansweredError, UnderWayError.
    """
    if isinstance(whom, OfRows) and _is_gone(context, whom):
        return _ended(context, unfinished_erasures(context.adapters, context.issuer.issuer))
    book = read_book(context.adapters, context.issuer.issuer)
    people = _people(context, book, whom)
    is_theirs = people.named_by(book.attempts["cuid"])
    attempts = book.attempts.filter(is_theirs)
    _refuse_unanswered(attempts)
    named = tuple(mentions(context, people))
    _refuse_under_way(named, context.adapters.now())
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    known = counted_cards(book.of_holders(attempts["holder"]).cards(today))
    return ErasurePlan(
        people=people,
        mentions=named,
        cardholders=known["holder"].n_unique(),
        cards=known.height,
        removed=dict(Counter(each.place for each in named if place_of(each.place).erased)),
        kept=(*_kept(named), *([VERSIONS] if hides else [])),
        links=withdrawal_step(context, people),
    )


def erase(context: IssuerContext, cleaner: Cleaner, whom: Whom, reason: str) -> ErasurePlan:
    """Erase these cardholders, and return what was removed, as `plan_erasure` does.

    An erasure whose process died is ended first; where it was this one, nothing else is done.
    Raises as `plan_erasure` does, NoReasonError, and StoreDeniedError where nothing may be deleted.
    """
    signed = context.adapters.signed(reason)
    begun = unfinished_erasures(context.adapters, context.issuer.issuer)
    if begun:
        finish_erasures(context, cleaner)
        if _is_gone(context, whom):
            return _ended(context, begun)
    plan = plan_erasure(context, whom, hides=cleaner.hides())
    if not plan.cardholders:
        return plan
    issuer = context.issuer.issuer
    # a missing right to delete shows here, before anything is recorded; no such object exists
    cleaner.delete(f"{runs(issuer)}erase")
    act = Erasure(
        **signed,
        what="forgotten",
        people=plan.cardholders,
        cards=plan.cards,
    )
    record_erasure(context.adapters, issuer, act, plan.people)
    erase_mentions(context, cleaner, plan.people, plan.mentions, signed, act.at)
    record_erasure(context.adapters, issuer, Erasure(**signed, what="removed"))
    finish_erasures(context, cleaner)
    return plan


def record_erasure(
    adapters: Adapters, issuer: str, record: Erasure, people: NamedPeople | None = None
) -> None:
    """Record an erasure: with the digests of these people, the first of all with a new key."""

    def work(act: Act) -> None:
        earlier = erasures(adapters.within(act.connection), issuer)
        first = record if earlier else record.model_copy(update={"key": secrets.token_hex(32)})
        erased = erased_by(earlier or [first])
        persons = erased.digests_of(people) if people else ()
        decide(act, ERASURE, "", first.model_copy(update={"persons": persons}))

    enter(adapters, issuer, f"cardholders {record.what}", work, reason=record.reason)


def _is_gone(context: IssuerContext, whom: Whom) -> bool:
    """Return whether nothing names these cardholders any more, although they were there."""
    if isinstance(whom, OfSingle):
        is_meant = with_ids([whom.name])
        return not prompted_singles(context.adapters, context.issuer.issuer, is_meant)
    run = StoredRun.by_id(context.adapters, whom.run)
    run.with_ledger()
    is_erased = pl.col("row").is_in(list(whom.rows))
    is_erased &= pl.col("reasons").list.contains(f"|{ERASED}")
    return pl.concat(run.ledger(["row", "reasons"], is_erased)).height == len(whom.rows)


def _ended(context: IssuerContext, begun: Sequence[Erasure]) -> ErasurePlan:
    """Return what an erasure was about that another process began, about nobody where none did."""
    people = erased_people(context.adapters, context.issuer.issuer)
    nobody = NamedPeople(frozenset())
    links = withdrawal_step(context, people)
    first = begun[0] if begun else None
    counts = (first.people, first.cards) if first else (0, 0)
    return ErasurePlan(nobody, (), *counts, {}, (), links)


def withdrawal_step(context: IssuerContext, people: People) -> Step | None:
    """Return the step that withdraws the links of these cardholders from those who may use one."""
    steps = (step(context, people) for step in hooks("withdrawal_step"))
    return next(filter(None, steps), None)


def finish_erasures(context: IssuerContext, cleaner: Cleaner) -> bool:
    """Go on with erasures, and end them where nobody has a link any more.

    Return whether there is nothing left to do.
    """
    open_acts = unfinished_erasures(context.adapters, context.issuer.issuer)
    if not open_acts:
        return True
    issuer = context.issuer.issuer
    people = erased_people(context.adapters, issuer)
    signed = context.adapters.signed(FINISHING)
    if is_interrupted(open_acts):  # a process died
        _remove(context, cleaner, people, open_acts[0].at)
    if withdrawal_step(context, people) is not None:
        return False

    def note(objects: Sequence[str]) -> None:
        removed = Erasure(**signed, what="removed", deleted=tuple(objects))
        record_erasure(context.adapters, issuer, removed)

    for erase_confirmed in hooks("erase_confirmed"):
        named = [each for each in mentions(context, people) if _waits(each)]
        erase_confirmed(context, cleaner, people, named, note)
    record_erasure(context.adapters, issuer, Erasure(**signed, what="finished"))
    return True


def work_kinds() -> tuple[Kind, ...]:
    """Return the kind of lines of the worklist about erasures."""
    return (ERASING,)


def matters(context: IssuerContext, _book: Book, _now: datetime) -> Iterator[Work]:
    """Yield the erasures that were interrupted, or could be ended."""
    adapters = context.adapters
    issuer = context.issuer.issuer
    acts = unfinished_erasures(adapters, issuer)
    waits = not is_interrupted(acts) and any(
        names_erased(adapters, issuer) for names_erased in hooks("names_erased")
    )
    if acts and not waits:
        yield Work(
            due=acts[0].at,
            kind=ERASING.name,
            issuer=issuer,
            since=acts[0].at,
            rows=sum(act.people for act in acts),
        )


def _remove(
    context: IssuerContext, cleaner: Cleaner, people: ErasedPeople, since: datetime
) -> None:
    """Do what a process that died has not done of an erasure, but for what others confirm."""
    issuer = context.issuer.issuer
    signed = context.adapters.signed(RESUMING)
    named = list(mentions(context, people))
    left = [each for each in named if not _waits(each) and place_of(each.place).erased]
    erase_mentions(context, cleaner, people, left, signed, since)
    record_erasure(context.adapters, issuer, Erasure(**signed, what="removed"))


def _people(context: IssuerContext, book: Book, whom: Whom) -> NamedPeople:
    """Return cardholders by all that they are known by."""
    if isinstance(whom, OfSingle):
        cuids = frozenset({_cuid_of_single(context, whom.name)})
        records = book.attempts.filter(pl.col("cuid").is_in(list(cuids)))
    else:
        records = _named_in(StoredRun.by_id(context.adapters, whom.run), whom.rows)
        cuids = frozenset(records["cuid"])
    contents = frozenset(content_of(records).drop_nulls())
    if contents:
        attempts = book.attempts
        is_same = NamedPeople(cuids, contents).described_by(content_of(attempts))
        cuids |= frozenset(attempts.filter(is_same)["cuid"])
    return NamedPeople(cuids, contents)


def _named_in(run: StoredRun, rows: Sequence[int]) -> pl.DataFrame:
    """Return what identifies the cardholders of rows of a run."""
    run.with_ledger()
    is_meant = pl.col("row").is_in(list(rows))
    records = pl.concat(run.ledger(IDENTITY, is_meant)).drop_nulls("cuid")
    lacking = pl.Series(sorted(set(rows) - set(records["row"])), dtype=pl.UInt32)
    if len(lacking):
        raise NoSuchRowError(place=run.id, rows=numbered(lacking))
    return records


def _cuid_of_single(context: IssuerContext, name: str) -> str:
    """Return whom a link whose fields were typed in is for."""
    issuer = context.issuer.issuer
    for single in prompted_singles(context.adapters, issuer, with_ids([name])):
        return single.asked.cuid
    raise NoSuchLinkError(issuer=issuer, name=name)


def _refuse_unanswered(attempts: pl.DataFrame) -> None:
    """Raise UnansweredError where a row of a chunk waits for its answer."""
    is_single = pl.col("wait").eq_missing(SINGLE)
    for attempt in attempts.filter(~is_single, state=AWAITING).iter_rows(named=True):
        chunk = attempt["chunk"]
        place = f"chunk {chunk}"
        raise UnansweredError(run=attempt["run"], row=attempt["row"], chunk=chunk, place=place)


def _refuse_under_way(named: Iterable[Mention], now: datetime) -> None:
    """Raise UnderWayError where a process may still record the answer to a request for a link."""
    for mention in named:
        if mention.place == "single" and is_under_way(mention, now - REQUEST_ENDS):
            raise UnderWayError(key=mention.key)


def _waits(mention: Mention) -> bool:
    """Return whether others have to confirm something before it can go."""
    return place_of(mention.place).waits


def _kept(named: Iterable[Mention]) -> Iterable[Kept]:
    """Yield what stays, each object once."""
    seen = set[str]()
    for each in named:
        place = place_of(each.place)
        stays = not place.erased or place.waits
        if not stays or each.key in seen:
            continue
        seen.add(each.key)
        rows = f" row {', '.join(map(str, each.rows))}" if each.place == "extracts" else ""
        yield Kept(each.key + rows, place.holds, place.why, place.until)
