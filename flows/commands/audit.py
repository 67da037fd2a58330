"""The audit trail: prove that it is whole, accept what was explained, hand out the evidence of a run."""

from __future__ import annotations

import json

from flows.commands import on_first_use
from flows.commands.entry import Context, Form, entry
from flows.commands.parameters import DryRun, Issuer, Reason, RunName
from flows.commands.result import Link, Result, Table
from flows.wiring import effective_settings, wire

with on_first_use():
    from flows.operations import audit
    from flows.runs import documents

AUDIT = Form("audit", "audit: {what} {issuer}", hours=2, picks="what", actor="none")
SHOWN = 20  # findings on a terminal; --json has them all


@entry("audit verify", form=AUDIT)
def verify(context: Context, issuer: Issuer, *, head: str = "") -> Result:
    """Verify ISSUER's audit trail: name the first record, manifest, chunk or ledger changed, removed or inserted.

    Args:
        head: The head that an earlier proof showed, kept elsewhere; the trail must still contain it.
    """
    proof = audit.verify(wire(context.folder, issuer).adapters.store, issuer, head)
    facts = {"issuer": issuer, **proof._asdict(), "findings": [one._asdict() for one in proof.findings]}
    lines = [f"{issuer}: {proof.entries:,} entries, {proof.objects:,} records, head {proof.head or 'none'}"]
    lines += [f"{proof.older:,} records are older than the trail: not chained"] if proof.older else []
    lines += [f"accepted, see the trail: {key}" for key in proof.accepted]
    if not proof.findings:
        return Result(facts, [*lines, "everything is as it was recorded"])
    found = [(one.entry or "", one.what, one.key, one.by, one.at) for one in proof.findings[:SHOWN]]
    shown: list[str | Table | Link] = [*lines, "", Table(("entry", "what", "object", "recorded by", "at"), found)]
    headline = f"{len(proof.findings):,} objects are not as recorded, first {found[0][2]}: {found[0][1]}"
    return Result(facts, [headline, *shown, "what to do: deploy/RUNBOOK.md, The audit trail"], exit_code=4)


@entry("audit accept", form="it is decided beside the proof and the access log", second="accept")
def accept(context: Context, issuer: Issuer, key: str, *, reason: Reason, dry_run: DryRun = False) -> Result:
    """Record why a finding of `audit verify` is accepted as it is now, such as what a killed process left undone.

    Args:
        key: The object as the finding names it.
    """
    found = audit.accept(wire(context.folder, issuer, dry_run=dry_run), key, reason)
    line = f"{found.key}: {found.what}, {'would be ' if dry_run else ''}accepted as it is now"
    return Result({"issuer": issuer, **found._asdict(), "dry_run": dry_run}, [line], f"cardlink audit verify {issuer}")


@entry("audit export", form=AUDIT)
def export(context: Context, issuer: Issuer, run: RunName) -> Result:
    """Write the evidence of RUN as one zip with a page to read: records, who did what, keys, gates, reports, policy."""
    issuer_context, place = wire(context.folder, issuer), documents.keys_of(run).report("audit.zip")
    store = issuer_context.adapters.store
    files, proof, found = audit.evidence(issuer_context, run), audit.verify(store, issuer), audit.history(store, run)
    settings = effective_settings(context.folder, issuer_context.issuer)
    files["settings.json"] = json.dumps(settings, indent=1, default=str).encode()
    files["history.json"] = json.dumps([one._asdict() for one in found], indent=1).encode()
    steps = [(*one[:3], "; ".join(f"{name}: {fact}" for name, fact in one.facts.items())) for one in found]
    state = f"{len(proof.findings):,} findings, first {proof.findings[0].key}" if proof.findings else "as recorded"
    lines = [
        f"{run}: evidence of what was done, by whom, with which keys and settings",
        f"The audit trail of {issuer}: {proof.entries:,} entries, head {proof.head}: {state}.",
        "settings.json is the policy in force now; plan.json has the settings and keys of the run.",
        "Check the files: sha256sum --check SHA256SUMS. In trail.jsonl, `before` is the SHA-256 of the line before,"
        " its newline included.",
        "Left out: chunks, ledger, lists of cardholders and links (they are in objects.sha256, by digest only).",
    ]
    files["README.md"] = Result({}, [*lines, Table(("when", "what", "by", "facts"), steps)]).markdown.encode()
    store.replace(place, [audit.bundle(files)])
    facts = {"run": run, "key": place, "files": sorted(files), "head": proof.head, "findings": len(proof.findings)}
    return Result(facts, [*lines, f"{issuer_context.issuer.root}/{place}"])
