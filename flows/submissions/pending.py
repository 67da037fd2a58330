"""What became of each extract: committed, dismissed, repeated, held, or still to be submitted.

An extract is known by its name and content, so that a store that was copied or restored makes nothing pending.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from flows.extracts.errors import checked_name
from flows.runs.context import IssuerContext
from flows.runs.documents import READERS, keys_of, plans, read_document, read_end
from flows.runs.identity import DATE_IN_NAME, business_date, canonical, digest
from flows.runs.keys import dismissed, extracts, identified
from flows.runs.store import Entry, ObjectChangedError, ObjectMissingError
from flows.submissions.plan import dismissal_of, dismissals, identify
from schemas.manifest import Manifest, Plan, SourceIdentity
from schemas.records import Abandoned, Dismissal

State = Literal["pending", "held", "repeated", "committed", "abandoned", "dismissed", "replaced", "gone", "ignored"]
WAITING = ("pending", "held", "repeated")


class ExtractState(NamedTuple):
    """One content of one name, its last run, and the `other` run whose content it repeats or changes."""

    key: str
    state: State
    sha256: str = ""  # "" where nothing known has that size, so that it need not be read
    run: str = ""
    other: str = ""
    entry: Entry | None = None  # None where the name has other content now, or is gone
    dismissals: tuple[Dismissal, ...] = ()


class _Run(NamedTuple):
    plan: Plan
    end: Manifest | Abandoned | None


def pending(context: IssuerContext, *, remember: bool = False) -> list[Entry]:
    """Return the extracts that match [source] pattern and still need a run, oldest first; CardInNameError.

    One whose last run was abandoned needs none until an operator asks for a new run.
    """
    found = extract_states(context, remember=remember)
    waiting = [one.entry for one in found if one.entry is not None and one.state in WAITING]
    return sorted(waiting, key=lambda entry: (entry.modified, entry.key))


def extract_states(context: IssuerContext, *, remember: bool = False) -> list[ExtractState]:
    """Return what became of every extract that is stored or had a run, by name; CardInNameError.

    A file is read for its digest only where its size is known and its version is not; `remember` stores what was read.
    """
    store, issuer = context.adapters.store, context.issuer.issuer
    whole = [plan for plan in plans(store, issuer) if plan.selection is None]
    runs = defaultdict[str, list[_Run]](list)  # by name and by content
    with ThreadPoolExecutor(READERS) as readers:
        ends = readers.map(lambda plan: read_end(store, keys_of(plan.run)), whole)
        for plan, end in zip(whole, ends, strict=True):
            runs[plan.source.key].append(_Run(plan, end))
            runs[plan.source.sha256].append(_Run(plan, end))
    listed = {entry.key.removeprefix(dismissed(issuer)).partition("/")[0] for entry in store.keys(dismissed(issuer))}
    chains = {sha256: dismissals(store, issuer, sha256) for sha256 in listed}
    versions = {(plan.source.key, plan.source.size, plan.source.version): plan.source.sha256 for plan in whole}
    sizes = {size for _, size, _ in versions} | {one.size for chain in chains.values() for one in chain}
    found, present = [], {}
    for entry in store.keys(extracts(issuer)):
        if not fnmatchcase(checked_name(entry.key.removeprefix(extracts(issuer))), context.issuer.source.pattern):
            found.append(ExtractState(entry.key, "ignored", entry=entry))
            continue
        sha256 = versions.get((entry.key, entry.size, entry.version), "")
        if not sha256 and entry.size in sizes:
            sha256 = _content(context, entry, remember=remember)
        present[entry.key] = sha256
        found.append(
            _state(context, runs, ExtractState(entry.key, "pending", sha256, "", "", entry, chains.get(sha256, ())))
        )
    for key, sha256 in {(plan.source.key, plan.source.sha256) for plan in whole}:
        if present.get(key) != sha256:
            state: State = "replaced" if key in present else "gone"
            found.append(_state(context, runs, ExtractState(key, state, sha256, dismissals=chains.get(sha256, ()))))
    return sorted(found, key=lambda one: (one.key, one.entry is not None, one.run))


def _content(context: IssuerContext, entry: Entry, *, remember: bool) -> str:
    """Return the digest of an extract, read once for each version of it; "" while somebody changes it."""
    store = context.adapters.store
    version = canonical({"key": entry.key, "size": entry.size, "version": entry.version})
    key = f"{identified(context.issuer.issuer)}{digest(version)}.json"
    if (found := read_document(store, key, SourceIdentity)) is not None:
        return found.sha256
    try:
        found = identify(store, entry)
    except (ObjectChangedError, ObjectMissingError):
        return ""
    if remember:
        store.create(key, canonical(found))
    return found.sha256


def _state(context: IssuerContext, runs: Mapping[str, Sequence[_Run]], one: ExtractState) -> ExtractState:
    """Return what became of one content of one name."""
    alike, key, entry = runs.get(one.sha256, ()), one.key, one.entry
    if entry is not None and context.issuer.full_portfolio:  # its bytes may be the same on another date
        day, dated = business_date(key, entry.modified, context.issuer.time_zone), DATE_IN_NAME.search(key)
        own = [
            run for run in alike if run.plan.source.key == key and (dated or run.plan.source.version == entry.version)
        ]
        alike = [run for run in alike if run in own or run.plan.as_of == day]
    mine = [run.plan.run for run in alike if run.plan.source.key == key]
    ended = {run.plan.run: run.end for run in alike if run.end is not None}
    committed = [run for run, end in ended.items() if isinstance(end, Manifest)]
    if done := [run for run in mine if run in committed]:
        return one._replace(state="committed", run=done[-1])
    one = one._replace(run=mine[-1] if mine else "")
    if one.run in ended:
        return one._replace(state="abandoned")
    if dismissal_of(context, key, one.dismissals) is not None:
        return one._replace(state="dismissed")
    if entry is not None and (committed or (alike and alike[-1].end is not None)):
        return one._replace(state="repeated", other=(committed or [*ended])[-1])
    before = [run.plan.run for run in runs.get(key, ()) if isinstance(run.end, Manifest)]
    if entry is not None and before and context.issuer.source.same_name == "hold":
        return one._replace(state="held", other=before[-1])
    return one
