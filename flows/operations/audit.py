"""The proof of an issuer's audit trail: what was changed, removed or inserted.

What a killed command named and never wrote is no finding: it is unfinished until the next command
that records anything, which says so in the trail (`flows/runs/audit_trail.py`).
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from flows.operations.audit_contents import Contents, judged_contents
from flows.operations.audit_entries import (
    NEVER_WRITTEN,
    NOTHING_PROVEN,
    UNPROVED,
    Finding,
    Trail,
    TrailEntry,
    digests,
    entry_findings,
    last_number,
    unverified,
)
from flows.operations.audit_objects import Snapshot
from flows.operations.checkpoints import Checkpoint
from flows.operations.proven import Proven, keep_proven, read_proven
from flows.runs.adapters import Adapters
from flows.runs.audit_trail import AuditTrail
from flows.runs.context import IssuerContext
from flows.runs.documents import read_document
from flows.runs.erased import all_erasures
from flows.runs.errors import NotFoundError
from flows.runs.keys import purged, runs, trail
from flows.runs.store import Store
from flows.runs.threads import concurrently
from flows.runs.trail_entries import EVIDENCE, entry_key, is_named
from flows.runs.trail_proof import NOT_PROVED, Prover
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

    `read`: how many objects were read. `runs`: how many are whole by what they contain; `proven`:
    how many entries, runs and objects have what they had in a proof of that time (`proven_at`).
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
    read: int = 0
    runs: int = 0
    proven_entries: int = 0
    proven_runs: int = 0
    proven_objects: int = 0
    proven_at: datetime | None = None


def verify(
    store: Store,
    issuer: str,
    head: str = "",
    prover: Prover = NOT_PROVED,
    checkpoint: Checkpoint | None = None,
) -> Proof:
    """Compare everything an issuer's trail names with what is stored; nothing is written.

    `head`, of an earlier proof, must be in the trail, which must go on from the `checkpoint` of a
    witness. What an earlier proof found whole is not judged again (`proven.py`).
    """
    known = read_proven(store, issuer, prover)
    return _Verification(store, issuer, prover, known).proof(head, checkpoint)


def verify_and_keep(
    adapters: Adapters,
    issuer: str,
    head: str = "",
    checkpoint: Checkpoint | None = None,
    *,
    anew: bool = False,
) -> tuple[Proof, bool]:
    """Do the same, and keep what is whole for the next time; return whether it was kept.

    `anew`: whatever was kept, everything is read and judged.
    """
    store = adapters.store
    prover = adapters.prover
    known = None if anew else read_proven(store, issuer, prover)
    verification = _Verification(store, issuer, prover, known)
    proof = verification.proof(head, checkpoint)
    if proof.findings or proof.unproved:
        return proof, False
    return proof, keep_proven(store, issuer, prover, verification.proven(adapters.now()))


class _Verification:
    """One comparison of an issuer's trail with the store, resting on what is `known` of before."""

    def __init__(self, store: Store, issuer: str, prover: Prover, known: Proven | None) -> None:
        self._issuer = issuer
        self._prover = prover
        self._known = known
        # before the trail is read: what is written is named first
        self._objects = Snapshot(store, f"{issuer}/", known.marks if known else None)
        self._stored = self._objects.digests(
            [key for key in self._objects.below(f"{issuer}/") if is_named(key)]
        )
        entries = self._entries(known.trail.entries if known else 0)
        is_as_known = known is not None and known.trail.begins(entries)
        self._proven_trail = known.trail if known and is_as_known else NOTHING_PROVEN
        # read side by side; of the others the digest is enough
        concurrently(lambda entry: entry.content, entries[self._proven_trail.entries :])
        self._trail = Trail(entries, self._proven_trail)
        self._stored |= self._found_by_name()
        self._contents = Contents([], {}, 0)

    def _entries(self, known: int) -> list[TrailEntry]:
        """Return the entries, up to those written meanwhile; of so many the digest alone is read.

        Of those that are read the digest is taken of what was read.
        """
        objects = self._objects
        last = last_number(objects.below(trail(self._issuer)))
        while objects.digests([entry_key(self._issuer, last + 1)]).popitem()[1]:
            last += 1
        keys = [entry_key(self._issuer, number) for number in range(1, last + 1)]
        sha256s = objects.digests(keys[:known])
        return [
            TrailEntry(objects, number, key, sha256s.get(key, ""))
            for number, key in enumerate(keys, 1)
        ]

    def _found_by_name(self) -> dict[str, str]:
        """Return the digests of what entries name and the listing lacks, where it should be."""
        absent = [key for key in self._trail.named if key not in self._stored]
        required = [key for key in absent if self._trail.finding(key, "") is not None]
        return self._objects.digests(required)

    def proof(self, head: str, checkpoint: Checkpoint | None) -> Proof:
        """Return what was compared and what does not fit."""
        entries = self._trail
        objects = self._objects
        issuer = self._issuer
        purge = _Purges(objects, issuer, self._stored)
        wrong = self._wrong_objects(purge)
        known_runs = self._known.runs if self._known else {}
        wrong_keys = {finding.key for finding in wrong}
        self._contents = judged_contents(objects, issuer, wrong_keys, known_runs)
        records = sum(map(bool, self._stored.values()))
        ends = _end_findings(issuer, entries, head, checkpoint, records)
        left = self._without_accepted([*ends, *self._entry_findings(), *wrong])
        length = len(entries.entries)
        return Proof(
            entries=length,
            objects=records,
            older=len(entries.older),
            head=entries.heads[-1] if length else "",
            findings=tuple(_in_trail_order(left, length)),
            accepted=tuple(sorted(entries.accepted - {finding.key for finding in left})),
            unfinished=tuple(finding for finding in wrong if finding.what == NEVER_WRITTEN),
            unproved=unverified(entries.proofs, self._prover),
            erasures=purge.erasures.acts,
            erased=len(purge.erasures.deleted),
            read=objects.read,
            runs=len(self._contents.whole),
            proven_entries=self._proven_trail.entries,
            proven_runs=self._contents.known,
            proven_objects=objects.known,
            proven_at=self._known.at if self._known else None,
        )

    def _entry_findings(self) -> Iterable[Finding]:
        listed = self._objects.below(trail(self._issuer))
        return entry_findings(self._trail.entries, listed, self._prover, self._proven_trail)

    def _without_accepted(self, findings: Iterable[Finding]) -> list[Finding]:
        """Return the findings that count, with those about contents."""
        written = (finding for finding in findings if finding.what != NEVER_WRITTEN)
        return [
            finding
            for finding in chain(written, self._contents.findings)
            if not (finding.what == UNPROVED and finding.key in self._trail.accepted)
        ]

    def _wrong_objects(self, purge: "_Purges") -> list[Finding]:
        """Return what is not as the trail names it, and was not purged."""
        judged = (self._trail.finding(key, sha256) for key, sha256 in self._stored.items())
        return [
            finding
            for finding in judged
            if finding is not None
            and not (self._stored[finding.key] == "" and purge.took(finding, self._trail))
        ]

    def proven(self, now: datetime) -> Proven:
        """Return what is whole, of a proof without findings."""
        return Proven(
            at=now,
            trail=self._trail.as_proven(),
            runs=self._contents.whole,
            marks=self._objects.marks,
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
        self._records = {key for key in stored if key.startswith(self._prefix)}
        # the folders of records: of a run, or of a kind of object
        self._folders = {key.removeprefix(self._prefix).partition("/")[0] for key in self._records}
        self.erasures = all_erasures(store, issuer)

    def took(self, finding: Finding, entries: Trail) -> bool:
        """Return whether an object that is gone was removed by retention or by an erasure."""
        if finding.key in self.erasures.deleted:
            return True
        if not EVIDENCE.fullmatch(finding.key):
            return False
        if finding.key.startswith(self._runs):
            run = finding.key.removeprefix(self._runs).partition("/")[0]
            if "/claims/" in finding.key:
                return run in self._folders
            return f"{self._prefix}{run}/ledger.json" in self._records
        kind = finding.key.removeprefix(self._prefix.removesuffix("purged/")).partition("/")[0]
        until = max(map(self._since, self._of_kind(kind)), default=None)
        named = entries.named_at(finding.key)
        return until is not None and (named is None or named <= until)

    def _of_kind(self, kind: str) -> list[str]:
        if kind not in self._folders:
            return []
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
