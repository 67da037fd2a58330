"""The proof of an issuer's audit trail: what was changed, removed or inserted.

What a killed command named and never wrote is no finding: it is unfinished until the next command
that records anything, which says so in the trail (`flows/runs/audit_trail.py`).
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from flows.operations.audit_contents import content_findings
from flows.operations.audit_entries import (
    NEVER_WRITTEN,
    UNPROVED,
    Finding,
    Trail,
    digests,
    entry_findings,
    trail_entries,
    unverified,
)
from flows.operations.checkpoints import Checkpoint
from flows.runs.audit_trail import AuditTrail
from flows.runs.context import IssuerContext
from flows.runs.erased import all_erasures
from flows.runs.errors import NotFoundError
from flows.runs.keys import purged, runs, trail
from flows.runs.store import Store
from flows.runs.trail_entries import EVIDENCE, is_named, named_keys
from flows.runs.trail_proof import NOT_PROVED, Prover
from flows.runs.versions import read_document
from flows.steps import Step
from schemas.records import Purged

MISSING = "is missing, and {} records are there"
CUT = "does not go on from {}"


class Proof(NamedTuple):
    """What was compared and what does not fit, first in the order of the trail.

    Of `older` only the names are known. `head` is number and digest of the last entry.
    `unfinished`: what was named and never written, by a command that was killed or is at work.
    `unproved`: how many entries have a proof by a key that is not at hand. `erasures`: how many
    acts have made cardholders forgotten, and `erased`: the objects that are gone with them.
    """

    entries: int
    objects: int
    older: int
    head: str
    findings: tuple[Finding, ...]
    accepted: tuple[str, ...]
    unfinished: tuple[Finding, ...] = ()
    unproved: int = 0
    erasures: int = 0
    erased: int = 0


def verify(
    store: Store,
    issuer: str,
    head: str = "",
    prover: Prover = NOT_PROVED,
    checkpoint: Checkpoint | None = None,
) -> Proof:
    """Compare everything an issuer's trail names with what is stored.

    `head`, of an earlier proof, must be in the trail, which must go on from the `checkpoint` of a
    witness.
    """
    # before the trail: what is written is named first
    stored = digests(store, named_keys(store, issuer))
    entries = Trail(trail_entries(store, issuer))
    stored |= digests(store, [key for key in entries.named if key not in stored])
    judged = [entries.finding(key, sha256) for key, sha256 in stored.items()]
    purge = _Purges(store, issuer, stored)
    wrong = [
        finding
        for finding in judged
        if finding is not None and not (stored[finding.key] == "" and purge.took(finding, entries))
    ]
    findings = [
        *_end_findings(issuer, entries, head, checkpoint, sum(map(bool, stored.values()))),
        *entry_findings(store, issuer, entries.entries, prover),
        *(finding for finding in wrong if finding.what != NEVER_WRITTEN),
    ]
    findings += content_findings(store, issuer, {finding.key for finding in wrong})
    left = [
        finding
        for finding in findings
        if not (finding.what == UNPROVED and finding.key in entries.accepted)
    ]
    length = len(entries.entries)
    return Proof(
        entries=length,
        objects=sum(1 for sha256 in stored.values() if sha256),
        older=len(entries.older),
        head=entries.heads[-1] if length else "",
        findings=tuple(_in_trail_order(left, length)),
        accepted=tuple(sorted(entries.accepted - {finding.key for finding in left})),
        unfinished=tuple(finding for finding in wrong if finding.what == NEVER_WRITTEN),
        unproved=unverified(entries.entries, prover),
        erasures=purge.erasures.acts,
        erased=len(purge.erasures.deleted),
    )


def _end_findings(
    issuer: str, entries: Trail, head: str, checkpoint: Checkpoint | None, records: int
) -> Iterable[Finding]:
    """Yield that a trail is missing, or that its end is not where somebody has seen it."""
    length = len(entries.entries)
    if not length and records:
        yield Finding(trail(issuer), MISSING.format(f"{records:,}"))
    if head and head not in entries.heads:
        yield Finding(trail(issuer), f"lacks the entry {head} of an earlier proof", length)
    trouble = checkpoint.trouble(entries.entries) if checkpoint is not None else ""
    if checkpoint is not None and trouble:
        seen = f"entry {checkpoint.number:,}, as a witness saw it: {trouble}"
        yield Finding(trail(issuer), CUT.format(seen), length)


class _Purges:
    """What retention and erasures have removed, by their records."""

    def __init__(self, store: Store, issuer: str, stored: Iterable[str]) -> None:
        self._store = store
        self._runs = runs(issuer)
        self._prefix = purged(issuer)
        self._records = [key for key in stored if key.startswith(self._prefix)]
        self.erasures = all_erasures(store, issuer)

    def took(self, finding: Finding, entries: Trail) -> bool:
        """Return whether an object that is gone was removed by retention or by an erasure."""
        if finding.key in self.erasures.deleted:
            return True
        if not EVIDENCE.fullmatch(finding.key):
            return False
        if finding.key.startswith(self._runs):
            run = finding.key.removeprefix(self._runs).partition("/")[0]
            part = "" if "/claims/" in finding.key else "ledger.json"
            return any(key.startswith(f"{self._prefix}{run}/{part}") for key in self._records)
        kind = finding.key.removeprefix(self._prefix.removesuffix("purged/")).partition("/")[0]
        until = max(map(self._since, self._of_kind(kind)), default=None)
        named = entries.named_at(finding.key)
        return until is not None and (named is None or named <= until)

    def _of_kind(self, kind: str) -> list[str]:
        return [key for key in self._records if key.startswith(f"{self._prefix}{kind}/")]

    def _since(self, key: str) -> datetime:
        record = read_document(self._store, key, Purged)
        return record.since if record is not None else datetime.min


def accept(context: IssuerContext, key: str, reason: str) -> Finding:
    """Record why a finding about one object is accepted; NotFoundError, NoReasonError.

    Those can be accepted whose object the trail names, entries without a proof, and that a trail is
    missing: a new one begins.
    """
    issuer = context.issuer.issuer
    adapters = context.adapters
    signed_reason = adapters.signed(reason)["reason"]
    findings = verify(adapters.store, issuer, prover=adapters.prover).findings
    finding = next((finding for finding in findings if finding.key == key), None)
    begins_anew = key == trail(issuer) and finding is not None and not finding.entry
    if finding is None or not (begins_anew or is_named(key) or finding.what == UNPROVED):
        missing = f"finding {key} that can be accepted"
        raise NotFoundError(place=issuer, what=missing, command=Step("audit verify", issuer))
    audit_trail = AuditTrail(adapters.store, adapters.actor, adapters.now, adapters.prover)
    objects = {} if begins_anew else digests(adapters.store, [key])
    audit_trail.add(issuer, objects, signed_reason)
    return finding


def _in_trail_order(findings: Sequence[Finding], length: int) -> list[Finding]:
    """Return findings by the entry that first names them, last those that none names."""
    return sorted(findings, key=lambda finding: (finding.entry or length + 1, finding.key))
