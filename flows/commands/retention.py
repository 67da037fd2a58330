"""What is kept: purge what [retention] no longer keeps; prove that the rest is as it was
recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import DryRun, Issuer, Reason, RunName
from flows.commands.result import Link, Result, Table
from flows.steps import Step
from flows.wiring import cleaner, effective_settings, wire

with on_first_use():
    from flows.operations import audit
    from flows.operations import evidence as proof_files
    from flows.operations import history as run_history
    from flows.operations import purge as operation
    from flows.runs import keys
    from schemas import records

PURGE = Form("purge", "purge {issuer}", needs=("issuer",), retries=(10, 60), actor="optional")
AUDIT = Form("audit", "audit: {what} {issuer}", hours=2, picks="what", actor="none")
SHOWN = 20  # unknown objects, or findings, named on a terminal; --json has them all
LIFECYCLE = "deploy/s3-lifecycle.json"


@entry("purge", form=PURGE, second="purge")
def purge(context: Context, issuer: Issuer = "", *, dry_run: bool = False) -> Result:
    """Delete what [retention] allows: sealed chunks, then ledgers and reports; never open work,
    never a source.

    Args:
        issuer: Whose runs (default: those of all that are configured).
        dry_run: Show what would be deleted and why the rest is kept; delete nothing.
    """
    verb, act = (
        ("would be deleted", operation.plan_purge) if dry_run else ("deleted", operation.purge)
    )

    def of_one(name: str) -> list[tuple[dict[str, Any], list[str | Table]]]:
        issuer_context = wire(context.folder, name)
        due = act(issuer_context, cleaner(issuer_context.issuer, context.folder))
        return [(facts(name, due), [*_due(name, due, verb), ""])]

    done, unread = context.each(issuer, of_one)
    found, shown = [one for one, _ in done], [line for _, lines in done for line in lines]
    due = dry_run and any(one["lots"] for one in found)
    next_step = Step("purge", issuer) if due else None
    return Result(
        {"dry_run": dry_run, "issuers": found}, shown[:-1] or ["no issuers yet"], next_step
    ).beside(unread)


def facts(issuer: str, due: operation.PurgePlan) -> dict[str, Any]:
    """Return a purge as plain facts: the key of every object that goes, and why the rest stays."""
    return {
        "issuer": issuer,
        "lots": [
            {
                **lot.record.model_dump(mode="json", exclude={"rows"}),
                "keys": [one.key for one in lot.entries],
            }
            for lot in due.lots
        ],
        "kept": [
            {**kept._asdict(), "until": kept.until and kept.until.isoformat()} for kept in due.kept
        ],
        "unknown": list(due.unknown),
        "temporary": [entry.key for entry in (*due.leftovers, *due.temporary)],
        "versions_stay": due.hides,
    }


def _due(name: str, due: operation.PurgePlan, verb: str) -> Iterator[str | Table]:
    """Yield what goes, what stays for another reason than its age, how much stays for its age, and
    what is not ours.
    """
    sizes = [sum(entry.size for entry in lot.entries) for lot in due.lots]
    yield f"{name}: {sum(len(lot.entries) for lot in due.lots):,} objects, {sum(sizes):,} bytes {verb}"
    because = [
        f"{lot.record.setting}, begun earlier" if lot.resumed else lot.record.setting
        for lot in due.lots
    ]
    named = [
        (lot.record.run or "single links", lot.record.part, len(lot.entries)) for lot in due.lots
    ]
    gone = [(*lot, size, why) for lot, size, why in zip(named, sizes, because, strict=True)]
    title = f"{name}: {verb}, each part with its record"
    yield from [""] if gone else []
    yield Table(
        ("run", "part", "objects", "bytes", "because"), gone, f"{name}-purged", title, bool(gone)
    )
    stays = [(one.run, one.part, one.why) for one in due.kept if one.until is None]
    yield from [""] if stays else []
    title = f"{name}: kept for open work, however old"
    yield Table(("run", "kept", "because"), stays, f"{name}-kept", title, bool(stays))
    for part in records.PARTS:
        if days := [one.until for one in due.kept if one.part == part and one.until is not None]:
            yield f"kept for their age: {part} of {len(days):,} runs, the next until {min(days)}"
    if temporary := len(due.leftovers) + len(due.temporary):
        yield from ["", f"temporary objects of killed processes {verb}: {temporary:,}"]
    yield from (f"unknown, left alone: {key}" for key in due.unknown[:SHOWN])
    if len(due.unknown) > SHOWN:
        yield f"unknown, left alone: {len(due.unknown) - SHOWN:,} more"
    if due.hides:
        yield "The bucket keeps versions: deleted objects are only hidden. The lifecycle rule that removes them for"
        yield f"good, for the prefix {keys.runs(name)} below the root, is in {LIFECYCLE}."


@entry("audit verify", form=AUDIT)
def verify(context: Context, issuer: Issuer, *, head: str = "") -> Result:
    """Verify ISSUER's audit trail: name the first record, manifest, chunk or ledger changed,
    removed or inserted.

    Args:
        head: The head that an earlier proof showed, kept elsewhere; the trail must still contain
            it.
    """
    proof = audit.verify(wire(context.folder, issuer).adapters.store, issuer, head)
    facts = {
        "issuer": issuer,
        **proof._asdict(),
        "findings": [one._asdict() for one in proof.findings],
    }
    lines = [
        f"{issuer}: {proof.entries:,} entries, {proof.objects:,} records, head {proof.head or 'none'}"
    ]
    lines += (
        [f"{proof.older:,} records are older than the trail: not chained"] if proof.older else []
    )
    lines += [f"accepted, see the trail: {key}" for key in proof.accepted]
    if not proof.findings:
        return Result(facts, [*lines, "everything is as it was recorded"])
    found = [(one.entry or "", one.what, one.key, one.by, one.at) for one in proof.findings[:SHOWN]]
    shown: list[str | Table | Link] = [
        *lines,
        "",
        Table(("entry", "what", "object", "recorded by", "at"), found),
    ]
    headline = (
        f"{len(proof.findings):,} objects are not as recorded, first {found[0][2]}: {found[0][1]}"
    )
    return Result(
        facts, [headline, *shown, "what to do: deploy/RUNBOOK.md, The audit trail"], exit_code=4
    )


@entry("audit accept", form="it is decided beside the proof and the access log", second="accept")
def accept(
    context: Context, issuer: Issuer, key: str, *, reason: Reason, dry_run: DryRun = False
) -> Result:
    """Record why a finding of `audit verify` is accepted as it is now, such as what a killed
    process left undone.

    Args:
        key: The object as the finding names it.
    """
    found = audit.accept(wire(context.folder, issuer, dry_run=dry_run), key, reason)
    line = f"{found.key}: {found.what}, {'would be ' if dry_run else ''}accepted as it is now"
    return Result(
        {"issuer": issuer, **found._asdict(), "dry_run": dry_run},
        [line],
        Step("audit verify", issuer),
    )


@entry("audit export", form=AUDIT)
def export(context: Context, issuer: Issuer, run: RunName) -> Result:
    """Write the evidence of RUN as one zip with a page to read: records, who did what, keys, gates,
    reports, policy.
    """
    issuer_context, place = (
        wire(context.folder, issuer),
        keys.keys_of(run).report("audit.zip"),
    )
    store = issuer_context.adapters.store
    files, proof, found = (
        proof_files.evidence(issuer_context, run),
        audit.verify(store, issuer),
        run_history.history(store, run),
    )
    settings = effective_settings(context.folder, issuer_context.issuer)
    files["settings.json"] = json.dumps(settings, indent=1, default=str).encode()
    files["history.json"] = json.dumps([one._asdict() for one in found], indent=1).encode()
    steps = [
        (*one[:3], "; ".join(f"{name}: {fact}" for name, fact in one.facts.items()))
        for one in found
    ]
    state = (
        f"{len(proof.findings):,} findings, first {proof.findings[0].key}"
        if proof.findings
        else "as recorded"
    )
    lines = [
        f"{run}: evidence of what was done, by whom, with which keys and settings",
        f"The audit trail of {issuer}: {proof.entries:,} entries, head {proof.head}: {state}.",
        "settings.json is the policy in force now; plan.json has the settings and keys of the run.",
        "Check the files: sha256sum --check SHA256SUMS. In trail.jsonl, `before` is the SHA-256 of the line before,"
        " its newline included.",
        "Left out: chunks, ledger, lists of cardholders and links (they are in objects.sha256, by digest only).",
    ]
    files["README.md"] = Result(
        {}, [*lines, Table(("when", "what", "by", "facts"), steps)]
    ).markdown.encode()
    store.replace(place, [proof_files.bundle(files)])
    facts = {
        "run": run,
        "key": place,
        "files": sorted(files),
        "head": proof.head,
        "findings": len(proof.findings),
    }
    return Result(facts, [*lines, f"{issuer_context.issuer.root}/{place}"])
