"""The sequence numbers of an issuer's extracts: each follows that of the last committed run, and none is used twice."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from datetime import date, timedelta
from itertools import chain
from typing import NamedTuple

from flows.errors import ExtractError, GateError
from flows.runs.chains import last_commit
from flows.runs.context import IssuerContext
from flows.runs.documents import keys_of, read_document, read_manifest
from flows.runs.keys import commits, extracts, link
from flows.submissions.gates import SEQUENCE_GAP
from schemas.issuer import SourceSettings
from schemas.manifest import Manifest, SourceIdentity

LOOK_BACK = timedelta(days=60)  # a number that was used before is not a repeat: the issuer began again


class SequenceMissingError(ExtractError):
    """An extract has no sequence number."""

    message = "{extract} has no sequence number in its {place}, where `sequence` in [source] expects one."
    next_step = "Ask the issuer to send it again, or compare `sequence` with the file."


class SequenceRepeatedError(ExtractError):
    """Another extract had the same sequence number."""

    message = "{extract} has the sequence number {number}, which run {run} has used. Nothing was committed."
    next_step = "Ask the issuer for the right extract; the next number is {expected}."


class SequenceGapError(GateError):
    """An extract does not follow the last committed one."""

    message = "{extract} has the sequence number {number}; expected {expected}, after run {run}. Nothing was committed."
    next_step = "Submit the extracts between them first, or ask the issuer for them; to go on without them: {command}."


class Numbered(NamedTuple):
    """A run with the sequence number of its extract."""

    number: int
    run: str
    as_of: date


def sequence_number(source: SourceSettings, key: str, before: Sequence[str]) -> int | None:
    """Return an extract's number, by its key or the lines before its data; None where the issuer numbers none."""
    if source.sequence is None:
        return None
    places = [key.rpartition("/")[2]] if source.sequence_in == "name" else before
    found = next((match[1] for place in places if (match := re.search(source.sequence, place))), None)
    if found is None or not re.fullmatch("[0-9]{1,12}", found):
        raise SequenceMissingError(extract=key, place=source.sequence_in)
    return int(found)


def out_of_sequence(
    context: IssuerContext,
    source: SourceIdentity,
    as_of: date,
    number: int | None,
    planned: Sequence[Numbered],
    opened: Collection[str],
) -> GateError | None:
    """Return the gate that a number does not pass; `planned` runs count as committed. SequenceRepeatedError."""
    expected, last = number, ""
    for one in chain(reversed(planned), _committed(context, source)) if number is not None else ():
        if not last:
            expected, last = one.number + 1, one.run
        if one.number == number:
            raise SequenceRepeatedError(extract=source.key, number=number, run=one.run, expected=expected)
        if number == expected or one.as_of < as_of - LOOK_BACK:
            break
    if number == expected or SEQUENCE_GAP in opened:
        return None
    issuer = context.issuer.issuer
    words = ["cardlink", "submit", issuer, "--extract", source.key.removeprefix(extracts(issuer))]
    command = shlex.join([*words, "--open", SEQUENCE_GAP])
    return SequenceGapError(extract=source.key, number=number, expected=expected, run=last, command=command)


def _committed(context: IssuerContext, source: SourceIdentity) -> Iterator[Numbered]:
    """Yield the committed runs of other numbered extracts, the last first."""
    store, issuer, this = context.adapters.store, context.issuer.issuer, [source.key, source.sha256]
    for at in range(last_commit(store, issuer), 0, -1):
        done = read_document(store, link(commits(issuer), at), Manifest)
        if not done or done.sequence is None or [done.source.key, done.source.sha256] == this:
            continue
        if read_manifest(store, keys_of(done.run)) is not None:  # else abandoned, or not committed yet
            yield Numbered(done.sequence, done.run, done.as_of)
