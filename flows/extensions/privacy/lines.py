"""The line of the worklist about erasures to finish."""

from collections.abc import Iterator

from flows.extensions import hooks
from flows.reports.work import Work
from flows.reports.work_kinds import CARDHOLDERS, OPERATOR, Kind
from flows.runs.context import IssuerContext
from flows.runs.erased import is_interrupted, unfinished_erasures
from flows.steps import Slot, Step

ERASING = Kind(
    "erasures to finish",
    OPERATOR,
    "Begun, and their process ended before everything was removed",
    Step("purge", Slot("issuer")),
    "Until then `audit verify` may find what is half removed.",
    noun="erasure",
    rows=CARDHOLDERS,
    of_one_run=True,
)


def matters(context: IssuerContext) -> Iterator[Work]:
    """Yield the erasures that were interrupted, or could be ended."""
    adapters = context.adapters
    issuer = context.issuer.issuer
    acts = unfinished_erasures(adapters, issuer)
    waits = not is_interrupted(acts) and any(
        names_erased(adapters, issuer) for names_erased in hooks("names_erased")
    )
    if acts and not waits:
        yield Work(
            due=acts[0].at,
            kind=ERASING.name,
            issuer=issuer,
            since=acts[0].at,
            rows=sum(act.people for act in acts),
        )
