"""The gates a run passes before its commit: trailer, cards, reject rate, row count, drift.

A gate that fails refuses the run: nothing is committed, nothing is shown for upload. Gates that an
operator may open have a name (`OPENABLE`); opening one is recorded with the run. Nobody can open
those for a trailer that does not match, test cards in production, and an empty extract.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple, get_args

from flows.errors import BalanceError, CardlinkError, GateError, OperatorError
from flows.steps import Option, Sentence
from flows.submissions.plan import check_step
from flows.submissions.row_counts import PORTFOLIO_NIGHTS, fewest_rows
from flows.submissions.rows import ReasonRows
from flows.submissions.turnover import NO_TURNOVER, Turnover
from schemas.actions import Gate
from schemas.issuer import Issuer, Limits, most_of
from schemas.manifest import Counts, Manifest
from schemas.reasons import UNKNOWN_STATUS, seen_rows

CHANGED_EXTRACT: Gate = "changed-extract"  # checked before anything is planned or sealed
OPENABLE: tuple[Gate, ...] = get_args(Gate)


def opening(gate: Gate) -> Option:
    """Return the option that opens a gate."""
    return Option("--open", gate, of="submit")


class TrailerMismatchError(BalanceError):
    """The extract's trailer, total row or header record has another row count than the extract."""

    message = (
        "{extract}: its {record} counts {trailer} rows, the extract has {read}. "
        "Nothing was committed."
    )
    next_step = "The extract is incomplete: ask the issuer to send it again."


class RejectRateError(GateError):
    """More rows were rejected than the limit allows."""

    message = (
        "{extract}: {refused} of {read} rows rejected, above max_reject_rate = {limit}. "
        "Nothing was committed."
    )
    next_step = Sentence(
        "Read what {rejects} writes; correct the extract at its source, or submit with {open}.",
        open=opening("reject-rate"),
    )


class IneligibleRateError(GateError):
    """More rows were not eligible than the limit allows."""

    message = (
        "{extract}: {ineligible} of {read} rows are not eligible for a link, above "
        "max_ineligible_rate = {limit}. Nothing was committed."
    )
    next_step = Sentence(
        "Read what {rejects} writes; where [eligible] and the mapping of card and country are as "
        "meant, submit with {open}.",
        open=opening("ineligible-rate"),
    )


class RowJumpError(GateError):
    """The extract is much larger or smaller than those before it."""

    message = (
        "{extract}: {read} rows, where the last {runs} runs had {median} (median). "
        "Nothing was committed."
    )
    next_step = Sentence(
        "Ask the issuer whether this is the whole extract; if it is, submit with {open}.",
        open=opening("row-jump"),
    )


class RowFallError(GateError):
    """The extract has far fewer rows than all those before it."""

    message = (
        "{extract}: {read} rows, where the last {runs} runs had {lowest} to {highest}, and fewer "
        "than {least} are too few. Nothing was committed."
    )
    next_step = Sentence(
        "It may have been cut off: ask the issuer whether this is the whole extract; if it is, "
        "submit with {open}. To decide for every extract: limits.max_row_fall.",
        open=opening("row-jump"),
    )


class SeenBeforeError(GateError):
    """More rows than the limit allows have a card that already has a link, or awaits one."""

    message = (
        "{extract}: {seen} of {read} rows already have or await a link, "
        "above the limit of {limit} of the rows. Nothing was committed."
    )
    next_step = Sentence(
        "Ask the issuer whether it sent these rows before; to send the {others} others: {open}. "
        "To decide for every extract: [resend] seen_before and limits.max_seen_before.",
        open=opening("seen-before"),
    )


class DriftError(GateError):
    """Columns of the extract depart from those of the extracts before it."""

    message = "{extract} departs from the extracts before it: {how}. Nothing was committed."
    next_step = Sentence(
        "Ask the issuer what it changed; if the mapping still fits, submit with {open}.",
        open=opening("drift"),
    )


class OneValueError(GateError):
    """One value stands in too many rows of a column in which nearly all should differ."""

    message = "{extract}: {columns}. Nothing was committed."
    next_step = Sentence(
        "A link asks the cardholder for what the extract says. See in {check} what the column is "
        "made of, and ask the issuer for the real values. If they are real, submit with {open}. "
        "To decide for every extract: limits.max_one_value.",
        open=opening("one-value"),
    )


class LeaversError(GateError):
    """More known cards than the limit allows are not in the extract, or marked as deleted."""

    message = (
        "{extract}: {left:,} of {known:,} known cards would leave, of which {links:,} have a link "
        "(cuids {cuids}), and {new:,} cards come for the first time{renamed}; "
        "max_leavers = {limit}. Nothing was committed."
    )
    next_step = Sentence(
        "Ask the issuer whether they left. If they did, submit with {open}: {left} cards leave, "
        "{links} links are to be withdrawn, and withdrawals above max_withdrawn wait for a "
        "decision. To decide for every extract: limits.max_leavers.",
        open=opening("leavers"),
    )


class NewcomersError(GateError):
    """More cards of a portfolio than the limit allows come for the first time."""

    message = (
        "{extract}: {new:,} of its cards come for the first time (cuids {cuids}), and {known:,} "
        "were known{renamed}; max_newcomers = {limit}. Nothing was committed."
    )
    next_step = Sentence(
        "Ask the issuer whether they are new, and not known ones under another cuid. If they are, "
        "submit with {open}: {new} cards are sent for the first time. "
        "To decide for every extract: limits.max_newcomers.",
        open=opening("newcomers"),
    )


class UnknownStatusError(GateError):
    """Rows have a status that the settings do not name."""

    message = (
        "{extract}: {rows} of {read} rows have a status that [status] does not name: {values}. "
        "Nothing was committed."
    )
    next_step = Sentence(
        "Ask the issuer what it means, and name it in [status]; to send the other rows: {open}. "
        "To decide for every extract: `unknown` of the column.",
        open=opening("unknown-status"),
    )


class WrongCardsError(OperatorError):
    """Test cards in production, or real cards at a test issuer."""

    message = (
        "{extract}: {count} {kind} cards at an issuer with test = {test}. Nothing was committed."
    )
    next_step = "Check that the extract belongs to this issuer and this environment."


class Built(NamedTuple):
    """A run before its commit: the manifest that would commit it, and what else gates judge."""

    manifest: Manifest
    before: Sequence[int]  # row counts of the runs before it
    test_cards: int
    real_cards: int
    drift: Sequence[str] = ()  # how columns depart from those before
    one_value: Sequence[str] = ()  # columns where one value stands in too many rows
    columns: Sequence[str] = ()  # which came or went since the last extract
    turnover: Turnover = NO_TURNOVER  # who would leave and come
    sequence_error: CardlinkError | None = None  # where its sequence number is the wrong one
    reasons: Sequence[ReasonRows] = ()  # of its rows
    # for which [status] refuses it: rows by column and label
    unknown_values: Mapping[tuple[str, str], int] = {}

    @property
    def remarks(self) -> tuple[str, ...]:
        """What an operator should know of the extract, even where no gate fails."""
        extract = self.manifest.source.key
        drifts = (
            f"{extract} departs from the extracts before it: {change}" for change in self.drift
        )
        columns = (f"{extract} has {change}" for change in self.columns)
        same = (f"{extract}: {column}; it is sent as it is" for column in self.one_value)
        moves = (f"{extract}: {move}" for move in self.turnover.remarks)
        return (*columns, *drifts, *same, *moves)


def refusals(
    built: Built,
    issuer: Issuer,
    opened: Collection[str] = (),
) -> Iterator[CardlinkError]:
    """Yield the error of each gate that fails."""
    case = _Case(built, issuer, opened)
    for gate in _GATES:
        error = gate(case)
        if error is not None:
            yield error


class _Case(NamedTuple):
    """What a gate judges: a run before its commit, by the issuer's limits and the open gates."""

    built: Built
    issuer: Issuer
    opened: Collection[str]

    @property
    def extract(self) -> str:
        return self.built.manifest.source.key

    @property
    def counts(self) -> Counts:
        return self.built.manifest.counts

    @property
    def limits(self) -> Limits:
        return self.issuer.limits


def _sequence(case: _Case) -> CardlinkError | None:
    return case.built.sequence_error


def _trailer(case: _Case) -> CardlinkError | None:
    counts = case.counts
    if counts.trailer in (None, counts.read):
        return None
    return TrailerMismatchError(
        extract=case.extract,
        record=case.issuer.source.counted_in,
        read=counts.read,
        trailer=counts.trailer,
    )


def _cards(case: _Case) -> CardlinkError | None:
    is_test = case.issuer.test
    count = case.built.real_cards if is_test else case.built.test_cards
    if not count:
        return None
    kind = "real" if is_test else "test"
    return WrongCardsError(extract=case.extract, count=count, kind=kind, test=str(is_test).lower())


def _reject_rate(case: _Case) -> CardlinkError | None:
    counts = case.counts
    limit = case.limits.max_reject_rate
    if "reject-rate" in case.opened or counts.rejected <= limit * counts.read:
        return None
    return RejectRateError(
        extract=case.extract,
        refused=counts.rejected,
        read=counts.read,
        limit=limit,
        rejects=check_step(case.extract),
    )


def _ineligible_rate(case: _Case) -> CardlinkError | None:
    counts = case.counts
    limit = case.limits.max_ineligible_rate
    if "ineligible-rate" in case.opened or counts.ineligible <= limit * counts.read:
        return None
    return IneligibleRateError(
        extract=case.extract,
        ineligible=counts.ineligible,
        read=counts.read,
        limit=limit,
        rejects=check_step(case.extract),
    )


def _seen_before(case: _Case) -> CardlinkError | None:
    if "seen-before" in case.opened or case.issuer.full_portfolio:
        return None
    counts = case.counts
    seen = seen_rows(case.built.manifest.reasons)
    refuses_any = case.issuer.resend.seen_before == "refuse"
    limit = 0 if refuses_any else case.limits.max_seen_before
    if seen <= limit * counts.read:
        return None
    return SeenBeforeError(
        extract=case.extract,
        seen=seen,
        read=counts.read,
        limit=f"{limit:.0%}",
        others=counts.submitted,
    )


def _row_jump(case: _Case) -> CardlinkError | None:
    before = case.built.before
    if "row-jump" in case.opened or len(before) < PORTFOLIO_NIGHTS:
        return None
    read = case.counts.read
    usual = round(median(before))
    if abs(read - usual) <= case.limits.max_row_jump * usual:
        return None
    return RowJumpError(extract=case.extract, read=read, runs=len(before), median=usual)


def _row_fall(case: _Case) -> CardlinkError | None:
    before = case.built.before
    least = fewest_rows(before, case.limits, full_portfolio=case.issuer.full_portfolio)
    if "row-jump" in case.opened or case.counts.read >= least:
        return None
    return RowFallError(
        extract=case.extract,
        read=case.counts.read,
        runs=len(before),
        lowest=min(before),
        highest=max(before),
        least=least,
    )


def _unknown_status(case: _Case) -> CardlinkError | None:
    values = case.built.unknown_values
    if not values or "unknown-status" in case.opened:
        return None
    shown = [f"{column} {label}: {rows:,}" for (column, label), rows in sorted(values.items())]
    return UnknownStatusError(
        extract=case.extract,
        rows=case.built.manifest.reasons.get(UNKNOWN_STATUS, 0),
        read=case.counts.read,
        values=", ".join(shown),
    )


def _drift(case: _Case) -> CardlinkError | None:
    drift = case.built.drift
    if not drift or case.limits.drift != "refuse" or "drift" in case.opened:
        return None
    return DriftError(extract=case.extract, how="; ".join(drift))


def _one_value(case: _Case) -> CardlinkError | None:
    if not case.built.one_value or "one-value" in case.opened:
        return None
    return OneValueError(
        extract=case.extract,
        columns="; ".join(case.built.one_value),
        check=check_step(case.extract),
    )


def _leavers(case: _Case) -> CardlinkError | None:
    turnover = case.built.turnover
    limit = case.limits.max_leavers
    if "leavers" in case.opened or turnover.left <= most_of(limit, turnover.known):
        return None
    return LeaversError(
        extract=case.extract,
        left=turnover.left,
        known=turnover.known,
        links=turnover.links,
        cuids=turnover.left_cuids,
        new=turnover.new,
        renamed=turnover.renamed_words,
        limit=limit,
    )


def _newcomers(case: _Case) -> CardlinkError | None:
    turnover = case.built.turnover
    limit = case.limits.max_newcomers
    is_first = not turnover.known
    is_usual = turnover.new <= most_of(limit, case.counts.read)
    if "newcomers" in case.opened or is_first or is_usual:
        return None
    return NewcomersError(
        extract=case.extract,
        new=turnover.new,
        known=turnover.known,
        cuids=turnover.new_cuids,
        renamed=turnover.renamed_words,
        limit=limit,
    )


_GATES = (
    _sequence,
    _trailer,
    _cards,
    _unknown_status,
    _reject_rate,
    _ineligible_rate,
    _seen_before,
    _row_jump,
    _row_fall,
    _drift,
    _one_value,
    _leavers,
    _newcomers,
)
