"""The gates a run passes before its commit: sequence, trailer, reject rate, row count, drift, test and real cards.

A gate that fails refuses the run: nothing is committed, nothing is shown for upload. Gates that an operator may open
have a name (`OPENABLE`); opening one is recorded with the run.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import date, timedelta
from statistics import median
from typing import NamedTuple, get_args

from flows.errors import BalanceError, CardlinkError, ExtractError, GateError, OperatorError
from flows.runs.chains import last_commit
from flows.runs.context import IssuerContext
from flows.runs.documents import keys_of, nights_before, read_document, read_manifest
from flows.runs.keys import RunId, commits, link
from flows.runs.prior_state import seen_rows
from flows.submissions.drift import departures
from flows.submissions.plan import submit_line
from flows.submissions.rows import ReasonRows, Route
from schemas.actions import Gate
from schemas.issuer import Issuer, SourceSettings
from schemas.manifest import Counts, Manifest, Profile, SourceIdentity

CHANGED_EXTRACT: Gate = "changed-extract"  # checked before anything is planned or sealed
SEQUENCE_GAP: Gate = "sequence-gap"
OPENABLE: tuple[Gate, ...] = get_args(Gate)


class TrailerMismatchError(BalanceError):
    """The extract's trailer has another row count than the extract."""

    message = "{extract}: the trailer counts {trailer} rows, the extract has {read}. Nothing was committed."
    next_step = "The extract is incomplete: ask the issuer to send it again."


class RejectRateError(GateError):
    """More rows were rejected than the limit allows."""

    message = (
        "{extract}: {refused} of {read} rows rejected, above limits.max_reject_rate = {limit}. Nothing was committed."
    )
    next_step = "Read {rejects}; correct the extract at its source, or submit with --open reject-rate."


class RowJumpError(GateError):
    """The extract is much larger or smaller than those before it."""

    message = "{extract}: {read} rows, where the last {runs} runs had {median} (median). Nothing was committed."
    next_step = "Ask the issuer whether this is the whole extract; if it is, submit with --open row-jump."


class SeenBeforeError(GateError):
    """More rows than the limit allows have a card that already has a link, or awaits one."""

    message = (
        "{extract}: {seen} of {read} rows already have or await a link, above the limit of {limit} of the rows. "
        "Nothing was committed."
    )
    next_step = (
        "Ask the issuer whether it sent these rows before; to send the {others} others: --open seen-before. To decide "
        "for every extract: [resend] seen_before and limits.max_seen_before."
    )


class DriftError(GateError):
    """Columns of the extract depart from those of the extracts before it."""

    message = "{extract} departs from the extracts before it: {how}. Nothing was committed."
    next_step = "Ask the issuer what it changed; if the mapping still fits, submit with --open drift."


class WrongCardsError(OperatorError):
    """Test cards in production, or real cards at a test issuer."""

    message = "{extract}: {count} {kind} cards at an issuer with test = {test}. Nothing was committed."
    next_step = "Check that the extract belongs to this issuer and this environment."


class GateFacts(NamedTuple):
    """What the gates check: the run's counts, the row counts of the runs before it, the kinds of its cards.

    `held` is why the run must not begin, `reasons` those of its rows.
    """

    extract: str
    counts: Counts
    before: Sequence[int]
    test_cards: int
    real_cards: int
    seen: int  # rows whose card has or awaits a link
    drift: Sequence[str] = ()  # how columns depart from those before
    rejects: str = "the run's report/rejects.csv"  # where each refused row is listed
    held: CardlinkError | None = None
    reasons: Sequence[ReasonRows] = ()


def gate_facts(
    context: IssuerContext,
    run: RunId,
    extract: str,
    counts: Counts,
    route: Route,
    profile: Profile | None,
    held: CardlinkError | None,
) -> GateFacts:
    """Return what the gates check of a run, beside those before it."""
    before = nights_before(context.adapters.store, run)
    drift = departures(profile, before, context.issuer.limits.max_drift)
    seen = seen_rows({one.code: one.rows for one in route.reasons})
    sizes, reasons = [one.read for one in before], route.reasons
    cards = route.test_cards, route.other_cards
    return GateFacts(extract, counts, sizes, *cards, seen, drift, held=held, reasons=reasons)


def refusals(facts: GateFacts, issuer: Issuer, opened: Collection[str] = ()) -> Iterator[CardlinkError]:
    """Yield the error of each gate that fails."""
    counts, limits, test = facts.counts, issuer.limits, issuer.test
    if facts.held is not None:
        yield facts.held
    if counts.trailer is not None and counts.trailer != counts.read:
        yield TrailerMismatchError(extract=facts.extract, trailer=counts.trailer, read=counts.read)
    if wrong := facts.real_cards if test else facts.test_cards:
        kind = "real" if test else "test"
        yield WrongCardsError(extract=facts.extract, count=wrong, kind=kind, test=str(test).lower())
    rejected, limit = counts.rejected, limits.max_reject_rate
    if "reject-rate" not in opened and rejected > limit * counts.read:
        yield RejectRateError(
            extract=facts.extract, refused=rejected, read=counts.read, limit=limit, rejects=facts.rejects
        )
    most = 0 if issuer.resend.seen_before == "refuse" else limits.max_seen_before
    if "seen-before" not in opened and not issuer.full_portfolio and facts.seen > most * counts.read:
        yield SeenBeforeError(
            extract=facts.extract, seen=facts.seen, read=counts.read, limit=f"{most:.0%}", others=counts.submitted
        )
    usual = round(median(facts.before)) if len(facts.before) > 2 else counts.read  # two runs show no usual size
    if "row-jump" not in opened and abs(counts.read - usual) > limits.max_row_jump * usual:
        yield RowJumpError(extract=facts.extract, read=counts.read, runs=len(facts.before), median=usual)
    if facts.drift and limits.drift == "refuse" and "drift" not in opened:
        yield DriftError(extract=facts.extract, how="; ".join(facts.drift))


LOOK_BACK = timedelta(days=60)  # a number that was used before is not a repeat: the issuer began again


class SequenceError(ExtractError):
    """An extract has no sequence number, or that of another extract."""

    message = "{extract} has no sequence number of its own: {problem}. Nothing was committed."
    next_step = "Ask the issuer for the right extract, or compare `sequence` in [source] with the file."


class SequenceGapError(GateError):
    """An extract does not follow the last committed one."""

    message = "{extract} has the sequence number {number}; expected {expected}, after run {run}. Nothing was committed."
    next_step = "Submit the extracts between them first, or ask the issuer for them; to go on without them: {command}."


def sequence_number(source: SourceSettings, key: str, before: Sequence[str]) -> int | None:
    """Return an extract's number, by its key or the lines before its data; None where the issuer numbers none."""
    if source.sequence is None:
        return None
    places = [key.rpartition("/")[2]] if source.sequence_in == "name" else before
    found = next((match[1] for place in places if (match := re.search(source.sequence, place))), None)
    if found is None or not re.fullmatch("[0-9]{1,12}", found):
        raise SequenceError(extract=key, problem=f"its {source.sequence_in} has none")
    return int(found)


def out_of_sequence(
    context: IssuerContext,
    source: SourceIdentity,
    as_of: date,
    number: int | None,
    opened: Collection[str],
) -> GateError | None:
    """Return the gate that a number does not pass; SequenceError."""
    expected, last = number, ""
    for one, used in _committed(context, source) if number is not None else ():
        if not last:
            expected, last = used + 1, one.run
        if used == number:
            raise SequenceError(
                extract=source.key, problem=f"run {one.run} has used {number}; the next number is {expected}"
            )
        if number == expected or one.as_of < as_of - LOOK_BACK:
            break
    if number == expected or SEQUENCE_GAP in opened:
        return None
    command = submit_line(source.key, "--open", SEQUENCE_GAP)
    return SequenceGapError(extract=source.key, number=number, expected=expected, run=last, command=command)


def _committed(context: IssuerContext, source: SourceIdentity) -> Iterator[tuple[Manifest, int]]:
    """Yield the committed runs of other numbered extracts, the last first, each with its number."""
    store, issuer, this = context.adapters.store, context.issuer.issuer, [source.key, source.sha256]
    for at in range(last_commit(store, issuer), 0, -1):
        done = read_document(store, link(commits(issuer), at), Manifest)
        if not done or done.sequence is None or [done.source.key, done.source.sha256] == this:
            continue
        if read_manifest(store, keys_of(done.run)) is not None:  # else abandoned, or not committed yet
            yield done, done.sequence
