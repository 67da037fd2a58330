"""Decide about a result file: attribute one of its rows, withdraw that, ingest the file again.

Each decision stands with who, when and why; the runs concerned are reported after it.
"""

from typing import Any, Literal, NamedTuple

import polars as pl

from flows.errors import OperatorError
from flows.reports.ingestion import Ingested, ingest
from flows.results.batches import ResultObject
from flows.results.decisions import Attributions, attributions
from flows.results.dropped import as_decided, result_files, stray_files
from flows.results.intake import examine
from flows.results.masking import mask_key
from flows.results.read import ResultRows
from flows.runs.adapters import Adapters
from flows.runs.answers import file_id, runs_answered_by
from flows.runs.context import IssuerContext
from flows.runs.decisions import RESULT_ROW, decide, lift
from flows.runs.dropped_files import dropped_files
from flows.runs.errors import NoSuchRowError
from flows.runs.journal import Act, enter
from flows.runs.keys import results
from flows.runs.outcomes import Attributed
from flows.runs.store import ObjectMissingError
from flows.runs.stored_run import StoredRun
from flows.steps import RUN, Option, Sentence, Step
from schemas import breaks
from schemas.ledger import BROKEN, SUBMITTED
from schemas.records import Attribution

Kind = Literal["attributed", "withdrawn", "again"]
EVENTS: dict[Kind, str] = {
    "attributed": "attributed by hand",
    "withdrawn": "attribution withdrawn",
    "again": "result taken up again",
}

UNPLACED = (
    breaks.UNATTRIBUTED_ERROR,
    breaks.UNKNOWN_CUID,
    breaks.FOREIGN_FILE,
    breaks.LAST4_MISMATCH,
    breaks.UNNAMED_ROW,
)
_OUTCOME = ("state", "trouble", "run", "chunk", "row", "how")


class RowSettledError(OperatorError):
    """The result row is attributed already, or the sent row has its answer."""

    message = "Row {row} of {place} {state}."
    next_step = Sentence(
        "An unattributed result row fits a sent row without a result; {report} shows both.",
        report=Step("report", RUN),
    )


class LastFourError(OperatorError):
    """The result row and the sent row have different last four digits."""

    message = (
        "Row {position} of {result} and row {row} of {run} have different last four digits: "
        "the link may belong to another card."
    )
    next_step = Sentence(
        "Ask the partner; only if they confirm the card, repeat the command with {confirmed}.",
        confirmed=Option("--last-4-confirmed", of="mend attribute"),
    )


class Decided(NamedTuple):
    """A record about a result file, the outcome of its row, if any, and the ingest after it."""

    record: Attribution
    row: dict[str, Any]
    ingested: Ingested


def attribute_row(
    context: IssuerContext,
    result: str,
    position: int,
    to: tuple[str, int],
    reason: str,
    last_4_confirmed: bool = False,
) -> Decided:
    """Give data row `position` (from 1) of a result file to a sent row that has no answer.

    `to` is its run and row. A link with other last four digits may go to the wrong cardholder, so
    it needs the partner's confirmation: `last_4_confirmed`. Raises ObjectMissingError,
    NoSuchRowError, RowSettledError, LastFourError, UnknownRunError, NoReasonError.
    """
    signed = context.adapters.signed(reason)
    seen = attributions(context.adapters, context.issuer.issuer)
    file = _find_result(context, result)
    rows, attributed = examine(context, file)
    run, row = to
    record = Attribution(
        **signed,
        what="attributed",
        result=mask_key(file.entry.key),
        digest=rows.digest,
        position=position,
        run=run,
        row=row,
        last_4_confirmed=last_4_confirmed,
    )
    finished = _finished(context, file, record)
    if finished is not None:
        return finished
    reported_last_4 = _unattributed_last_4(rows, attributed, position)
    sent_last_4 = _unanswered_last_4(context.adapters, run, row)
    if not last_4_confirmed and reported_last_4 not in (None, sent_last_4):
        raise LastFourError(result=rows.name, position=position, run=run, row=row)
    decided = _decide(context, file, record, seen)
    if decided is None:
        return attribute_row(context, result, position, to, reason, last_4_confirmed)
    return decided


def withdraw(context: IssuerContext, result: str, position: int, reason: str) -> Decided:
    """Withdraw the attribution of a result row by an operator.

    The rules place it again, or it is a break again. Raises ObjectMissingError, NoSuchRowError,
    NoReasonError.
    """
    signed = context.adapters.signed(reason)
    seen = attributions(context.adapters, context.issuer.issuer)
    file = _find_result(context, result)
    rows, _ = examine(context, file)
    earlier = [
        decision
        for decision in file.decided
        if decision.position == position and decision.digest == rows.digest
    ]
    record = Attribution(
        **signed,
        what="withdrawn",
        result=mask_key(file.entry.key),
        digest=rows.digest,
        position=position,
    )
    finished = _finished(context, file, record)
    if finished is not None:
        return finished
    if not earlier or earlier[-1].what != "attributed":
        raise NoSuchRowError(place=rows.name, rows=f"{position} that an operator attributed")
    decided = _decide(context, file, record, seen)
    return withdraw(context, result, position, reason) if decided is None else decided


def reingest(context: IssuerContext, result: str, reason: str) -> Decided:
    """Attribute a result file again and report the runs it answered before and answers now.

    Raises ObjectMissingError, NoReasonError.
    """
    signed = context.adapters.signed(reason)
    seen = attributions(context.adapters, context.issuer.issuer)
    file = _find_result(context, result)
    rows, _ = examine(context, file)
    key = mask_key(file.entry.key)
    record = Attribution(**signed, what="again", result=key, digest=rows.digest)
    decided = _decide(context, file, record, seen)
    return reingest(context, result, reason) if decided is None else decided


def reingest_strays(context: IssuerContext, reason: str) -> dict[str, Decided]:
    """Attribute every result file again that belongs to no run; what came of each, by its name."""
    issuer = context.issuer.issuer
    strays = [entry.key for entry in stray_files(result_files(context.adapters, issuer))]
    return {key.removeprefix(results(issuer)): reingest(context, key, reason) for key in strays}


def _find_result(context: IssuerContext, result: str) -> ResultObject:
    """Return a result file by name or key, with the decisions about it; ObjectMissingError."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    prefix = results(issuer)
    entries = dropped_files(store, prefix, shown_as_is=False).files
    exact = [entry for entry in entries if result in (entry.key, entry.key.removeprefix(prefix))]
    # a name may be shown as what is kept of it
    shown = [entry for entry in entries if mask_key(entry.key) in (result, prefix + result)]
    for entry in exact or (shown if len(shown) == 1 else ()):
        return as_decided(context.adapters, issuer, [entry])[0]
    raise ObjectMissingError(key=prefix + mask_key(result))


def _unattributed_last_4(rows: ResultRows, attributed: Attributed, position: int) -> str | None:
    """Return the last four digits of a result row; RowSettledError where it is attributed.

    NoSuchRowError where the file has no such row.
    """
    outcome = attributed.outcomes.filter(position=position)
    if outcome.is_empty():
        raise NoSuchRowError(place=rows.name, rows=position)
    problem = outcome["trouble"][0]
    if problem not in UNPLACED:
        state = f"is {outcome['state'][0]}, {problem or 'attributed already'}"
        raise RowSettledError(place=rows.name, row=position, state=state)
    last_4: str | None = rows.rows.filter(position=position)["last_4"][0]
    return last_4


def _unanswered_last_4(adapters: Adapters, run: str, row: int) -> str:
    """Return the last four digits of a sent row; RowSettledError where it has an answer.

    NoSuchRowError where no such row was sent.
    """
    stored_run = StoredRun.by_id(adapters, run)
    is_row = (pl.col("row") == row) & (pl.col("fate") == SUBMITTED)
    sent = pl.concat(stored_run.ledger(["row", "fate", "chunk", "last_4"], is_row))
    if sent.is_empty():
        raise NoSuchRowError(place=run, rows=f"{row} that was sent")
    state = _answered_state(stored_run, sent["chunk"][0], row)
    if state:
        raise RowSettledError(place=run, row=row, state=f"is {state} already")
    return str(sent["last_4"][0])


def _answered_state(run: StoredRun, chunk: int, row: int) -> str:
    """Return the state that a result gave a sent row, "" where none answers it."""
    for attributed in run.outcomes.of([chunk]):
        answers = attributed.outcomes.filter(row=row, run=run.id)
        if answers.filter(pl.col("state") != BROKEN).height:
            return str(answers["state"][0])
    return ""


def _finished(context: IssuerContext, file: ResultObject, decision: Attribution) -> Decided | None:
    """Ingest a file about which just this was decided, by a command that was stopped before that.

    None where it was not decided, or where the file is ingested.
    """
    same_row = [
        known
        for known in file.decided
        if (known.position, known.digest) == (decision.position, decision.digest)
    ]
    last = same_row[-1] if same_row else None
    act = (decision.what, decision.run, decision.row)
    if last is None or (last.what, last.run, last.row) != act:
        return None
    _, attributed = examine(context, file)
    ingested = ingest(context)
    if not ingested.files and not ingested.reports:
        return None
    return _decided(last, attributed, ingested)


def _decide(
    context: IssuerContext, file: ResultObject, decision: Attribution, seen: Attributions
) -> Decided | None:
    """Record a decision about a result file with the runs it answered so far, and ingest it.

    None where others have decided about result files since that was `seen`: theirs is ingested.
    """
    adapters = context.adapters
    issuer = context.issuer.issuer
    record = decision.model_copy(
        update={"runs": runs_answered_by(adapters, issuer, file.entry.key)}
    )
    _, attributed = examine(context, file._replace(decided=(*file.decided, record)))
    subject = file_id(file.entry.key)
    row = f"row {record.position} of {record.digest}"

    def work(act: Act) -> bool:
        if attributions(adapters.within(act.connection), issuer) != seen:
            return False
        if record.what != "again":
            lift(act, RESULT_ROW, subject, row)
        decide(act, RESULT_ROW, subject, record, row if record.what == "attributed" else None)
        answering = attributed.outcomes["run"].drop_nulls().unique()
        for run in sorted({*record.runs, *answering, record.run} - {""}):
            position = {"row": record.position} if record.position else {}
            act.note(EVENTS[record.what], run, result=record.result, **position)
        return True

    if not enter(adapters, issuer, f"result row {record.what}", work, reason=record.reason):
        ingest(context)
        return None
    return _decided(record, attributed, ingest(context))


def _decided(record: Attribution, attributed: Attributed, ingested: Ingested) -> Decided:
    outcome = attributed.outcomes.filter(position=record.position).select(_OUTCOME)
    row = outcome.row(0, named=True) if outcome.height else {}
    return Decided(record, row, ingested)
