"""Fix what a run is of before any work: digest the extract, find the run it already has, or write a new plan."""

from __future__ import annotations

import hashlib
from datetime import date
from typing import NamedTuple

from flows.core.errors import ExtractError, OperatorError
from flows.core.names import RunId, RunKeys, extracts
from flows.core.planning import business_date, canonical, differences, digest, row_settings
from flows.core.ports import Entry, Store
from flows.steps.edges import IssuerEdges, write_once
from flows.steps.runs import plans
from schemas.manifest import RECIPE, Plan, SourceIdentity

DIGEST_BLOCK = 1 << 22


class ExtractNotFoundError(OperatorError):
    """The named extract does not lie where extracts lie."""

    says = "No extract {0} under {1}. There: {2}."
    then = "Name one of those, or wait for the issuer's drop."

    def __init__(self, name: str, prefix: str, there: str) -> None:
        super().__init__(name, prefix, there)


class DuplicateExtractError(ExtractError):
    """The same bytes were already submitted under another name."""

    says = "{0} has the same bytes as {1}, which is run {2}. Nothing was submitted."
    then = "Ask the issuer for the right extract; to send it all again on purpose: --new-run REASON."

    def __init__(self, extract: str, other: str, run: str) -> None:
        super().__init__(extract, other, run)


class SettingsChangedError(OperatorError):
    """A rerun with settings that would give other chunks."""

    says = "Run {0} was planned with other settings; changed since: {1}."
    then = "Put them back to finish or repeat that run, or make a new run of the extract: --new-run REASON."

    def __init__(self, run: str, changed: str) -> None:
        super().__init__(run, changed)


class Planned(NamedTuple):
    """A plan, whether a run of this extract already had it, and what is worth saying aloud."""

    plan: Plan
    taken_over: bool
    remarks: tuple[str, ...] = ()


def find_extract(edges: IssuerEdges, name: str) -> Entry:
    """Return the extract of that name (file name or key below the issuer's extracts)."""
    prefix = extracts(edges.issuer.issuer)
    there = list(edges.edges.store.keys(prefix))
    for entry in there:
        if entry.key in (name, prefix + name):
            return entry
    newest = sorted(there, key=lambda entry: entry.modified)[-3:]
    listed = ", ".join(entry.key.removeprefix(prefix) for entry in newest) or "nothing"
    raise ExtractNotFoundError(name, prefix, listed)


def identify(store: Store, entry: Entry) -> SourceIdentity:
    """Read the extract once, pinned, for its SHA-256."""
    running = hashlib.sha256()
    size = 0
    with store.open(entry.key, entry) as source:
        while block := source.read(DIGEST_BLOCK):
            running.update(block)
            size += len(block)
    return SourceIdentity(key=entry.key, version=entry.version, size=size, sha256=running.hexdigest())


def make_plan(edges: IssuerEdges, entry: Entry, day: date | None, new_run: str = "") -> Planned:
    """Write the plan of an extract's run, or take over the one it has.

    The as-of date comes from the plan where there is one, so that a rerun after midnight gives the same rows.
    """
    store, issuer = edges.edges.store, edges.issuer
    source = identify(store, entry)
    known = list(plans(store, issuer.issuer))
    mine = [plan for plan in known if plan.source.sha256 == source.sha256]
    settings = row_settings(issuer, edges.header)
    if mine and not new_run:
        return _take_over(edges, source, mine[-1], settings)
    as_of = day or business_date(entry.key, entry.modified, issuer.time_zone)
    same_day = [plan for plan in mine if plan.as_of == as_of]
    run = RunId(issuer.issuer, as_of, source.sha256[:8], len(same_day) + 1)
    plan = Plan(
        run=str(run),
        source=source,
        as_of=as_of,
        settings_sha256=digest(canonical(settings)),
        settings=settings,
        recipe=RECIPE,
        recipients=issuer.portal.fingerprints,
        reason=new_run,
    )
    write_once(store, RunKeys(run).plan, canonical(plan))
    before = [old.run for old in known if old.source.key == source.key and old.source.sha256 != source.sha256]
    remarks = (f"{source.key} had other content before, in run {', '.join(before)}",) if before else ()
    return Planned(plan, taken_over=False, remarks=remarks)


def _take_over(edges: IssuerEdges, source: SourceIdentity, plan: Plan, settings: dict[str, object]) -> Planned:
    if plan.source.key != source.key:
        raise DuplicateExtractError(source.key, plan.source.key, plan.run)
    changed = differences(plan.settings, settings)
    if plan.recipe != RECIPE:
        changed.append("recipe (another version of cardlink)")
    if plan.recipients != edges.issuer.portal.fingerprints:
        changed.append("portal.fingerprints")
    if changed:
        raise SettingsChangedError(plan.run, ", ".join(changed))
    return Planned(plan.model_copy(update={"source": source}), taken_over=True)
