"""The gates a run passes before its commit: trailer, reject rate, jump in row count, test cards and real ones.

A gate that fails refuses the run: nothing is committed, nothing is shown for upload. Gates that an operator may open
have a name (`reject-rate`, `row-jump`, `sequence-gap`); opening one is recorded with the run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median
from typing import NamedTuple

from flows.errors import BalanceError, CardlinkError, GateError, OperatorError
from schemas.issuer import Limits
from schemas.manifest import Counts

REJECT_RATE = "reject-rate"
ROW_JUMP = "row-jump"
SEQUENCE_GAP = "sequence-gap"
OPENABLE = (REJECT_RATE, ROW_JUMP, SEQUENCE_GAP)


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


def refusal(facts: GateFacts, limits: Limits, *, test: bool, opened: Collection[str] = ()) -> CardlinkError | None:
    """Return the error of the first gate that fails, or None."""
    counts = facts.counts
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
    if ROW_JUMP in opened or len(facts.before) < 3:  # two runs show no usual size
        return None
    usual = round(median(facts.before))
    if abs(counts.read - usual) <= limits.max_row_jump * usual:
        return None
    return RowJumpError(extract=facts.extract, read=counts.read, runs=len(facts.before), median=usual)
