"""What an issuer is to be told of: its extracts and files of corrections, and what each says now.

A run is told of again once its report says something else, which the row of the acknowledgement has
by digest. A file without a run is told of once: an extract that is held back, and corrections
that nobody has sent yet. Corrections that were sent are told of by the run that sent them. An
extract of which it was told that it waits for a decision is told of once more when it is dismissed.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from flows.book.known_runs import KnownPlan, KnownRuns
from flows.book.stored_book import known_runs
from flows.reports.dropped_corrections import unsent_files
from flows.results.masking import mask_key
from flows.runs.context import IssuerContext
from flows.runs.events import REPORTED
from flows.runs.identity import canonical, digest
from flows.runs.keys import corrections
from flows.runs.store import Entry
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.submissions.extract_lookup import identify
from flows.submissions.extract_states import (
    ExtractState,
    State,
    extract_states,
    has_new_versions,
)
from schemas.actions import GATE_OF
from schemas.manifest import SourceIdentity

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
DISMISSED = "The extract was dismissed: nothing of it is sent."
NOT_SENT_YET = "The corrections are here; nobody has sent them yet."
# why an extract waits for a decision
_HELD_BACK: dict[State, str] = {
    "held back": (
        "The extract is held back: another of the same name was committed with other content "
        "(gate changed-extract). Nothing of it is sent before somebody decides."
    ),
    "repeated": (
        "The extract is held back: it has the same content as one that was sent. "
        "Nothing of it is sent before somebody decides."
    ),
}


class Due(NamedTuple):
    """A run, or a file without one, and what is to be told of it now, by digest.

    `subject`: the id of the run, or the key of the file, card numbers masked; `identity` reads a
    file for the first time. `corrects`: of corrections, the run whose rows they correct.
    `is_over`: nothing of it will be sent.
    """

    subject: str
    says: str
    identity: Callable[[], SourceIdentity]
    since: datetime
    run: StoredRun | None = None
    why: str = ""  # nothing was done with the file yet
    corrects: str | None = None
    is_over: bool = False


def still_open(context: IssuerContext, last_told: Mapping[str, str]) -> Iterator[Due]:
    """Yield the runs and files about which something is open, or was when the issuer was told
    last (`last_told`).
    """
    runs = StoredRuns(context.adapters, context.issuer.issuer)
    known = known_runs(context.adapters, runs)
    subjects = {plan.run for plan in known.committed}
    for due in _open(context, runs, known, last_told):
        subjects.add(due.subject)
        yield due
    yield from _dismissed(context, known, last_told, last_told.keys() - subjects)


def _open(
    context: IssuerContext, runs: StoredRuns, known: KnownRuns, last_told: Mapping[str, str]
) -> Iterator[Due]:
    """Yield the runs and files about which something is open, and the runs that closed since."""
    issuer = context.issuer.issuer
    for plan in known.committed:
        is_closed = plan.run in known.closed
        if not is_closed or plan.run in last_told:
            due = _of_run(StoredRun.by_id(context.adapters, plan.run), issuer)
            if due is not None and not (is_closed and last_told[plan.run] == due.says):
                yield due
    for refused, moment in _refused(runs, known).items():
        run = StoredRun.by_id(context.adapters, refused)
        says = digest(f"refused {moment.isoformat()}".encode())
        yield _of_this(run, says, run.planned().source)
    yield from _held_back(context, known)
    yield from _not_sent(context, known.committed)


def _of_run(run: StoredRun, issuer: str) -> Due | None:
    """Return what is to be told of a committed run; None of one that sends no file of the
    issuer's, or whose ledger is purged.
    """
    if run.purged_ledger is not None:
        return None
    planned = run.planned()
    if planned.selection is None:
        return _of_this(run, _says(run), planned.source)
    is_corrected = planned.source.key.startswith(corrections(issuer))
    source = planned.source if is_corrected else planned.selection.corrections
    if source is None:
        return None
    return _of_this(run, _says(run), source)._replace(corrects=planned.selection.of)


def _of_this(run: StoredRun, says: str, source: SourceIdentity) -> Due:
    return Due(run.id, says, lambda: source, _last_event(run), run)


def _says(run: StoredRun) -> str:
    """Return the digest of what a run's report says of its rows."""
    summary = run.summary or {}
    rows = {name: summary.get(name) for name in ("rows", "attempts", "reasons")}
    return digest(canonical({**rows, "sha256": run.committed().source.sha256}))


def _last_event(run: StoredRun) -> datetime:
    times = (entry.at for entry in run.history if entry.what != REPORTED)
    return max(times, default=LONG_AGO)


def _refused(runs: StoredRuns, known: KnownRuns) -> Mapping[str, datetime]:
    committed = known.committed
    extracts = {plan.key for plan in committed if plan.is_whole}
    return runs.refused({plan.run for plan in committed}, extracts)


def _held_back(context: IssuerContext, known: KnownRuns) -> Iterator[Due]:
    """Yield the extracts that wait for a decision before anything is planned."""
    if not has_new_versions(context, known.committed):
        return
    for extract in extract_states(context, known.plans.values()):
        why = _HELD_BACK.get(extract.state)
        if why is not None and extract.entry is not None:
            yield _of_file(context, extract.entry, why)


def _dismissed(
    context: IssuerContext,
    known: KnownRuns,
    last_told: Mapping[str, str],
    subjects: Collection[str],
) -> Iterator[Due]:
    """Yield the extracts that were dismissed of those `subjects` that waited when the issuer was
    told last.
    """
    if not subjects:
        return
    for extract in extract_states(context, known.plans.values()):
        subject = extract.run or mask_key(extract.key)
        if extract.state != "dismissed" or subject not in subjects:
            continue
        due = _of_dismissed(context, extract)
        if due is not None and last_told[due.subject] != due.says:
            yield due


def _of_dismissed(context: IssuerContext, extract: ExtractState) -> Due | None:
    """Return that nothing of an extract will be sent; None where it was refused for good."""
    store = context.adapters.store
    says = digest(f"dismissed {extract.sha256}".encode())
    since = extract.dismissals[-1].at
    if extract.run:
        run = StoredRun.by_id(context.adapters, extract.run)
        if run.refusal is None or run.refusal.error not in GATE_OF:
            return None
        source = run.planned().source
        return Due(run.id, says, lambda: source, since, run, DISMISSED, is_over=True)
    if extract.entry is None:
        return None
    identity = partial(identify, store, extract.entry)
    return Due(mask_key(extract.key), says, identity, since, why=DISMISSED, is_over=True)


def _not_sent(context: IssuerContext, committed: list[KnownPlan]) -> Iterator[Due]:
    """Yield the files of corrections that no committed run has sent."""
    for entry in unsent_files(context.adapters, context.issuer.issuer, committed):
        yield _of_file(context, entry, NOT_SENT_YET)


def _of_file(context: IssuerContext, entry: Entry, why: str) -> Due:
    says = digest(canonical({"version": entry.version, "size": entry.size, "why": why}))
    store = context.adapters.store
    return Due(mask_key(entry.key), says, lambda: identify(store, entry), entry.modified, why=why)
