"""Plan a run before any work: digest the extract, find the run it already has, or write a new plan."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing
from datetime import date
from typing import NamedTuple

from flows.errors import ExtractError, OperatorError
from flows.extracts.delivery import ExtractWaitsError, business_date, companions, is_extract, missing
from flows.extracts.errors import checked_name
from flows.redaction import redact
from flows.runs.chains import CONTESTS, records
from flows.runs.context import IssuerContext
from flows.runs.documents import finished, has_manifest, keys_of, plans, read_end, read_plan
from flows.runs.identity import canonical, differences, digest, row_settings
from flows.runs.keys import RunId, extracts, link, submissions
from flows.runs.store import Entry, Store, StoreBusyError, prefetch, write_once
from schemas.manifest import RECIPE, Document, Manifest, Plan, Selection, SourceIdentity
from schemas.records import Abandoned

PIECE = 1 << 22  # bytes read at a time
DIGITS = 3  # of a link in the chain of an extract's runs


class ExtractNotFoundError(OperatorError):
    """There is no extract of that name."""

    message = "No extract {name} under {prefix}. Available: {available}."
    next_step = "Name one of those, or wait for the issuer's delivery."


class DuplicateExtractError(ExtractError):
    """The same bytes were already submitted under another name."""

    message = "{extract} has the same bytes as {other}, which is run {run}. Nothing was submitted."
    next_step = "Ask the issuer for the right extract; to send all of it again on purpose: --new-run REASON."


class SettingsChangedError(OperatorError):
    """A rerun with settings that would make other chunks."""

    message = "Run {run} was planned with other settings; changed since: {changed}."
    next_step = "Restore them to finish or repeat that run, or make a new run of the extract: --new-run REASON."


class Submission(Document):
    """One link of the chain of an extract's runs: the run, the reason for a new one, and its rows."""

    run: str
    reason: str = ""
    selection: str = ""  # digest of the selected rows; "" for all of them


class RunInputs(NamedTuple):
    """What identifies a run besides the extract's bytes."""

    as_of: date
    new_run: str = ""
    selection: Selection | None = None
    known: str = ""

    @property
    def rows(self) -> str:
        """The digest of the selected rows, "" for all of them."""
        return self.selection.sha256 if self.selection else ""


def find_extract(context: IssuerContext, name: str) -> Entry:
    """Return the extract of that name (file name or key below the issuer's extracts); ExtractWaitsError."""
    prefix = extracts(context.issuer.issuer)
    files = {entry.key: entry for entry in context.adapters.store.keys(prefix)}
    listed = [entry for key, entry in files.items() if not key.endswith(companions(context.issuer.source))]
    checked_name(name)
    for entry in listed:
        if entry.key in (name, prefix + name):
            if waits := missing(entry, files, context.issuer.source, context.adapters.now()):
                raise ExtractWaitsError(extract=entry.key, missing=waits)
            return entry
    newest = sorted(listed, key=lambda entry: entry.modified)[-3:]
    available = ", ".join(redact(entry.key.removeprefix(prefix)) for entry in newest) or "nothing"
    raise ExtractNotFoundError(name=name, prefix=prefix, available=available)


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


def make_plan(
    context: IssuerContext, entry: Entry, day: date | None, new_run: str = "", known: str = ""
) -> tuple[Plan, tuple[str, ...]]:
    """Write the plan of an extract's run, or take over the one it has; with remarks for the operator.

    The run is found by the extract's digest and read by its key, since a listing may be late. Its plan keeps the
    business date, so that a rerun after midnight gives the same rows. The same reason for a new run is the same new
    run: repeating a command never sends an extract twice. `known` is the digest of what other runs know of the issuer's
    cards: a plan that was made from less, and never committed, is replaced by a new one.
    Raises DuplicateExtractError, SettingsChangedError, AbandonedError.
    """
    source = identify(context.adapters.store, entry)
    as_of = business_date(context, entry, day)
    plan, stored = _planned(context, source, RunInputs(as_of, new_run, known=known))
    if stored is None:
        return plan, _remarks(context, source)
    finished(context.adapters.store, keys_of(plan.run))  # AbandonedError, rather than a word on settings
    _compare(plan, stored, day)
    return stored.model_copy(update={"source": source}), ()


def plan_selection(context: IssuerContext, source: SourceIdentity, today: date, selection: Selection) -> Plan:
    """Write the plan of a run of these rows, or take over one of the same rows that was never committed."""
    plan, stored = _planned(context, source, RunInputs(today, selection.reason, selection))
    return stored or plan


def _planned(context: IssuerContext, source: SourceIdentity, asked: RunInputs) -> tuple[Plan, Plan | None]:
    """Return the plan as it would be now, and the one that its run has; where it has none, write the first."""
    submission, settings = _submission(context, source, asked), row_settings(context.issuer, context.header)
    keys = keys_of(submission.run)
    plan = Plan(
        run=submission.run,
        source=source,
        as_of=keys.run.day,
        settings_sha256=digest(canonical(settings)),
        settings=settings,
        recipe=RECIPE,
        recipients=context.issuer.portal.fingerprints,
        reason=submission.reason,
        selection=asked.selection,
        known=asked.known,
    )
    stored = read_plan(context.adapters.store, keys)
    if stored is None:
        write_once(context.adapters.store, keys.plan, canonical(plan))
    return plan, stored


def expected_run(context: IssuerContext, source: SourceIdentity, day: date, known: str = "") -> str:
    """Return the run that a submit of an extract would make or finish; nothing is written."""
    prefix, asked = submissions(context.issuer.issuer, source.sha256), RunInputs(day, known=known)
    chain = list(records(context.adapters.store, prefix, Submission, digits=DIGITS))
    return (_existing_run(context, chain, asked) or _new_submission(context, source, chain, asked)).run


def _submission(context: IssuerContext, source: SourceIdentity, asked: RunInputs) -> Submission:
    """Return the extract's last run of these rows, or add a new one."""
    store, prefix = context.adapters.store, submissions(context.issuer.issuer, source.sha256)
    for _ in range(CONTESTS):
        chain = list(records(store, prefix, Submission, digits=DIGITS))
        existing = _existing_run(context, chain, asked)
        if existing is not None:
            return existing
        fresh = _new_submission(context, source, chain, asked)
        if store.create(link(prefix, len(chain) + 1, DIGITS), canonical(fresh)):
            return fresh
    raise StoreBusyError(place=prefix, code="contested")


def _existing_run(context: IssuerContext, chain: Sequence[Submission], asked: RunInputs) -> Submission | None:
    """Return the run that is asked for, where the extract has it: a committed one rather than an open one."""
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
    """Return the runs of the same rows; an unchanged portfolio has the same bytes on another date."""
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
    """Return whether a run cannot be the one asked for.

    A whole extract is sent once, so its committed run always can; selected rows may be sent again by another run.
    """
    store, keys = context.adapters.store, keys_of(submission.run)
    plan, done = read_plan(store, keys), has_manifest(store, keys)
    if asked.selection is None:
        return plan is not None and not done and plan.known != asked.known
    return done or (plan is not None and bool(differences(plan.settings, row_settings(context.issuer, context.header))))


def _compare(plan: Plan, stored: Plan, day: date | None) -> None:
    """Raise where a rerun differs from the stored plan, with the names of what differs."""
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
    """Return a remark where a file of this name had other content before."""
    earlier = plans(context.adapters.store, context.issuer.issuer)
    before = [old.run for old in earlier if old.source.key == source.key and old.source.sha256 != source.sha256]
    return (f"{source.key} had other content before, in run {', '.join(before)}",) if before else ()


def pending(context: IssuerContext) -> list[Entry]:
    """Return the extracts that need a run and can be taken, oldest first; CardInNameError."""
    return [entry for entry, waits in unsubmitted(context) if not waits]


def unsubmitted(context: IssuerContext) -> list[tuple[Entry, str]]:
    """Return the extracts that match [source] pattern and still need a run, oldest first, with what each waits for.

    One whose last run was abandoned needs none until an operator asks for a new run.
    """
    store, issuer = context.adapters.store, context.issuer
    prefix = extracts(issuer.issuer)
    files = {entry.key: entry for entry in store.keys(prefix)}
    matching = [
        entry for key, entry in files.items() if is_extract(checked_name(key.removeprefix(prefix)), issuer.source)
    ]
    ends: dict[tuple[str, int, str], list[Manifest | Abandoned | None]] = {}
    for plan in plans(store, issuer.issuer):
        if plan.selection is None:
            source = (plan.source.key, plan.source.size, plan.source.version)
            ends.setdefault(source, []).append(read_end(store, keys_of(plan.run)))
    done = {source for source, found in ends.items() if found[-1] or any(isinstance(end, Manifest) for end in found)}
    fresh = [entry for entry in matching if (entry.key, entry.size, entry.version) not in done]
    oldest = sorted(fresh, key=lambda entry: (entry.modified, entry.key))
    return [(entry, missing(entry, files, issuer.source, context.adapters.now())) for entry in oldest]
