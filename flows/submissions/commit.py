"""What commits a run, and how commits that died half-way are finished.

**A run is committed when its manifest exists, and not before.** Only then are its chunks
offered for upload, and only then do results and reports count it. The manifest is the second of two
create-only writes of the same bytes:

1. `commits/<number>.json` registers the run (`flows/runs/commits.py`). It gives the run its place
   in the order of commits, and from here on its cards count as sent. A run that is planned after it
   finds them awaiting; a run that was planned before it and sends one of them is not registered
   (OvertakenError; where `[resend] seen_before = "send"`, only a run of the same extract is
   refused). Nothing of the run can be uploaded yet.
2. `runs/<run>/manifest.json` is the commit. Abandoning a run creates the same key with the record
   of that; `StoredRun.manifest` tells the two apart.

A run that is registered and has no manifest died between the two. It is not committed yet, but
decided: the next command that sends rows of the issuer writes its manifest before it plans
anything, and says so; it also writes the event that a manifest lacks. Only an operator who abandons
the run prevents that. Abandoning creates the same key, so exactly one of the two is ever written.

Before a run is registered, nothing is decided: the same command again is the recovery
(`flows/submissions/begun.py` has what becomes of those that nobody repeats).
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial

from flows.errors import CardlinkError
from flows.extracts.joined.pair import stored_entry
from flows.installed import installed_build
from flows.reports.lists import write_unsent
from flows.runs.claim import holder_of
from flows.runs.commits import recently_registered, register_run
from flows.runs.context import IssuerContext
from flows.runs.errors import AbandonedError, LedgerPurgedError
from flows.runs.events import COMMITTED, DROP_TIME, record_event
from flows.runs.identity import canonical
from flows.runs.keys import keys_of
from flows.runs.store import ConflictError, Entry, is_stored, write_once
from flows.runs.stored_run import StoredRun
from flows.runs.threads import concurrently
from flows.submissions.build import Job
from schemas.manifest import Manifest

MANIFEST = "manifest"  # a part of a commit; the other is its event


def commit_run(context: IssuerContext, job: Job, manifest: Manifest) -> bool:
    """Commit a run that was built: register it, then write its manifest.

    False where a concurrent process wrote the manifest. Raises OvertakenError where a run that was
    registered since this one was planned sends any of its cards, AbandonedError where an operator
    abandoned it first.
    """
    register_run(context.adapters, context.issuer.issuer, manifest, job.since, guarded=job.guarded)
    return _write_manifest(context, manifest, job.entry)


def commit_in_memory(dry: IssuerContext, job: Job, manifest: Manifest) -> None:
    """Commit a run in the memory of a dry run, so that what comes after it meets it there."""
    store = dry.adapters.store
    register_run(dry.adapters, dry.issuer.issuer, manifest, job.since, guarded=job.guarded)
    write_once(store, keys_of(manifest.run).manifest, canonical(manifest))


def finish_commits(context: IssuerContext) -> tuple[str, ...]:
    """Finish the commits that died half-way, unless they were abandoned; return a remark of each.

    That is a run that is registered and has no manifest, or whose event or report is missing.
    """
    manifests = list(recently_registered(context.adapters.store, context.issuer.issuer))
    lacking = concurrently(partial(_lacking, context), manifests, context.adapters.connections)
    remarks: list[str] = []
    for manifest, part in zip(manifests, lacking, strict=True):
        with suppress(AbandonedError, LedgerPurgedError):  # an operator or the retention was first
            remarks += _finished(context, manifest, part)
    return tuple(remarks)


def _lacking(context: IssuerContext, manifest: Manifest) -> str:
    """Return which part of its commit a registered run lacks, "" where none or it has ended."""
    store = context.adapters.store
    run = StoredRun.by_id(context.adapters, manifest.run)
    if not run.is_ended:
        return MANIFEST
    if run.has_event(COMMITTED) or run.manifest is None:
        return ""
    is_at_work = holder_of(store, run.keys.claims, context.adapters.now()) is not None
    return "" if is_at_work else COMMITTED


def _finished(context: IssuerContext, manifest: Manifest, part: str) -> Iterator[str]:
    """Write what a registered run lacks, and yield what that was."""
    run = StoredRun.by_id(context.adapters, manifest.run)
    extract = _extract_as_read(context, manifest)
    match part:
        case "manifest":
            _write_manifest(context, manifest, extract)
            yield f"the commit of run {run.id} had been begun, and is finished now"
        case "committed":
            with run.store.open(run.keys.manifest) as stored:
                _record_commit(context, manifest, extract, stored.entry.modified)
            yield f"run {run.id} is committed; its history says so now"
    _report_if_nothing_sent(context, manifest)


def _extract_as_read(context: IssuerContext, manifest: Manifest) -> Entry | None:
    """Return the extract of a run as it is stored, None where it is gone or was written again."""
    with suppress(CardlinkError):
        entry = stored_entry(context.adapters.store, manifest.source)
        if entry.version == manifest.source.version:
            return entry
    return None


def _write_manifest(context: IssuerContext, manifest: Manifest, extract: Entry | None) -> bool:
    """Write the manifest of a run that is registered, and what goes with it.

    False where a concurrent process wrote it; AbandonedError where an operator was first.
    """
    adapters = context.adapters
    run = StoredRun.by_id(adapters, manifest.run)
    # before the manifest: after it no command comes back to this run, so after a crash in between
    # the issuer would have its rejects only with the first results
    if manifest.counts.submitted:
        write_unsent(run, manifest, portfolio=context.issuer.full_portfolio)
    try:
        is_first = write_once(adapters.store, run.keys.manifest, canonical(manifest))
    except ConflictError:
        run.finished()  # abandoned: says so
        raise
    if is_first:
        _record_commit(context, manifest, extract)
    _report_if_nothing_sent(context, manifest)
    return is_first


def _record_commit(
    context: IssuerContext, manifest: Manifest, extract: Entry | None, when: datetime | None = None
) -> None:
    """Record when a run was committed (by default now), and when its extract had been dropped."""
    keys = keys_of(manifest.run)
    dropped = {DROP_TIME: extract.modified.isoformat()} if extract else {}
    rows = manifest.counts.submitted
    kind = (COMMITTED, "", when)
    record_event(context.adapters, keys, *kind, rows=rows, release=installed_build(), **dropped)


def _report_if_nothing_sent(context: IssuerContext, manifest: Manifest) -> None:
    """Write the report of a run that sent nothing, unless there is one: no result will bring it."""
    store = context.adapters.store
    run = StoredRun.of(context.adapters, manifest)
    report = run.keys.report("summary.json")
    if manifest.counts.submitted or is_stored(store, report):
        return
    # rare, and its page and workbook take 60 ms to import
    from flows.reports.rebuild import rebuild

    rebuild(context, run)
