"""The gates a run passes before its commit: sequence, trailer, reject rate, row count, drift, test
and real cards.

A gate that fails refuses the run: nothing is committed, nothing is shown for upload. Gates that an
operator may open have a name (`OPENABLE`); opening one is recorded with the run.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import date, timedelta
from statistics import median
from typing import NamedTuple, get_args

from flows.errors import BalanceError, CardlinkError, ExtractError, GateError, OperatorError
from flows.runs.commits import last_commit
from flows.runs.context import IssuerContext
from flows.runs.documents import read_manifest
from flows.runs.keys import commits, keys_of, link
from flows.runs.prior_state import seen_rows
from flows.runs.versions import read_document
from flows.submissions.plan import submit_line
from flows.submissions.rows import ReasonRows
from schemas.actions import Gate
from schemas.issuer import Issuer, SourceSettings
from schemas.manifest import Manifest, SourceIdentity

CHANGED_EXTRACT: Gate = "changed-extract"  # checked before anything is planned or sealed
SEQUENCE_GAP: Gate = "sequence-gap"
OPENABLE: tuple[Gate, ...] = get_args(Gate)


class TrailerMismatchError(BalanceError):
    """The extract's trailer has another row count than the extract."""

    message = "{extract}: the trailer counts {trailer} rows, the extract has {read}. Nothing was committed."
    next_step = "The extract is incomplete: ask the issuer to send it again."


class RejectRateError(GateError):
    """More rows were rejected than the limit allows."""

    message = "{extract}: {refused} of {read} rows rejected, above max_reject_rate = {limit}. Nothing was committed."
    next_step = (
        "Read {rejects}; correct the extract at its source, or submit with --open reject-rate."
    )


class RowJumpError(GateError):
    """The extract is much larger or smaller than those before it."""

    message = "{extract}: {read} rows, where the last {runs} runs had {median} (median). Nothing was committed."
    next_step = (
        "Ask the issuer whether this is the whole extract; if it is, submit with --open row-jump."
    )


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
    next_step = (
        "Ask the issuer what it changed; if the mapping still fits, submit with --open drift."
    )


class WrongCardsError(OperatorError):
    """Test cards in production, or real cards at a test issuer."""

    message = (
        "{extract}: {count} {kind} cards at an issuer with test = {test}. Nothing was committed."
    )
    next_step = "Check that the extract belongs to this issuer and this environment."


class Built(NamedTuple):
    """A run before its commit: the manifest that would commit it, and by what else the gates judge
    it.
    """

    manifest: Manifest
    before: Sequence[int]  # row counts of the runs before it
    test_cards: int
    real_cards: int
    drift: Sequence[str] = ()  # how columns depart from those before
    held: CardlinkError | None = None  # why it must not begin
    reasons: Sequence[ReasonRows] = ()  # of its rows

    @property
    def remarks(self) -> tuple[str, ...]:
        """What an operator should know of the extract, even where no gate fails."""
        extract = self.manifest.source.key
        return tuple(
            f"{extract} departs from the extracts before it: {change}" for change in self.drift
        )


def refusals(
    built: Built,
    issuer: Issuer,
    opened: Collection[str] = (),
    rejects: str = "the run's report/rejects.csv",
) -> Iterator[CardlinkError]:
    """Yield the error of each gate that fails; `rejects` is where each refused row is listed."""
    counts, limits, test = built.manifest.counts, issuer.limits, issuer.test
    extract, read = built.manifest.source.key, counts.read
    if built.held is not None:
        yield built.held
    if counts.trailer is not None and counts.trailer != read:
        yield TrailerMismatchError(extract=extract, read=read, trailer=counts.trailer)
    if wrong := built.real_cards if test else built.test_cards:
        yield WrongCardsError(
            extract=extract, count=wrong, kind="real" if test else "test", test=str(test).lower()
        )
    if "reject-rate" not in opened and counts.rejected > limits.max_reject_rate * read:
        yield RejectRateError(
            refused=counts.rejected,
            limit=limits.max_reject_rate,
            rejects=rejects,
            extract=extract,
            read=read,
        )
    seen = seen_rows(built.manifest.reasons)
    most = 0 if issuer.resend.seen_before == "refuse" else limits.max_seen_before
    if "seen-before" not in opened and not issuer.full_portfolio and seen > most * read:
        yield SeenBeforeError(
            seen=seen, limit=f"{most:.0%}", others=counts.submitted, extract=extract, read=read
        )
    # two runs show no usual size
    usual = round(median(built.before)) if len(built.before) > 2 else read
    if "row-jump" not in opened and abs(read - usual) > limits.max_row_jump * usual:
        yield RowJumpError(runs=len(built.before), median=usual, extract=extract, read=read)
    if built.drift and limits.drift == "refuse" and "drift" not in opened:
        yield DriftError(extract=extract, how="; ".join(built.drift))


# a number that was used before is not a repeat: the issuer began again
LOOK_BACK = timedelta(days=60)


class SequenceError(ExtractError):
    """An extract has no sequence number, or that of another extract."""

    message = "{extract} has no sequence number of its own: {problem}. Nothing was committed."
    next_step = (
        "Ask the issuer for the right extract, or compare `sequence` in [source] with the file."
    )


class SequenceGapError(GateError):
    """An extract does not follow the last committed one."""

    message = "{extract} has the sequence number {number}; expected {expected}, after run {run}. Nothing was committed."
    next_step = "Submit the extracts between them first, or ask the issuer for them; to go on without them: {command}."


def sequence_number(source: SourceSettings, key: str, before: Sequence[str]) -> int | None:
    """Return an extract's number, by its key or the lines before its data; None where the issuer
    numbers none.
    """
    if source.sequence is None:
        return None
    places = [key.rpartition("/")[2]] if source.sequence_in == "name" else before
    found = next(
        (match[1] for place in places if (match := re.search(source.sequence, place))), None
    )
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
    store, issuer, this = context.adapters.store, context.issuer.issuer, [source.key, source.sha256]
    expected, last = number, ""
    for at in range(last_commit(store, issuer) if number is not None else 0, 0, -1):
        one = read_document(store, link(commits(issuer), at), Manifest)
        if not one or one.sequence is None or [one.source.key, one.source.sha256] == this:
            continue
        if read_manifest(store, keys_of(one.run)) is None:  # abandoned, or not committed yet
            continue
        if not last:
            expected, last = one.sequence + 1, one.run
        if one.sequence == number:
            raise SequenceError(
                extract=source.key,
                problem=f"run {one.run} has used {number}; the next is {expected}",
            )
        if number == expected or one.as_of < as_of - LOOK_BACK:
            break
    if number == expected or SEQUENCE_GAP in opened:
        return None
    command = submit_line(source.key, "--open", SEQUENCE_GAP)
    return SequenceGapError(
        extract=source.key, number=number, expected=expected, run=last, command=command
    )
