"""Plan a run before any work: digest the extract, find the run it already has, or write a new
plan.
"""

import hashlib
import shlex
from collections.abc import Sequence
from contextlib import closing
from datetime import date
from typing import NamedTuple

from flows.errors import ExtractError, OperatorError
from flows.extracts.delivery import ExtractWaitsError, companions, waits_for
from flows.extracts.errors import checked_name
from flows.redaction import redact
from flows.runs.chains import CONTESTS, records
from flows.runs.context import IssuerContext
from flows.runs.documents import finished, has_manifest, plans, read_end, read_plan
from flows.runs.events import REPLACED, record_event
from flows.runs.identity import canonical, differences, digest, row_settings
from flows.runs.keys import RunId, dismissed, extracts, keys_of, link, submissions
from flows.runs.store import Entry, Store, StoreBusyError, write_once
from flows.runs.threads import prefetch
from flows.runs.versions import refuse_newer
from schemas.manifest import Document, Manifest, Plan, Selection, SourceIdentity
from schemas.records import Dismissal
from schemas.rules import RECIPE

PIECE = 1 << 22  # bytes read at a time
DIGITS = 3  # of a link in the chain of an extract's runs


class ExtractNotFoundError(OperatorError):
    """There is no extract of that name."""

    message = "No extract {name} under {prefix}. Available: {available}."
    next_step = "Name one of those, or wait for the issuer's delivery."


class DuplicateExtractError(ExtractError):
    """The same bytes were already submitted under another name."""

    message = "{extract} has the same bytes as {other}, which is run {run}. Nothing was submitted."
    next_step = "Ask the issuer for the right extract, and dismiss this one: `{dismiss}`."


class DismissedError(OperatorError):
    """An operator decided that the extract shall not be sent."""

    message = "{extract} was dismissed by {actor} on {date}: {reason}. Nothing was submitted."
    next_step = "To take that back: `{undo}`."


class SettingsChangedError(OperatorError):
    """The chunks of a run were made with other settings."""

    message = "Run {run} was planned with other settings; changed since: {changed}."
    next_step = "Restore them, or cancel its chunks that wait and make a new run of the extract: --new-run REASON."


class Submission(Document):
    """One link of the chain of an extract's runs: the run, the reason for a new one, and its
    rows.
    """

    run: str
    reason: str = ""
    selection: str = ""  # digest of the selected rows; "" for all of them


class RunInputs(NamedTuple):
    """What identifies a run besides the extract's bytes."""

    as_of: date
    new_run: str = ""
    selection: Selection | None = None
    known: str = ""  # digest of what other runs know of the issuer's cards
    dated: bool = False  # an operator gave the business date

    @property
    def rows(self) -> str:
        """The digest of the selected rows, "" for all of them."""
        return self.selection.sha256 if self.selection else ""


def find_extract(context: IssuerContext, name: str) -> Entry:
    """Return the extract of that name (or key below the extracts); ExtractWaitsError,
    VerdictRefusedError.
    """
    prefix = extracts(context.issuer.issuer)
    files = {entry.key: entry for entry in context.adapters.store.keys(prefix)}
    listed = [
        entry for key, entry in files.items() if not key.endswith(companions(context.issuer.source))
    ]
    checked_name(name)
    for entry in listed:
        if entry.key in (name, prefix + name):
            if waits := waits_for(context, entry, files):
                raise ExtractWaitsError(extract=entry.key, missing=waits)
            return entry
    newest = sorted(listed, key=lambda entry: entry.modified)[-3:]
    available = ", ".join(redact(entry.key.removeprefix(prefix)) for entry in newest) or "nothing"
    raise ExtractNotFoundError(name=name, prefix=prefix, available=available)


def identify(store: Store, entry: Entry) -> SourceIdentity:
    """Read the extract once, pinned, for its SHA-256 and its size in bytes and lines."""
    hasher, size, newlines = hashlib.sha256(), 0, 0
    with (
        store.open(entry.key, entry) as source,
        closing(prefetch(iter(lambda: source.read(PIECE), b""))) as pieces,
    ):
        for piece in pieces:
            hasher.update(piece)
            size += len(piece)
            newlines += piece.count(b"\n")
    return SourceIdentity(
        key=entry.key,
        version=entry.version,
        size=size,
        sha256=hasher.hexdigest(),
        newlines=newlines,
    )


def make_plan(
    context: IssuerContext, source: SourceIdentity, asked: RunInputs
) -> tuple[Plan, tuple[str, ...]]:
    """Write the plan of an extract's run, or take over the one it has; with remarks for the
    operator.

    The run is found by the extract's digest, by key, since a listing may be late. Its plan keeps
    the business date, so that a rerun after midnight gives the same rows. The same reason for a new
    run is the same new run: repeating a command sends nothing twice. DuplicateExtractError,
    DismissedError, AbandonedError.
    """
    expected_run(context, source, asked)
    plan, stored = _planned(context, source, asked)
    if stored is None:
        return plan, _replaced(context, plan, asked)
    changed = (
        _changes(context, stored, asked)
        if finished(context.adapters.store, keys_of(plan.run))
        else []
    )
    remarks = (f"changed since that run: {', '.join(changed)}",) if changed else ()
    return stored.model_copy(update={"source": source}), remarks


def plan_selection(
    context: IssuerContext, source: SourceIdentity, today: date, selection: Selection
) -> Plan:
    """Write the plan of a run of these rows, or take over one of the same rows that was never
    committed.
    """
    plan, stored = _planned(context, source, RunInputs(today, selection.reason, selection))
    return stored or plan


def _planned(
    context: IssuerContext, source: SourceIdentity, asked: RunInputs
) -> tuple[Plan, Plan | None]:
    """Return the plan as it would be now, and the one that its run has; where it has none, write
    the first.
    """
    submission, settings = (
        _submission(context, source, asked),
        row_settings(context.issuer, context.header),
    )
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


def expected_run(context: IssuerContext, source: SourceIdentity, asked: RunInputs) -> str:
    """Return the run that a submit of an extract would make, finish or find committed; nothing is
    written.

    Raises DismissedError, and DuplicateExtractError where it is the run of another extract.
    """
    store, prefix = context.adapters.store, submissions(context.issuer.issuer, source.sha256)
    chain = list(records(store, prefix, Submission, digits=DIGITS))
    run = _pick(context, source, chain, asked).run
    stored = read_plan(store, keys_of(run)) if chain else None
    ended = stored is not None and has_manifest(store, keys_of(run))
    if stored is not None and ended and stored.source.key == source.key:
        return run
    if found := dismissal(
        context, source.key, dismissals(store, context.issuer.issuer, source.sha256)
    ):
        undo, day = dismiss_line(source.key, "--undo"), f"{found.at:%Y-%m-%d}"
        raise DismissedError(
            extract=source.key, actor=found.by, date=day, reason=found.reason, undo=undo
        )
    if stored is not None and ended:
        other, line = stored.source.key, dismiss_line(source.key)
        raise DuplicateExtractError(extract=source.key, other=other, run=run, dismiss=line)
    return run


def dismissals(store: Store, issuer: str, sha256: str) -> tuple[Dismissal, ...]:
    """Return the chain of dismissals of an extract's content."""
    return tuple(records(store, f"{dismissed(issuer)}{sha256}/", Dismissal))


def dismissal(context: IssuerContext, key: str, chain: Sequence[Dismissal]) -> Dismissal | None:
    """Return the dismissal that counts for an extract; a portfolio may repeat its bytes, so only
    one of that name.
    """
    mine = [one for one in chain if one.key == key or not context.issuer.full_portfolio]
    return mine[-1] if mine and mine[-1].what == "dismissed" else None


def submit_line(key: str, *options: str) -> str:
    """Return the command that submits an extract, ready to paste into a shell."""
    issuer, _, name = key.partition("/extracts/")
    return shlex.join(["cardlink", "submit", issuer, "--extract", name, *options])


def dismiss_line(key: str, *options: str) -> str:
    """Return the command that dismisses an extract, ready to paste into a shell."""
    issuer, _, name = key.partition("/extracts/")
    return shlex.join(["cardlink", "dismiss", issuer, name, *options, "--reason", "WHY"])


def _submission(context: IssuerContext, source: SourceIdentity, asked: RunInputs) -> Submission:
    """Return the extract's last run of these rows, or add a new one."""
    store, prefix = context.adapters.store, submissions(context.issuer.issuer, source.sha256)
    for _ in range(CONTESTS):
        chain = list(records(store, prefix, Submission, digits=DIGITS))
        found = _pick(context, source, chain, asked)
        if found in chain or store.create(link(prefix, len(chain) + 1, DIGITS), canonical(found)):
            return found
    raise StoreBusyError(place=prefix, code="contested")


def _pick(
    context: IssuerContext, source: SourceIdentity, chain: Sequence[Submission], asked: RunInputs
) -> Submission:
    """Return the run that is asked for, one of the chain where that has it, else a new one."""
    alike = [one for one in chain if one.selection == asked.rows]
    # it has the same bytes on another date, if unchanged
    if context.issuer.full_portfolio and not asked.selection:
        alike = [one for one in alike if keys_of(one.run).run.day == asked.as_of]
    repeated = bool(alike) and asked.new_run in ("", alike[-1].reason)
    if repeated and (found := _existing_run(context, source, alike, asked)):
        return found
    days = [keys_of(one.run).run.day for one in chain]
    day = (
        keys_of(alike[-1].run).run.day
        if repeated and not (asked.dated or asked.selection)
        else asked.as_of
    )
    run = RunId(context.issuer.issuer, day, source.sha256[:8], days.count(day) + 1)
    reason = asked.new_run or (alike[-1].reason if alike else "")
    return Submission(run=str(run), reason=reason, selection=asked.rows)


def _existing_run(
    context: IssuerContext, source: SourceIdentity, alike: Sequence[Submission], asked: RunInputs
) -> Submission | None:
    """Return which of the runs of the same rows is asked for: a committed one rather than an open
    one.
    """
    same = [one for one in reversed(alike) if one.reason == alike[-1].reason]
    ends = {one.run: read_end(context.adapters.store, keys_of(one.run)) for one in same}
    # the same rows may be sent again
    if ends[same[0].run] is not None and asked.selection is not None:
        return None
    committed = next((one for one in reversed(same) if isinstance(ends[one.run], Manifest)), None)
    if asked.selection is None and (committed is not None or ends[same[0].run] is not None):
        return committed or same[0]
    return next(
        (one for one in same if ends[one.run] is None and _fits(context, source, one, asked)), None
    )


def _fits(
    context: IssuerContext, source: SourceIdentity, open_run: Submission, asked: RunInputs
) -> bool:
    """Return whether a run that was never committed can be finished as it was planned, if it
    was.
    """
    plan = read_plan(context.adapters.store, keys := keys_of(open_run.run))
    if plan is None:
        return not asked.dated or keys.run.day == asked.as_of
    refuse_newer(plan, keys.plan)
    same = (plan.known, plan.source.key) == (asked.known, source.key)
    return same and not _changes(context, plan, asked)


def _changes(context: IssuerContext, stored: Plan, asked: RunInputs) -> list[str]:
    """Return the names of what a stored plan has otherwise than a plan would have it now."""
    changed = differences(stored.settings, row_settings(context.issuer, context.header))
    now = {
        "recipe (another version of cardlink)": stored.recipe == RECIPE,
        "[scale] (it was to be read in parts, which cardlink no longer does)": stored.cut is None,
        "portal.fingerprints": stored.recipients == context.issuer.portal.fingerprints,
        "the business date": not asked.dated or stored.as_of == asked.as_of,
    }
    return changed + [name for name, same in now.items() if not same]


def _replaced(context: IssuerContext, plan: Plan, asked: RunInputs) -> tuple[str, ...]:
    """Record which runs a new plan replaces; return what an operator should know of earlier runs of
    its name.
    """
    store, source = context.adapters.store, plan.source
    named = [
        old
        for old in plans(store, context.issuer.issuer)
        if old.source.key == source.key and not old.selection
    ]
    before = [old.run for old in named if old.source.sha256 != source.sha256]
    remarks = [f"{source.key} had other content before, in run {before[-1]}"] if before else []
    for old in named:
        keys = keys_of(old.run)
        if (
            old.run != plan.run
            and old.source.sha256 == source.sha256
            and not has_manifest(store, keys)
        ):
            changed = _changes(context, old, asked) or ["what other runs have sent"]
            record_event(context.adapters, keys, REPLACED, run=plan.run)
            remarks.append(
                f"run {old.run} was never committed: planned anew; changed since: {', '.join(changed)}"
            )
    return tuple(remarks)
