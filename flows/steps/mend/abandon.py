"""End a run before its commit, for good: win its manifest's key with a record that says so.

Whoever creates that key first decides: a run that is being committed at the same moment is committed or abandoned,
never both.
"""

from __future__ import annotations

from flows.core.errors import OperatorError
from flows.core.names import RunKeys
from flows.core.redaction import redact
from flows.core.run.lease import ClaimedError, held
from flows.core.run.planning import canonical
from flows.steps.edges import Edges
from flows.steps.mend.reason import given
from flows.steps.night.claim import claimed
from flows.steps.runs import UnknownRunError, finished, keys_of, read_plan
from schemas.mended import Abandoned


class CommittedError(OperatorError):
    """The run that is to be abandoned is committed."""

    message = "Run {run} is committed: it cannot be abandoned."
    next_step = "What is not uploaded yet can be cancelled: cardlink outbox cancel {run} --reason WHY."


def abandon(edges: Edges, run: str, reason: str, *, dry_run: bool = False) -> Abandoned:
    """Abandon a planned run that is not committed and that nobody works on; return the record.

    Raises UnknownRunError, CommittedError, AbandonedError, ClaimedError, NoReasonError.
    """
    keys, why = keys_of(run), given(reason)
    if read_plan(edges.store, keys) is None:
        raise UnknownRunError(run=run)
    _refuse_ended(edges, keys)
    record = Abandoned(run=run, at=edges.now(), by=redact(edges.actor), reason=why)
    if dry_run:
        _refuse_claimed(edges, keys)
        return record
    with claimed(edges, keys.claims):
        if not edges.store.create(keys.manifest, canonical(record)):
            _refuse_ended(edges, keys)
    return record


def _refuse_ended(edges: Edges, keys: RunKeys) -> None:
    if finished(edges.store, keys) is not None:
        raise CommittedError(run=str(keys.run))


def _refuse_claimed(edges: Edges, keys: RunKeys) -> None:
    holder = held(edges.store, keys.claims, edges.now())
    if holder is not None:
        raise ClaimedError(holder=holder.holder, prefix=keys.claims, until=holder.until.isoformat(timespec="seconds"))
