"""What became of each extract: committed, dismissed, repeated, held, or still to be submitted.

An extract is known by its name and content, so that a store that was copied or restored makes nothing pending.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

from flows.extracts.delivery import business_date, is_extract, missing, waits_for
from flows.extracts.errors import checked_name
from flows.runs.context import IssuerContext
from flows.runs.documents import READERS, keys_of, plans, read_document, read_end
from flows.runs.identity import canonical, date_in_name, digest
from flows.runs.keys import dismissed, extracts, identified
from flows.runs.store import Entry, ObjectChangedError, ObjectMissingError, VerdictAwaitedError, VerdictRefusedError
from flows.submissions.plan import dismissal_of, dismissals, identify
from schemas.manifest import Manifest, Plan, SourceIdentity
from schemas.records import Abandoned, Dismissal

State = Literal[
    "pending", "held", "repeated", "unclean", "committed", "abandoned", "dismissed", "replaced", "gone", "ignored"
]
WAITING = ("pending", "held", "repeated", "unclean")


class ExtractState(NamedTuple):
    """One content of one name, its last run, and the `other` run whose content it repeats or changes."""

    key: str
    state: State
    sha256: str = ""  # "" where nothing known has that size, so that it need not be read
    run: str = ""
    other: str = ""
    entry: Entry | None = None  # None where the name has other content now, or is gone
    dismissals: tuple[Dismissal, ...] = ()
    waits: str = ""  # what it still lacks to be taken


class _Run(NamedTuple):
    plan: Plan
    end: Manifest | Abandoned | None


def pending(context: IssuerContext, *, remember: bool = False) -> list[Entry]:
    """Return the extracts that need a run and can be taken, oldest first; CardInNameError."""
    return [entry for entry, waits in unsubmitted(context, remember=remember) if not waits]


def unsubmitted(context: IssuerContext, *, remember: bool = False) -> list[tuple[Entry, str]]:
    """Return the extracts that match [source] pattern and still need a run, oldest first, with what each waits for.

    One whose last run was abandoned needs none until an operator asks for a new run.
    """
    found = extract_states(context, remember=remember)
    waiting = [(one.entry, one.waits) for one in found if one.entry is not None and one.state in WAITING]
    return sorted(waiting, key=lambda one: (one[0].modified, one[0].key))


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
    source, now = context.issuer.source, context.adapters.now()
    found, present, files = [], {}, {entry.key: entry for entry in store.keys(extracts(issuer))}
    for entry in files.values():
        if not is_extract(checked_name(entry.key.removeprefix(extracts(issuer))), source):
            found.append(ExtractState(entry.key, "ignored", entry=entry))
            continue
        sha256 = versions.get((entry.key, entry.size, entry.version), "")
        state: State = "pending"
        try:  # what has a plan was judged; whoever reads it again asks for its verdict again
            waits = missing(entry, files, source, now) if sha256 else waits_for(context, entry, files)
        except VerdictRefusedError as error:
            state, waits = "unclean", error.message.format(**error.fields)
        if not sha256 and entry.size in sizes:
            sha256 = _content(context, entry, remember=remember)
        present[entry.key] = sha256
        one = ExtractState(entry.key, state, sha256, "", "", entry, chains.get(sha256, ()), waits)
        found.append(_state(context, runs, one))
    for key, sha256 in {(plan.source.key, plan.source.sha256) for plan in whole}:
        if present.get(key) != sha256:
            state = "replaced" if key in present else "gone"
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
    except (ObjectChangedError, ObjectMissingError, VerdictAwaitedError, VerdictRefusedError):
        return ""
    if remember:
        store.create(key, canonical(found))
    return found.sha256


def _state(context: IssuerContext, runs: Mapping[str, Sequence[_Run]], one: ExtractState) -> ExtractState:
    """Return what became of one content of one name."""
    alike, key, entry = runs.get(one.sha256, ()), one.key, one.entry
    if entry is not None and context.issuer.full_portfolio:  # its bytes may be the same on another date
        day, dated = None if one.waits else business_date(context, entry), date_in_name(key)
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
