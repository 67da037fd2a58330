"""Fix what a run is of before any work: digest the extract, find the run it already has, or write a new plan."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date
from fnmatch import fnmatchcase
from itertools import count
from typing import NamedTuple

from pydantic import ValidationError

from flows.errors import ExtractError, OperatorError
from flows.extracts.errors import checked_name
from flows.redaction import redact
from flows.runs.context import IssuerContext
from flows.runs.documents import finished, has_manifest, keys_of, plans, read_end, read_plan
from flows.runs.identity import business_date, canonical, differences, digest, row_settings
from flows.runs.keys import RunId, extracts, submissions
from flows.runs.store import ConflictError, Entry, ObjectMissingError, Store, StoreBusyError, prefetch, read, write_once
from schemas.manifest import RECIPE, Document, Manifest, Plan, Selection, SourceIdentity
from schemas.records import Abandoned

PIECE = 1 << 22  # bytes read at a time
CONTESTS = 16  # twins that ask for a run of one extract at the same moment


class ExtractNotFoundError(OperatorError):
    """There is no extract of that name."""

    message = "No extract {name} under {prefix}. Available: {available}."
    next_step = "Name one of those, or wait for the issuer's delivery."


class DuplicateExtractError(ExtractError):
    """The same bytes were already submitted under another name."""

    message = "{extract} has the same bytes as {other}, which is run {run}. Nothing was submitted."
    next_step = "Ask the issuer for the right extract; to send all of it again on purpose: --new-run REASON."


class SettingsChangedError(OperatorError):
    """A rerun with settings that would give other chunks."""

    message = "Run {run} was planned with other settings; changed since: {changed}."
    next_step = "Restore them to finish or repeat that run, or make a new run of the extract: --new-run REASON."


class Submission(Document):
    """One link of the chain that says which runs an extract was given: the run, why it is a new one, and its rows."""

    run: str
    reason: str = ""
    selection: str = ""  # digest of the rows picked; "" for all of them


class RunInputs(NamedTuple):
    """What a run is to be of, beside the extract's bytes."""

    as_of: date
    new_run: str = ""
    selection: Selection | None = None
    known: str = ""

    @property
    def rows(self) -> str:
        """The digest of the rows picked, "" for all of them."""
        return self.selection.sha256 if self.selection else ""


class Planned(NamedTuple):
    """A plan, whether a run of this extract already had it, and what is worth saying aloud."""

    plan: Plan
    taken_over: bool
    remarks: tuple[str, ...] = ()


def find_extract(context: IssuerContext, name: str) -> Entry:
    """Return the extract of that name (file name or key below the issuer's extracts)."""
    prefix = extracts(context.issuer.issuer)
    there = list(context.adapters.store.keys(prefix))
    checked_name(name)
    for entry in there:
        if entry.key in (name, prefix + name):
            return entry
    newest = sorted(there, key=lambda entry: entry.modified)[-3:]
    listed = ", ".join(redact(entry.key.removeprefix(prefix)) for entry in newest) or "nothing"
    raise ExtractNotFoundError(name=name, prefix=prefix, available=listed)


def identify(store: Store, entry: Entry) -> SourceIdentity:
    """Read the extract once, pinned, for its SHA-256 and its size in bytes and lines."""
    running, size, newlines = hashlib.sha256(), 0, 0
    with store.open(entry.key, entry) as source, closing(prefetch(iter(lambda: source.read(PIECE), b""))) as pieces:
        for piece in pieces:
            running.update(piece)
            size += len(piece)
            newlines += piece.count(b"\n")
    return SourceIdentity(
        key=entry.key, version=entry.version, size=size, sha256=running.hexdigest(), newlines=newlines
    )


def make_plan(context: IssuerContext, entry: Entry, day: date | None, new_run: str = "", known: str = "") -> Planned:
    """Write the plan of an extract's run, or take over the one it has.

    The run is found by the extract's digest and read by its key, since a listing may be late. The as-of date comes
    from the plan where there is one, so that a rerun after midnight gives the same rows. The same reason for a new
    run is the same new run: repeating a command never sends an extract twice. `known` is the digest of what other
    runs say of the issuer's cards: a plan that was made before they said so, and never committed, is made anew.
    Raises DuplicateExtractError, SettingsChangedError, AbandonedError.
    """
    source = identify(context.adapters.store, entry)
    asked = RunInputs(day or _business_date(context, entry), new_run, known=known)
    plan = _plan_of(context, source, asked, _submission(context, source, asked))
    stored = read_plan(context.adapters.store, keys_of(plan.run))
    if stored is None:
        write_once(context.adapters.store, keys_of(plan.run).plan, canonical(plan))
        return Planned(plan, taken_over=False, remarks=_remarks(context, source))
    finished(context.adapters.store, keys_of(plan.run))  # AbandonedError, before settings are told to be put back
    _compare(plan, stored, day)
    return Planned(stored.model_copy(update={"source": source}), taken_over=True)


def plan_selection(context: IssuerContext, source: SourceIdentity, today: date, selection: Selection) -> Plan:
    """Write the plan of a run of these rows, or take over one of the same rows that was never committed."""
    asked = RunInputs(today, selection.reason, selection)
    plan = _plan_of(context, source, asked, _submission(context, source, asked))
    stored = read_plan(context.adapters.store, keys_of(plan.run))
    if stored is not None:
        return stored
    write_once(context.adapters.store, keys_of(plan.run).plan, canonical(plan))
    return plan


def _business_date(context: IssuerContext, entry: Entry) -> date:
    return business_date(entry.key, entry.modified, context.issuer.time_zone)


def expected_run(context: IssuerContext, source: SourceIdentity, day: date, known: str = "") -> str:
    """Return the run that a submit of an extract would make or finish; nothing is written."""
    chain = list(_chain(context.adapters.store, submissions(context.issuer.issuer, source.sha256)))
    asked = RunInputs(day, known=known)
    return (_existing_run(context, chain, asked) or _new_submission(context, source, chain, asked)).run


def _submission(context: IssuerContext, source: SourceIdentity, asked: RunInputs) -> Submission:
    """Return the extract's last run of these rows, or a new one: its first, or one that is asked for anew."""
    store, prefix = context.adapters.store, submissions(context.issuer.issuer, source.sha256)
    for _ in range(CONTESTS):
        chain = list(_chain(store, prefix))
        standing = _existing_run(context, chain, asked)
        if standing is not None:
            return standing
        fresh = _new_submission(context, source, chain, asked)
        if store.create(_link(prefix, len(chain) + 1), canonical(fresh)):
            return fresh
    raise StoreBusyError(place=prefix, code="contested")


def _existing_run(context: IssuerContext, chain: Sequence[Submission], asked: RunInputs) -> Submission | None:
    """Return the run that is asked for, where the extract has one: one that is committed before one that is not."""
    alike = _runs_of_same_rows(context, chain, asked)
    if not alike or asked.new_run not in ("", alike[-1].reason):
        return None
    if asked.selection is None:
        same = (one for one in alike if one.reason == alike[-1].reason)
        done = next((one for one in same if has_manifest(context.adapters.store, keys_of(one.run))), None)
        if done is not None:
            return done
    return None if _outdated(context, alike[-1], asked) else alike[-1]


def _runs_of_same_rows(context: IssuerContext, chain: Sequence[Submission], asked: RunInputs) -> list[Submission]:
    """Return the runs of the same rows; a portfolio to which nothing happened has the same bytes on another night."""
    alike = [one for one in chain if one.selection == asked.rows]
    if not context.issuer.full_portfolio or asked.selection is not None:
        return alike
    return [one for one in alike if keys_of(one.run).run.day == asked.as_of]


def _new_submission(
    context: IssuerContext, source: SourceIdentity, chain: Sequence[Submission], asked: RunInputs
) -> Submission:
    alike = _runs_of_same_rows(context, chain, asked)
    days = [keys_of(one.run).run.day for one in chain]
    run = RunId(context.issuer.issuer, asked.as_of, source.sha256[:8], days.count(asked.as_of) + 1)
    reason = asked.new_run or (alike[-1].reason if alike else "")
    return Submission(run=str(run), reason=reason, selection=asked.rows)


def _outdated(context: IssuerContext, submission: Submission, asked: RunInputs) -> bool:
    """Tell whether a run cannot be the one asked for: picked rows are sent once a run, and others may have gone out.

    Whole extracts are sent once, so their committed run stands.
    """
    store, keys = context.adapters.store, keys_of(submission.run)
    plan, done = read_plan(store, keys), has_manifest(store, keys)
    if asked.selection is None:
        return plan is not None and not done and plan.known != asked.known
    return done or (plan is not None and plan.settings != row_settings(context.issuer, context.header))


def _chain(store: Store, prefix: str) -> Iterator[Submission]:
    for number in count(1):
        try:
            content = read(store, _link(prefix, number))
        except ObjectMissingError:
            return
        try:
            yield Submission.model_validate_json(content)
        except ValidationError:
            break
    raise ConflictError(key=_link(prefix, number))


def _link(prefix: str, number: int) -> str:
    return f"{prefix}{number:03d}.json"


def _plan_of(context: IssuerContext, source: SourceIdentity, asked: RunInputs, submission: Submission) -> Plan:
    settings = row_settings(context.issuer, context.header)
    return Plan(
        run=submission.run,
        source=source,
        as_of=keys_of(submission.run).run.day,
        settings_sha256=digest(canonical(settings)),
        settings=settings,
        recipe=RECIPE,
        recipients=context.issuer.portal.fingerprints,
        reason=submission.reason,
        selection=asked.selection,
        known=asked.known,
    )


def _compare(plan: Plan, stored: Plan, day: date | None) -> None:
    """Refuse a rerun that would not be of the stored plan, naming what differs."""
    if stored.source.key != plan.source.key:
        raise DuplicateExtractError(extract=plan.source.key, other=stored.source.key, run=stored.run)
    changed = differences(stored.settings, plan.settings)
    if stored.recipe != plan.recipe:
        changed.append("recipe (another version of cardlink)")
    if stored.cut is not None:
        changed.append("[scale] (it was to be read in parts, which cardlink no longer does)")
    if stored.recipients != plan.recipients:
        changed.append("portal.fingerprints")
    if day not in (None, stored.as_of):
        changed.append("the business date")
    if changed:
        raise SettingsChangedError(run=stored.run, changed=", ".join(changed))


def _remarks(context: IssuerContext, source: SourceIdentity) -> tuple[str, ...]:
    """Say aloud that a file of this name had another content before."""
    known = plans(context.adapters.store, context.issuer.issuer)
    before = [old.run for old in known if old.source.key == source.key and old.source.sha256 != source.sha256]
    return (f"{source.key} had other content before, in run {', '.join(before)}",) if before else ()


def pending(context: IssuerContext) -> list[Entry]:
    """Return the extracts that match [source] pattern and still need a run, oldest first; CardInNameError.

    One whose last run was abandoned needs none: an operator decided so, and asks for a new run by name.
    """
    store, issuer = context.adapters.store, context.issuer
    prefix = extracts(issuer.issuer)
    there = [
        entry
        for entry in store.keys(prefix)
        if fnmatchcase(checked_name(entry.key.removeprefix(prefix)), issuer.source.pattern)
    ]
    ends: dict[tuple[str, int, str], list[Manifest | Abandoned | None]] = {}
    for plan in plans(store, issuer.issuer):
        if plan.selection is None:
            source = (plan.source.key, plan.source.size, plan.source.version)
            ends.setdefault(source, []).append(read_end(store, keys_of(plan.run)))
    done = {source for source, found in ends.items() if found[-1] or any(isinstance(end, Manifest) for end in found)}
    fresh = [entry for entry in there if (entry.key, entry.size, entry.version) not in done]
    return sorted(fresh, key=lambda entry: (entry.modified, entry.key))
