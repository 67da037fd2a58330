"""The corrections that the issuer dropped: which of them no run has sent, and nothing confirms."""

from collections.abc import Iterable, Iterator

from flows.book.kept_links import files_that_confirm
from flows.book.known_runs import KnownPlan
from flows.runs.adapters import Adapters
from flows.runs.dropped_files import dropped_files
from flows.runs.keys import corrections
from flows.runs.store import Entry
from flows.runs.stored_run import StoredRun


def unsent_files(
    adapters: Adapters, issuer: str, committed: Iterable[KnownPlan]
) -> Iterator[Entry]:
    """Yield the filled-in templates, and corrected extracts, that no committed run has sent.

    Nor those by which links were kept.
    """
    dropped = dropped_files(adapters.store, corrections(issuer)).files
    sent = {(plan.key, plan.size) for plan in committed} if dropped else set()
    sent |= files_that_confirm(adapters, issuer) if dropped else set()
    for plan in committed if dropped else ():
        if not plan.is_whole:
            sent |= _sent_by(StoredRun.by_id(adapters, plan.run))
    for entry in dropped:
        if (entry.key, entry.size) not in sent:
            yield entry


def _sent_by(run: StoredRun) -> set[tuple[str, int]]:
    """Return name and size of the filled-in template that a run has sent, if any."""
    selection = run.planned().selection
    source = selection.corrections if selection is not None else None
    return {(source.key, source.size)} if source is not None else set()
