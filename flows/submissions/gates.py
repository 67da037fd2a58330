"""The gates a run passes before its commit: trailer, reject rate, jump in row count, test cards and real ones.

A gate that fails refuses the run: nothing is committed, nothing is shown for upload. Gates that an operator may open
have a name (`OPENABLE`); opening one is recorded with the run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median
from typing import NamedTuple, get_args

from flows.errors import BalanceError, CardlinkError, GateError, OperatorError
from schemas.actions import Gate
from schemas.issuer import Issuer
from schemas.manifest import Counts

REJECT_RATE: Gate = "reject-rate"
ROW_JUMP: Gate = "row-jump"
SEEN_BEFORE: Gate = "seen-before"
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
    next_step = (
        "Read the run's report/rejects.csv; correct the extract at its source, or submit with --open reject-rate."
    )


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


class WrongCardsError(OperatorError):
    """Test cards in production, or real cards at a test issuer."""

    message = "{extract}: {count} {kind} cards at an issuer with test = {test}. Nothing was committed."
    next_step = "Check that the extract belongs to this issuer and this environment."


class GateFacts(NamedTuple):
    """What the gates check: the run's counts, the row counts of the runs before it, the kinds of its cards."""

    extract: str
    counts: Counts
    before: Sequence[int]
    test_cards: int
    real_cards: int
    seen: int  # rows whose card has or awaits a link


def refusal(facts: GateFacts, issuer: Issuer, opened: Collection[str] = ()) -> CardlinkError | None:
    """Return the error of the first gate that fails, or None."""
    counts, limits, test = facts.counts, issuer.limits, issuer.test
    if counts.trailer is not None and counts.trailer != counts.read:
        return TrailerMismatchError(extract=facts.extract, trailer=counts.trailer, read=counts.read)
    if test and facts.real_cards:
        return WrongCardsError(extract=facts.extract, count=facts.real_cards, kind="real", test="true")
    if not test and facts.test_cards:
        return WrongCardsError(extract=facts.extract, count=facts.test_cards, kind="test", test="false")
    if REJECT_RATE not in opened and counts.rejected > limits.max_reject_rate * counts.read:
        return RejectRateError(
            extract=facts.extract, refused=counts.rejected, read=counts.read, limit=limits.max_reject_rate
        )
    most = 0 if issuer.resend.seen_before == "refuse" else limits.max_seen_before
    if SEEN_BEFORE not in opened and not issuer.full_portfolio and facts.seen > most * counts.read:
        return SeenBeforeError(
            extract=facts.extract, seen=facts.seen, read=counts.read, limit=f"{most:.0%}", others=counts.submitted
        )
    if ROW_JUMP in opened or len(facts.before) < 3:  # two runs show no usual size
        return None
    usual = round(median(facts.before))
    if abs(counts.read - usual) <= limits.max_row_jump * usual:
        return None
    return RowJumpError(extract=facts.extract, read=counts.read, runs=len(facts.before), median=usual)
