"""What became of each extract: committed, dismissed, repeated, held back, or pending.

An extract is known by its name and content, so that a store that was copied or restored makes
nothing pending. One that has the name of a committed extract and other content is held back:
nothing is planned before an operator decides about it.

A version (inode, ETag) only saves the reading: a file of unknown size is new without being read,
one of a known size is read once and remembered. In a full portfolio the same bytes under another
date are another run.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from flows.book.known_runs import KnownPlan
from flows.book.stored_book import known_plans
from flows.extracts.delivery import business_date, is_extract, missing, waits_for, with_second_file
from flows.runs.business_date import date_in_name
from flows.runs.context import IssuerContext
from flows.runs.decisions import EXTRACT, decisions_by_subject
from flows.runs.documents import read_document
from flows.runs.dropped_files import dropped_files
from flows.runs.identity import canonical, digest
from flows.runs.keys import extracts, identified
from flows.runs.store import (
    Entry,
    ObjectChangedError,
    ObjectMissingError,
    VerdictAwaitedError,
    VerdictRefusedError,
)
from flows.runs.stored_runs import StoredRuns
from flows.submissions.dismissals import dismissal
from flows.submissions.extract_lookup import identify
from schemas.manifest import SourceIdentity
from schemas.records import Dismissal

State = Literal[
    "pending",
    "held back",
    "repeated",
    "unclean",
    "unusable",
    "committed",
    "abandoned",
    "dismissed",
    "replaced",
    "gone",
    "ignored",
]
UNSUBMITTED: tuple[State, ...] = ("pending", "held back", "repeated", "unclean", "unusable")


class ExtractState(NamedTuple):
    """One content of one name and its last run.

    `other` is the run whose content it repeats or changes.
    """

    key: str
    state: State
    sha256: str = ""  # "" where nothing known has that size, so that it need not be read
    run: str = ""
    other: str = ""
    entry: Entry | None = None  # None where the name has other content now, or is gone
    dismissals: tuple[Dismissal, ...] = ()
    waits: str = ""  # what it still lacks to be taken


def extracts_to_submit(context: IssuerContext, *, remember: bool = False) -> list[Entry]:
    """Return the extracts that need a run and lack nothing to be taken, oldest first.

    Among them are those held back and those that repeat a run: submitting one raises the
    error that says so, which is how an operator learns of it.
    """
    extracts_by_age = unsubmitted(context, remember=remember)
    return [extract.entry for extract in extracts_by_age if extract.entry and not extract.waits]


def unsubmitted(context: IssuerContext, *, remember: bool = False) -> list[ExtractState]:
    """Return the extracts in a state of UNSUBMITTED, oldest first, with what each waits for.

    They match [source] pattern. One whose last run was abandoned needs none until an operator asks
    for a new run.
    """
    waiting = [
        (extract.entry.modified, extract.key, extract)
        for extract in extract_states(context, remember=remember)
        if extract.entry is not None and extract.state in UNSUBMITTED
    ]
    return [extract for _, _, extract in sorted(waiting, key=lambda dated: dated[:2])]


def extract_states(
    context: IssuerContext, plans: Iterable[KnownPlan] | None = None, *, remember: bool = False
) -> list[ExtractState]:
    """Return what became of every extract that is stored or had a run, by name.

    `plans`: those of all runs, which are read where nobody has them. A file is read for its digest
    only where its size is known and its version is not; `remember` stores what was read.
    """
    history = _read_history(context, plans)
    stored = _stored_extracts(context, history, remember=remember)
    states = [_judged(context, history, extract) for extract in stored]
    states += [_judged(context, history, extract) for extract in _former_extracts(history, stored)]
    return sorted(states, key=lambda extract: (extract.key, extract.entry is not None, extract.run))


def has_new_versions(context: IssuerContext, committed: Iterable[KnownPlan]) -> bool:
    """Return whether an extract is stored that no run was committed of as it is.

    Each that is held back is; on most days there is none, and no extract has to be identified.
    """
    known = {(plan.key, plan.version) for plan in committed}
    dropped = dropped_files(context.adapters.store, extracts(context.issuer.issuer))
    return any((entry.key, entry.version) not in known for entry in dropped.files)


class _History(NamedTuple):
    """What is recorded of an issuer's extracts: the runs of whole ones, and dismissals."""

    plans: Sequence[KnownPlan]
    by_name: Mapping[str, Sequence[KnownPlan]]
    by_content: Mapping[str, Sequence[KnownPlan]]
    dismissals: Mapping[str, tuple[Dismissal, ...]]  # by content
    digests: Mapping[tuple[str, int, str], str]  # by name, size and version
    sizes: Collection[int]


def _read_history(context: IssuerContext, known: Iterable[KnownPlan] | None) -> _History:
    issuer = context.issuer.issuer
    every_plan = (
        known_plans(context.adapters, StoredRuns(context.adapters, issuer))
        if known is None
        else known
    )
    plans = [plan for plan in every_plan if plan.is_whole]
    by_name = defaultdict[str, list[KnownPlan]](list)
    by_content = defaultdict[str, list[KnownPlan]](list)
    for plan in plans:
        by_name[plan.key].append(plan)
        by_content[plan.sha256].append(plan)
    dismissals = decisions_by_subject(context.adapters, issuer, EXTRACT, Dismissal)
    digests = {_version(plan): plan.sha256 for plan in plans}
    sizes = {plan.size for plan in plans}
    for records in dismissals.values():
        sizes.update(record.size for record in records)
    return _History(plans, by_name, by_content, dismissals, digests, sizes)


def _version(source: Entry | KnownPlan) -> tuple[str, int, str]:
    return source.key, source.size, source.version


def _stored_extracts(
    context: IssuerContext, history: _History, *, remember: bool
) -> list[ExtractState]:
    """Return every stored file as if it had no run: pending, unclean, unusable, or ignored."""
    prefix = extracts(context.issuer.issuer)
    source = context.issuer.source
    now = context.adapters.now()
    dropped = dropped_files(context.adapters.store, prefix)
    files = {entry.key: entry for entry in dropped.files}
    stored = [
        ExtractState(prefix + file.name, "unusable", entry=file.entry, waits=file.waits)
        for file in dropped.unusable
    ]
    for file in dropped.files:
        if not is_extract(file.key.removeprefix(prefix), source):
            stored.append(ExtractState(file.key, "ignored", entry=file))
            continue
        entry = with_second_file(file, files, source)
        sha256 = history.digests.get(_version(entry), "")
        state: State = "pending"
        try:
            if sha256:  # it has a plan, so the scanner passed it, and opening it asks once more
                waits = missing(entry, files, source, now)
            else:
                waits = waits_for(context, entry, files)
        except VerdictRefusedError as error:
            state = "unclean"
            waits = error.what_happened
        if not sha256 and entry.size in history.sizes:
            sha256 = _content(context, entry, remember=remember)
        chain = history.dismissals.get(sha256, ())
        stored.append(
            ExtractState(entry.key, state, sha256, entry=entry, dismissals=chain, waits=waits)
        )
    return stored


def _content(context: IssuerContext, entry: Entry, *, remember: bool) -> str:
    """Return the digest of an extract; "" while somebody changes it.

    It is read once for each version of it.
    """
    store = context.adapters.store
    facts = {"key": entry.key, "size": entry.size, "version": entry.version}
    key = f"{identified(context.issuer.issuer)}{digest(canonical(facts))}.json"
    remembered = read_document(store, key, SourceIdentity)
    if remembered is not None:
        return remembered.sha256
    try:
        identity = identify(store, entry)
    except (ObjectChangedError, ObjectMissingError, VerdictAwaitedError, VerdictRefusedError):
        return ""
    if remember:
        store.create(key, canonical(identity))
    return identity.sha256


def _former_extracts(history: _History, stored: Sequence[ExtractState]) -> list[ExtractState]:
    """Return the contents that had a run and are no longer stored under their name."""
    present = {extract.key: extract.sha256 for extract in stored if extract.state != "ignored"}
    submitted = {(plan.key, plan.sha256) for plan in history.plans}
    former: list[ExtractState] = []
    for key, sha256 in submitted:
        if present.get(key) == sha256:
            continue
        state: State = "replaced" if key in present else "gone"
        chain = history.dismissals.get(sha256, ())
        former.append(ExtractState(key, state, sha256, dismissals=chain))
    return former


class _Decision(NamedTuple):
    """One line of the table that decides about an extract."""

    holds: bool
    state: State
    run: str
    other: str = ""


def _judged(context: IssuerContext, history: _History, extract: ExtractState) -> ExtractState:
    """Return an extract with what became of it: the first decision that holds."""
    if extract.state in ("ignored", "unusable"):
        return extract
    runs = _runs_of_content(context, history, extract)
    own_runs = [run for run in runs if run.key == extract.key]
    own_run = _last_id(own_runs)
    committed = _last_committed(own_runs)
    ended = _last_if_ended(own_runs)  # abandoned: one that is committed is decided above it
    is_dismissed = dismissal(context, extract.key, extract.dismissals) is not None
    is_stored = extract.entry is not None
    repeated = _last_committed(runs) or _last_if_ended(runs)
    changed = _last_committed(history.by_name.get(extract.key, ()))
    holds_changed = context.issuer.source.same_name == "hold"
    decisions = (
        _Decision(bool(committed), "committed", committed),
        _Decision(bool(ended), "abandoned", own_run),
        _Decision(is_dismissed, "dismissed", own_run),
        _Decision(is_stored and bool(repeated), "repeated", own_run, repeated),
        _Decision(is_stored and holds_changed and bool(changed), "held back", own_run, changed),
        _Decision(True, extract.state, own_run),
    )
    decision = next(decision for decision in decisions if decision.holds)
    return extract._replace(state=decision.state, run=decision.run, other=decision.other)


def _runs_of_content(
    context: IssuerContext, history: _History, extract: ExtractState
) -> Sequence[KnownPlan]:
    """Return the runs of an extract's content, whatever its name.

    A full portfolio may hold the same bytes on another date: then only those of this date count.
    """
    runs = history.by_content.get(extract.sha256, ())
    if extract.entry is None or not context.issuer.full_portfolio:
        return runs
    day = None if extract.waits else business_date(context, extract.entry)
    return [run for run in runs if _is_of_file(run, extract.entry) or run.as_of == day]


def _is_of_file(run: KnownPlan, entry: Entry) -> bool:
    """Return whether a run is of this very file: its name has a date, or it is the same version."""
    has_date = date_in_name(entry.key) is not None
    return run.key == entry.key and (has_date or run.version == entry.version)


def _last_id(runs: Sequence[KnownPlan]) -> str:
    """Return the id of the last run, "" where there is none."""
    return runs[-1].run if runs else ""


def _last_committed(runs: Sequence[KnownPlan]) -> str:
    """Return the id of the last run that is committed, "" where none is."""
    return _last_id([run for run in runs if run.end == "committed"])


def _last_if_ended(runs: Sequence[KnownPlan]) -> str:
    """Return the id of the last run, "" where it may still be committed, or there is none."""
    return _last_id([run for run in runs[-1:] if run.end])
