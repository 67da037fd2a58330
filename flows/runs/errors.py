"""What a command names that is not there, or no more: a run, its rows, its ledger."""

from collections.abc import Iterable

from flows.errors import OperatorError
from flows.steps import REASON, Option, Sentence, Slot, Step

LISTED = 10  # rows or lines named in a message


class LedgerPurgedError(OperatorError):
    """The ledger and the report of a run were purged, as its issuer's retention asks."""

    message = "The ledger and the report of {run} were purged on {date} ({setting})."
    next_step = Sentence(
        "{history} shows who did it; its manifest says what was sent, its extract has the rows.",
        history=Step("report", Slot("run"), history=True),
    )


class UnknownRunError(OperatorError):
    """A run id that no run has."""

    message = "No run {run}."
    next_step = Sentence(
        "{status} lists the runs.",
        status=Step("worklist", all=True),
    )


class NotCommittedError(UnknownRunError):
    """A run that was refused, or is not finished: nothing of it was sent, and it has no report."""

    message = "Run {run} is not committed: {state}. None of its rows were sent."
    next_step = Sentence(
        "{worklist} says what to do; {history} shows what happened.",
        worklist=Step("worklist", Slot("issuer")),
        history=Step("report", Slot("run"), history=True),
    )


class NotFoundError(OperatorError):
    """What a command names is not there, or not in the state that the command needs."""

    message = "{place} has no {what}."
    next_step = "{command} shows what there is."


class NoSuchRowError(OperatorError):
    """A run or result file does not have these rows."""

    message = "{place} has no row {rows}."
    next_step = (
        "Rows are counted from 1 without the header, as in errors.csv and rejects.csv of the run."
    )


class AbandonedError(OperatorError):
    """An operator abandoned the run before its commit."""

    message = "Run {run} was abandoned by {actor}: {reason}."
    next_step = Sentence(
        "It will not be resumed; to make a new run of its extract: {new_run}, with a reason that "
        "none of its runs has.",
        new_run=Option("--new-run", REASON, of="submit"),
    )


def numbered(numbers: Iterable[int]) -> str:
    """List the first numbers of rows or lines, and how many more there are."""
    ordered = sorted(numbers)
    first = ", ".join(map(str, ordered[:LISTED]))
    more = len(ordered) - LISTED
    return f"{first} and {more:,} more" if more > 0 else first
