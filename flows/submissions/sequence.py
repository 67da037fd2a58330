"""The sequence number of an extract: where it is read, and whether it follows the last one.

A lower number that was never used is a late file, and stopped by the same gate as a gap, which an
operator can open: refusing it for good would lose its cardholders.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from sqlalchemy import select

from flows.errors import ExtractError, GateError
from flows.runs.context import IssuerContext
from flows.submissions.plan import submit_step
from schemas.actions import Gate
from schemas.database import RUN
from schemas.manifest import SourceIdentity
from schemas.source import SourceSettings

SEQUENCE_GAP: Gate = "sequence-gap"
# A number that was used longer ago is not a repeat: the issuer has begun to count again.
LOOK_BACK = timedelta(days=60)


class SequenceError(ExtractError):
    """An extract has no sequence number, or that of another extract."""

    message = "{extract} has no sequence number of its own: {problem}. Nothing was committed."
    next_step = (
        "Ask the issuer for the right extract, or compare `sequence` in [source] with the file."
    )


class SequenceGapError(GateError):
    """An extract does not follow the last committed one."""

    message = (
        "{extract} has the sequence number {number}; expected {expected}, after run {run}. "
        "Nothing was committed."
    )
    next_step = (
        "Submit the extracts between them first, or ask the issuer for them; "
        "to go on without them: {command}."
    )


def sequence_number(source: SourceSettings, key: str, before: Sequence[str]) -> int | None:
    """Return an extract's number, None where the issuer numbers none; SequenceError.

    It is in the name (`key`) or in the lines `before` the data, as [source] sequence_in says.
    """
    if source.sequence is None:
        return None
    places = [key.rpartition("/")[2]] if source.sequence_in == "name" else before
    matches = [re.search(source.sequence, place) for place in places]
    numbers = [match[1] for match in matches if match is not None]
    number = numbers[0] if numbers else None
    if number is None or not re.fullmatch("[0-9]{1,12}", number):
        raise SequenceError(extract=key, problem=f"its {source.sequence_in} has none")
    return int(number)


class _NumberedRun(NamedTuple):
    """A committed run of an extract that has a sequence number."""

    number: int
    run: str
    as_of: date


def out_of_sequence(
    context: IssuerContext,
    source: SourceIdentity,
    as_of: date,
    number: int | None,
    opened: Collection[str],
) -> GateError | None:
    """Return the gate that a number does not pass, None where it does.

    SequenceError where another extract has used the number.
    """
    if number is None:
        return None
    expected = number
    last_run = ""
    for earlier in _numbered_runs(context, source):
        if not last_run:
            expected = earlier.number + 1
            last_run = earlier.run
        if earlier.number == number:
            problem = f"run {earlier.run} has used {number}; the next is {expected}"
            raise SequenceError(extract=source.key, problem=problem)
        if number == expected or earlier.as_of < as_of - LOOK_BACK:
            break
    if number == expected or SEQUENCE_GAP in opened:
        return None
    command = submit_step(source.key, open=SEQUENCE_GAP)
    return SequenceGapError(
        extract=source.key, number=number, expected=expected, run=last_run, command=command
    )


def _numbered_runs(context: IssuerContext, source: SourceIdentity) -> Iterator[_NumberedRun]:
    """Yield the committed runs of other extracts that have a number, the last one first."""
    is_other = (RUN.c.source_key != source.key) | (RUN.c.source_sha256 != source.sha256)
    query = (
        select(RUN.c.sequence, RUN.c.run, RUN.c.as_of)
        .where(RUN.c.issuer == context.issuer.issuer, RUN.c.sequence.is_not(None), is_other)
        .order_by(RUN.c.turn.desc())
    )
    with context.adapters.database.snapshot() as connection:
        for row in connection.execute(query.execution_options(yield_per=64)):
            yield _NumberedRun(*row)
