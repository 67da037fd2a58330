"""The gates a run passes before its commit: trailer, reject rate, jump in row count, test cards and real ones.

A gate that does not hold refuses the run; nothing is committed and nothing is shown for upload. Those an
operator may open have a name (`reject-rate`, `row-jump`); opening one is recorded with the run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median
from typing import NamedTuple

from flows.core.errors import BalanceError, CardlinkError, GateError, OperatorError
from schemas.issuer import Limits
from schemas.manifest import Counts

REJECT_RATE = "reject-rate"
ROW_JUMP = "row-jump"
OPENABLE = (REJECT_RATE, ROW_JUMP)


class TrailerMismatchError(BalanceError):
    """The extract's trailer counts other rows than the extract has."""

    says = "{0}: the trailer counts {1} rows, the extract has {2}. Nothing was committed."
    then = "The extract is not whole: ask the issuer to send it again."

    def __init__(self, extract: str, trailer: int, read: int) -> None:
        super().__init__(extract, trailer, read)


class RejectRateError(GateError):
    """More rows were refused than the limit allows."""

    says = "{0}: {1} of {2} rows refused, more than limits.max_reject_rate = {3}. Nothing was committed."
    then = "Read the run's report/rejects.csv; mend the extract at its source, or submit with --open reject-rate."

    def __init__(self, extract: str, refused: int, read: int, limit: float) -> None:
        super().__init__(extract, refused, read, limit)


class RowJumpError(GateError):
    """The extract is much larger or smaller than the ones before it."""

    says = "{0}: {1} rows, where the last {2} runs had {3} (median). Nothing was committed."
    then = "Ask the issuer whether this is the whole extract; if it is, submit with --open row-jump."

    def __init__(self, extract: str, read: int, runs: int, usual: int) -> None:
        super().__init__(extract, read, runs, usual)


class WrongCardsError(OperatorError):
    """Test cards in production, or real cards at a test issuer."""

    says = "{0}: {1} {2} cards at an issuer with test = {3}. Nothing was committed."
    then = "Check that the extract belongs to this issuer and this environment."

    def __init__(self, extract: str, count: int, kind: str, test: str) -> None:
        super().__init__(extract, count, kind, test)


class Night(NamedTuple):
    """What the gates look at: counts of this run, the rows of the runs before it, the kinds of its cards."""

    extract: str
    counts: Counts
    before: Sequence[int]
    test_cards: int
    real_cards: int


def refusal(night: Night, limits: Limits, *, test: bool, opened: Collection[str] = ()) -> CardlinkError | None:
    """Return the first gate that does not hold, as the error to raise, or None."""
    counts = night.counts
    if counts.trailer is not None and counts.trailer != counts.read:
        return TrailerMismatchError(night.extract, counts.trailer, counts.read)
    if test and night.real_cards:
        return WrongCardsError(night.extract, night.real_cards, "real", "true")
    if not test and night.test_cards:
        return WrongCardsError(night.extract, night.test_cards, "test", "false")
    if REJECT_RATE not in opened and counts.rejected > limits.max_reject_rate * counts.read:
        return RejectRateError(night.extract, counts.rejected, counts.read, limits.max_reject_rate)
    if ROW_JUMP not in opened:
        return _jump(night, limits.max_row_jump)
    return None


def _jump(night: Night, limit: float) -> RowJumpError | None:
    if len(night.before) < 3:  # two runs make no habit
        return None
    usual = round(median(night.before))
    if abs(night.counts.read - usual) <= limit * usual:
        return None
    return RowJumpError(night.extract, night.counts.read, len(night.before), usual)
