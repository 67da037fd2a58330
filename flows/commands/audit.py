"""The journal: prove that everything is as it was recorded, and hand out the evidence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import DryRun, Issuer, KeyName, Reason, RunName
from flows.commands.private_files import write_new
from flows.commands.result import Part, Place, Result, Table
from flows.configuration import FileThereError
from flows.steps import Step, counted
from flows.wiring import effective_settings, secret, wire, witness_store

with on_first_use():
    from flows.operations import audit, checkpoints
    from flows.operations import evidence as proof_files
    from flows.operations import history as run_history
    from flows.runs import erased, keys, signed_note

if TYPE_CHECKING:
    from flows.runs.context import IssuerContext

AUDIT = Form("audit", "audit: {what} {issuer}", hours=2, picks="what", actor="none")
WITNESS_KEY = "CARDLINK_WITNESS_KEY"
SHOWN = 20  # findings named on a terminal; --json has them all
WHOLE = "everything is as it was recorded"
HALF_ERASED = (
    "an erasure was interrupted, which leaves ledgers, outcomes and reports half removed: have it "
    "finished, then verify again, before anything else is done about them"
)
WHOLE_AS_FAR = "what the journal names is as it was recorded; a cut-off end would not show"


@entry("audit verify", form=AUDIT)
def verify(context: Context, issuer: Issuer, *, head: str = "") -> Result:
    """Verify ISSUER's journal, and name the first object or row changed, removed or inserted.

    Objects are records, manifests, chunks, ledgers, results and the links that came of them,
    deliveries and requests; rows are those of the database that no others follow from. Where a
    witness keeps checkpoints, the journal must go on from the last.

    Args:
        head: The head that an earlier proof showed, kept elsewhere; the journal must still contain
            it.

    Example:
        cardlink audit verify first-bank
    """
    issuer_context = wire(context.folder, issuer)
    adapters = issuer_context.adapters
    checkpoint = _checkpoint(issuer_context, context.folder)
    proof = audit.verify(adapters, issuer, head, checkpoint)
    hours = issuer_context.issuer.audit.witness_hours
    witnessed = checkpoints.witnessed(checkpoint, adapters.now(), hours)
    facts = {
        "issuer": issuer,
        **proof._asdict(),
        "findings": [finding._asdict() for finding in proof.findings],
        "unfinished": [finding._asdict() for finding in proof.unfinished],
        "gone": [{"key": each.key, "purged": each.purged.isoformat()} for each in proof.gone],
        "witness": witnessed,
        "checkpoint": checkpoint.number if checkpoint else None,
    }
    lines: list[Part] = [
        *_summary(issuer, proof),
        _witness_line(checkpoint, witnessed, hours),
    ]
    if not proof.findings:
        extent = f"{_entries(proof)}, {counted(proof.objects, 'record')}"
        whole = WHOLE if checkpoint or head else WHOLE_AS_FAR
        return Result(facts, [*lines, whole], headline=f"{issuer}: whole, {extent}; {whole}")
    first = proof.findings[0]
    number = len(proof.findings)
    differing = counted(number, "object is not as recorded", "objects are not as recorded")
    headline = f"{differing}, first {first.key}: {first.what}"
    advice = "what to do: deploy/RUNBOOK.md, The audit trail"
    shown = [headline, *lines, "", _table(proof), advice]
    if not erased.is_interrupted(erased.unfinished_erasures(adapters, issuer)):
        return Result(facts, shown, exit_code=4)
    return Result(facts, [*shown, HALF_ERASED], Step("purge", issuer), exit_code=4)


def _entries(proof: audit.Proof) -> str:
    return counted(proof.entries, "entry", "entries")


def _summary(issuer: str, proof: audit.Proof) -> Iterator[str]:
    """Yield what was compared, and what is no finding."""
    head = proof.head or "none"
    yield f"{issuer}: {_entries(proof)}, {counted(proof.objects, 'record')}, head {head}"
    if proof.unproved:
        unproved = counted(proof.unproved, "entry is proved", "entries are proved")
        yield f"{unproved} by a key that this process does not have"
    if proof.erasures:
        yield (
            f"erasures that made cardholders forgotten: {proof.erasures:,}; "
            f"{counted(proof.erased, 'object')} of the journal are gone with them, "
            "and ledgers are as rewritten/ of their runs says"
        )
    for finding in proof.unfinished:
        named_at = _to_the_second(finding.at)
        yield (
            f"named and not written, by a command that failed or was killed: {finding.key} "
            f"({finding.by}, {named_at})"
        )
    if proof.gone:
        since = min(each.purged for each in proof.gone)
        files = counted(len(proof.gone), "result file is gone", "result files are gone")
        yield (
            f"{files}, first {proof.gone[0].key}: retention explains it, which purged the ledgers "
            f"that they answer, the first on {since:%Y-%m-%d}"
        )
    for key in proof.accepted:
        yield f"accepted, see the journal: {key}"


def _witness_line(checkpoint: checkpoints.Checkpoint | None, witnessed: str, hours: int) -> str:
    if checkpoint is None:
        return f"{witnessed}: nobody outside keeps where the trail ends ([audit] witness)"
    seen = f"entry {checkpoint.number:,}, seen {checkpoint.at:%Y-%m-%d %H:%M} UTC"
    if witnessed == checkpoints.STALE:
        return f"{witnessed}: the witness has not looked for {hours} hours; {seen}"
    return f"{witnessed}: {seen}"


def _checkpoint(context: IssuerContext, folder: Path) -> checkpoints.Checkpoint | None:
    """Return the last checkpoint of the witness, where there is one."""
    place = witness_store(context.issuer, folder)
    line = context.issuer.audit.witness_key
    if place is None or line is None:
        return None
    key = checkpoints.verifier_of(line)
    return checkpoints.last_checkpoint(place, context.issuer.issuer, key)


def _table(proof: audit.Proof) -> Table:
    rows = [
        (finding.entry or "", finding.what, finding.key, finding.by, _to_the_second(finding.at))
        for finding in proof.findings[:SHOWN]
    ]
    return Table(("entry", "what", "object", "recorded by", "at"), rows)


def _to_the_second(moment: str) -> str:
    return datetime.fromisoformat(moment).isoformat(timespec="seconds") if moment else ""


@entry(
    "audit accept", form="it is decided beside the proof and the access log", acts={"accept": ""}
)
def accept(
    context: Context, issuer: Issuer, key: str, *, reason: Reason, dry_run: DryRun = False
) -> Result:
    """Record why a finding of `audit verify` is accepted as it is now.

    A finding is, for example, what a killed process left undone.

    Args:
        key: The object as the finding names it.

    Example:
        cardlink audit accept first-bank first-bank/results/stray.csv --reason 'see ticket 7'
    """
    finding = audit.accept(wire(context.folder, issuer, dry_run=dry_run), key, reason)
    state = "would be accepted" if dry_run else "accepted"
    line = f"{finding.key}: {finding.what}, {state} as it is now"
    facts = {"issuer": issuer, **finding._asdict(), "dry_run": dry_run}
    return Result(facts, [line], Step("audit verify", issuer))


@entry("audit witness", form="the witness has an account, a schedule and a key of its own")
def witness(context: Context, issuer: Issuer) -> Result:
    """Sign where ISSUER's journal ends, and keep it where `[audit] witness` says.

    For the witness: somebody in another account, who may read the database, and who alone may write
    there. The journal must go on from where the last checkpoint says it ended; else nothing is
    signed. Run it from a schedule, more often than `[audit] witness_hours`.

    Example:
        cardlink audit witness first-bank
    """
    issuer_context = wire(context.folder, issuer)
    place = witness_store(issuer_context.issuer, context.folder)
    if place is None:
        raise checkpoints.NoWitnessError(issuer=issuer)
    signer = checkpoints.signer_of(secret(WITNESS_KEY), WITNESS_KEY)
    checkpoint = checkpoints.witness(issuer_context.adapters, place, issuer, signer)
    facts = {
        "issuer": issuer,
        "entry": checkpoint.number,
        "sha256": checkpoint.sha256,
        "key": str(signer.verifier),
    }
    return Result(facts, [f"{issuer}: witnessed up to entry {checkpoint.number:,}"])


@entry("audit witness-key", form="the file of its key belongs to the witness alone")
def witness_key(context: Context, name: KeyName, file: Path) -> Result:
    """Make a key for a witness of journals: FILE gets the secret half, mode 0600.

    What it prints goes into `[audit] witness_key` of the issuers it looks after.

    Args:
        name: The name of the witness in its signatures, such as `audit.example.com`.
        file: Where the secret half goes; it must not exist.

    Example:
        cardlink audit witness-key audit.example.com witness.key
    """
    del context
    if file.exists():
        raise FileThereError(path=str(file))
    signer = signed_note.Signer.new(name)
    write_new(file, [f"{signer}\n".encode()])
    public = str(signer.verifier)
    lines = [f"secret half: {file} (CARDLINK_WITNESS_KEY_FILE)", f'witness_key = "{public}"']
    return Result({"key": public, "file": str(file)}, lines)


@entry("audit export", form=AUDIT)
def export(context: Context, issuer: Issuer, run: RunName) -> Result:
    """Write the evidence of RUN as one zip with a page to read.

    It holds records, who did what, keys, gates, reports and policy.

    Example:
        cardlink audit export first-bank first-bank-20261120-3f9c21aa
    """
    issuer_context = wire(context.folder, issuer)
    store = issuer_context.adapters.store
    proof = audit.verify(issuer_context.adapters, issuer)
    events = run_history.history(issuer_context.adapters, run)
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
    return Result(facts, [*lines, Place(f"{issuer_context.issuer.root}/{place}", "evidence")])


def _about(run: str, issuer: str, proof: audit.Proof) -> list[str]:
    """Return what the evidence of a run is, and how to check it."""
    state = "as recorded"
    if proof.findings:
        state = f"{len(proof.findings):,} findings, first {proof.findings[0].key}"
    return [
        f"{run}: evidence of what was done, by whom, with which keys and settings",
        f"The journal of {issuer}: {_entries(proof)}, head {proof.head}: {state}.",
        "settings.json is the policy in force now; run.json has the settings and keys of the run, "
        "and what it committed.",
        "Check the files: sha256sum --check SHA256SUMS. "
        "In journal.jsonl, `before` is the `digest` of the entry before; that of an entry that is "
        "whole is the SHA-256 of its line, its newline included.",
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
