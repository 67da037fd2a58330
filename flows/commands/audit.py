"""The audit trail: prove that everything is as it was recorded, and hand out the evidence."""

from __future__ import annotations

import json
from typing import Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import DryRun, Issuer, Reason, RunName
from flows.commands.result import Part, Result, Table
from flows.steps import Step
from flows.wiring import effective_settings, wire

with on_first_use():
    from flows.operations import audit
    from flows.operations import evidence as proof_files
    from flows.operations import history as run_history
    from flows.runs import keys

AUDIT = Form("audit", "audit: {what} {issuer}", hours=2, picks="what", actor="none")
SHOWN = 20  # findings named on a terminal; --json has them all


@entry("audit verify", form=AUDIT)
def verify(context: Context, issuer: Issuer, *, head: str = "") -> Result:
    """Verify ISSUER's audit trail, and name the first object changed, removed or inserted.

    Objects are records, manifests, chunks and ledgers.

    Args:
        head: The head that an earlier proof showed, kept elsewhere; the trail must still contain
            it.
    """
    proof = audit.verify(wire(context.folder, issuer).adapters.store, issuer, head)
    findings = [finding._asdict() for finding in proof.findings]
    facts = {"issuer": issuer, **proof._asdict(), "findings": findings}
    head_text = proof.head or "none"
    lines: list[Part] = [
        f"{issuer}: {proof.entries:,} entries, {proof.objects:,} records, head {head_text}"
    ]
    if proof.older:
        lines.append(f"{proof.older:,} records are older than the trail: not chained")
    lines += [f"accepted, see the trail: {key}" for key in proof.accepted]
    if not proof.findings:
        return Result(facts, [*lines, "everything is as it was recorded"])
    first = proof.findings[0]
    number = len(proof.findings)
    headline = f"{number:,} objects are not as recorded, first {first.key}: {first.what}"
    advice = "what to do: deploy/RUNBOOK.md, The audit trail"
    return Result(facts, [headline, *lines, "", _table(proof), advice], exit_code=4)


def _table(proof: audit.Proof) -> Table:
    rows = [
        (finding.entry or "", finding.what, finding.key, finding.by, finding.at)
        for finding in proof.findings[:SHOWN]
    ]
    return Table(("entry", "what", "object", "recorded by", "at"), rows)


@entry(
    "audit accept", form="it is decided beside the proof and the access log", second={"accept": ""}
)
def accept(
    context: Context, issuer: Issuer, key: str, *, reason: Reason, dry_run: DryRun = False
) -> Result:
    """Record why a finding of `audit verify` is accepted as it is now.

    A finding is, for example, what a killed process left undone.

    Args:
        key: The object as the finding names it.
    """
    finding = audit.accept(wire(context.folder, issuer, dry_run=dry_run), key, reason)
    state = "would be accepted" if dry_run else "accepted"
    line = f"{finding.key}: {finding.what}, {state} as it is now"
    facts = {"issuer": issuer, **finding._asdict(), "dry_run": dry_run}
    return Result(facts, [line], Step("audit verify", issuer))


@entry("audit export", form=AUDIT)
def export(context: Context, issuer: Issuer, run: RunName) -> Result:
    """Write the evidence of RUN as one zip with a page to read.

    It holds records, who did what, keys, gates, reports and policy.
    """
    issuer_context = wire(context.folder, issuer)
    store = issuer_context.adapters.store
    proof = audit.verify(store, issuer)
    events = run_history.history(store, run)
    settings = effective_settings(context.folder, issuer_context.issuer)
    lines = _about(run, issuer, proof)
    files = proof_files.evidence(issuer_context, run)
    files["settings.json"] = _json(settings)
    files["history.json"] = _json([event._asdict() for event in events])
    files["README.md"] = Result({}, [*lines, _events(events)]).markdown.encode()
    place = keys.keys_of(run).report("audit.zip")
    store.replace(place, [proof_files.bundle(files)])
    facts = {
        "run": run,
        "key": place,
        "files": sorted(files),
        "head": proof.head,
        "findings": len(proof.findings),
    }
    return Result(facts, [*lines, f"{issuer_context.issuer.root}/{place}"])


def _about(run: str, issuer: str, proof: audit.Proof) -> list[str]:
    """Return what the evidence of a run is, and how to check it."""
    state = "as recorded"
    if proof.findings:
        state = f"{len(proof.findings):,} findings, first {proof.findings[0].key}"
    return [
        f"{run}: evidence of what was done, by whom, with which keys and settings",
        f"The audit trail of {issuer}: {proof.entries:,} entries, head {proof.head}: {state}.",
        "settings.json is the policy in force now; plan.json has the settings and keys of the run.",
        "Check the files: sha256sum --check SHA256SUMS. "
        "In trail.jsonl, `before` is the SHA-256 of the line before, its newline included.",
        "Left out: chunks, ledger, lists of cardholders and links "
        "(they are in objects.sha256, by digest only).",
    ]


def _events(events: list[run_history.HistoryEvent]) -> Table:
    rows = []
    for event in events:
        facts = "; ".join(f"{name}: {fact}" for name, fact in event.facts.items())
        rows.append((event.at, event.what, event.by, facts))
    return Table(("when", "what", "by", "facts"), rows)


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, default=str).encode()
