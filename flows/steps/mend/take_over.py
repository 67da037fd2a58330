"""End the claim of a process that died, so that its run goes on at once instead of when the claim runs out."""

from __future__ import annotations

from flows.core.errors import OperatorError
from flows.core.run.lease import Held, end, held
from flows.steps.edges import Edges, note
from flows.steps.mend.reason import given
from flows.steps.runs import UnknownRunError, keys_of, read_plan


class NotClaimedError(OperatorError):
    """Nobody holds the claim that is to be ended."""

    message = "Nobody has claimed {run}: there is nothing to take over."
    next_step = "The interrupted command can continue at once: run it again."


def take_over(edges: Edges, run: str, reason: str, *, dry_run: bool = False) -> Held:
    """End the claim on a run and return who had it; the next submit goes on from what is published.

    A process that still lives loses the claim at its next beat, and what it publishes until then is what the next one
    would. Raises UnknownRunError, NotClaimedError, NoReasonError.
    """
    keys, why = keys_of(run), given(reason)
    if read_plan(edges.store, keys) is None:
        raise UnknownRunError(run=run)
    holder = held(edges.store, keys.claims, edges.now())
    if holder is None:
        raise NotClaimedError(run=run)
    if not dry_run:
        until = holder.until.isoformat(timespec="seconds")
        note(edges, keys, "taken over", reason=why, holder=holder.holder, until=until)
        end(edges.store, keys.claims, edges.actor, edges.now())
    return holder
