"""The proof of an issuer's audit trail: what was changed, removed or inserted.

A record that is named and missing was removed, or its command was killed in between, which only a
person can tell: `audit accept` says so, on the record.
"""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from flows.errors import CardlinkError
from flows.runs.audit_trail import ENTRY, RECORDS, AuditTrail, entry_key, record_keys
from flows.runs.context import IssuerContext
from flows.runs.errors import NotFoundError
from flows.runs.identity import canonical, digest
from flows.runs.keys import trail
from flows.runs.store import ConflictError, Store, read_if_stored
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from flows.runs.versions import parsed
from flows.steps import Step
from flows.submissions.seal_records import GROUP, SealRecords
from schemas.manifest import ManifestChunk
from schemas.records import AuditEntry

CHANGED = "changed"
REMOVED = "removed"
INSERTED = "inserted"
BROKEN = "does not follow the entry before it"


class Finding(NamedTuple):
    """One object that is not as it was recorded.

    `entry`, `by` and `at` are number, author and time of the entry that first names it.
    """

    key: str
    what: str
    entry: int = 0
    by: str = ""
    at: str = ""


class Proof(NamedTuple):
    """What was compared and what does not fit, first in the order of the trail.

    Of `older` only the names are known. `head` is number and digest of the last entry: kept
    elsewhere, it shows when the end of the trail is cut off.
    """

    entries: int
    objects: int
    older: int
    head: str
    findings: tuple[Finding, ...]
    accepted: tuple[str, ...]


class TrailEntry(NamedTuple):
    """One entry as it is stored.

    No content where it is gone, no document where a byte of it was changed.
    """

    number: int
    key: str
    content: bytes
    document: AuditEntry | None

    @property
    def head(self) -> str:
        """Its number and digest: all that must be kept to show later that it was there."""
        return f"{self.number}:{digest(self.content)[:16]}"


class _Mention(NamedTuple):
    """An intact entry that names a record, and its number in the trail."""

    number: int
    entry: AuditEntry


class _Trail:
    """The entries of an issuer's trail, and what the intact ones say about each record."""

    def __init__(self, entries: Sequence[TrailEntry]) -> None:
        self.entries = entries
        self.heads = [entry.head for entry in entries]
        self.accepted: set[str] = set()  # records about which a finding was accepted
        self._mentions: dict[str, list[_Mention]] = {}
        self._written_before: set[str] = set()
        for entry in entries:
            if entry.document is not None:
                self._read(entry.number, entry.document)

    def _read(self, number: int, entry: AuditEntry) -> None:
        for key in entry.objects:
            self._mentions.setdefault(key, []).append(_Mention(number, entry))
        self._written_before.update(entry.older)
        if entry.reason:
            self.accepted.update(entry.objects)

    @property
    def older(self) -> set[str]:
        """The records that were written before the first entry, and that no entry names."""
        return self._written_before - self._mentions.keys()

    @property
    def named(self) -> set[str]:
        """Every record that an entry names, or that the first entry knew as older."""
        return self._written_before | self._mentions.keys()

    def finding(self, key: str, sha256: str) -> Finding | None:
        """Return what is wrong with a record of that digest; "": it is gone."""
        mentions = self._mentions.get(key)
        if mentions is None:
            # without any entry nothing was named yet
            needs_no_entry = not self.entries or key in self._written_before
            if sha256 and needs_no_entry:
                return None
            return Finding(key, _difference(sha256, is_known=False))
        if sha256 in [mention.entry.objects[key] for mention in mentions]:
            return None
        number, entry = mentions[0]
        difference = _difference(sha256, is_known=True)
        return Finding(key, difference, number, entry.by, f"{entry.at:%Y-%m-%d %H:%M:%S}")


def verify(store: Store, issuer: str, head: str = "") -> Proof:
    """Compare everything an issuer's trail names with what is stored.

    `head`, of an earlier proof, must be in the trail.
    """
    # before the trail: a record is named first
    stored = digests(store, list(record_keys(store, issuer)))
    audit_trail = _Trail(trail_entries(store, issuer))
    stored |= digests(store, [key for key in audit_trail.named if key not in stored])
    findings = [
        *_entry_findings(store, issuer, audit_trail.entries),
        *filter(None, map(audit_trail.finding, stored.keys(), stored.values())),
    ]
    findings += _content_findings(store, issuer, {finding.key for finding in findings})
    length = len(audit_trail.entries)
    if head and head not in audit_trail.heads:
        missing = f"lacks the entry {head} of an earlier proof"
        findings.append(Finding(trail(issuer), missing, length))
    return Proof(
        entries=length,
        objects=sum(1 for sha256 in stored.values() if sha256),
        older=len(audit_trail.older),
        head=audit_trail.heads[-1] if length else "",
        findings=tuple(_in_trail_order(findings, length)),
        accepted=tuple(sorted(audit_trail.accepted - {finding.key for finding in findings})),
    )


def accept(context: IssuerContext, key: str, reason: str) -> Finding:
    """Record why a finding about a record is accepted; NotFoundError, NoReasonError."""
    issuer = context.issuer.issuer
    adapters = context.adapters
    signed_reason = adapters.signed(reason)["reason"]
    findings = verify(adapters.store, issuer).findings
    finding = next((finding for finding in findings if finding.key == key), None)
    if finding is None or not RECORDS.fullmatch(key):
        missing = f"finding {key} that can be accepted"
        raise NotFoundError(place=issuer, what=missing, command=Step("audit verify", issuer))
    audit_trail = AuditTrail(adapters.store, adapters.actor, adapters.now)
    audit_trail.add(issuer, digests(adapters.store, [key]), signed_reason)
    return finding


def trail_entries(store: Store, issuer: str) -> list[TrailEntry]:
    """Return the entries of an issuer's trail from the first to the last that is listed."""
    matches = (ENTRY.fullmatch(entry.key) for entry in store.keys(trail(issuer)))
    last = max((int(match[1]) for match in matches if match), default=0)
    keys = [entry_key(issuer, number) for number in range(1, last + 1)]
    contents = concurrently(lambda key: read_if_stored(store, key) or b"", keys)
    return [
        TrailEntry(number, key, content, _intact(content, key))
        for number, (key, content) in enumerate(zip(keys, contents, strict=True), 1)
    ]


def digests(store: Store, keys: Collection[str]) -> dict[str, str]:
    """Return the digests of objects by key, "" where there is none."""

    def digest_of(key: str) -> str:
        content = read_if_stored(store, key)
        return digest(content) if content else ""

    return dict(zip(keys, concurrently(digest_of, keys), strict=True))


def _intact(content: bytes, key: str) -> AuditEntry | None:
    """Return an entry, None where its content does not fit its seal."""
    with suppress(CardlinkError):
        document = parsed(content, key, AuditEntry)
        # its seal is of unknown fields too
        stored = json.loads(content)
        seal = digest(canonical({**stored, "seal": ""}))
        if canonical({**stored, "seal": seal}) == content:
            return document
    return None


def _in_trail_order(findings: Sequence[Finding], length: int) -> list[Finding]:
    """Return findings by the entry that first names them, last those that none names."""
    return sorted(findings, key=lambda finding: (finding.entry or length + 1, finding.key))


def _entry_findings(store: Store, issuer: str, entries: Sequence[TrailEntry]) -> Iterator[Finding]:
    """Yield what is wrong with the entries themselves.

    Behind one that is wrong, the next cannot be judged.
    """
    before: str | None = ""
    for entry in entries:
        if entry.document is None:
            yield Finding(entry.key, CHANGED if entry.content else REMOVED, entry.number)
            before = None
            continue
        if before not in (None, entry.document.before):
            yield Finding(entry.key, BROKEN, entry.number)
        before = digest(entry.content)
    keys = {entry.key for entry in entries}
    for stored in store.keys(trail(issuer)):
        if stored.key not in keys:
            yield Finding(stored.key, INSERTED)


def _difference(sha256: str, *, is_known: bool) -> str:
    if not sha256:
        return REMOVED
    return CHANGED if is_known else INSERTED


def _content_findings(store: Store, issuer: str, wrong: Collection[str]) -> Iterator[Finding]:
    """Yield chunks, ledger parts and seal records that are not those their manifests name."""
    for run in StoredRuns(store, issuer):
        # a changed manifest may name any run and chunks
        if any(key.startswith(run.keys.base) for key in wrong):
            continue
        with suppress(ConflictError):  # a finding already
            if run.manifest is not None:
                yield from _object_findings(run)
                yield from _seal_findings(run, run.manifest.chunks)


def _object_findings(run: StoredRun) -> Iterator[Finding]:
    """Yield the chunks and ledger parts of a committed run that are not those of its manifest."""
    keys = run.keys
    manifest = run.committed()
    sealed_first = {keys.chunks + chunk.name: chunk.sha256 for chunk in manifest.chunks}
    sealed_last = {stored.key: stored.chunk.sha256 for stored in run.sealed_chunks.values()}
    required_chunks = sealed_last if run.purged_chunks is None else {}
    yield from _differences(run, keys.chunks, sealed_first | sealed_last, required_chunks)
    ledger = {keys.ledger + part.name: part.sha256 for part in manifest.ledger}
    required_parts = ledger if run.purged_ledger is None else {}
    yield from _differences(run, keys.ledger, ledger, required_parts)


def _differences(
    run: StoredRun, prefix: str, known: Mapping[str, str], required: Collection[str]
) -> Iterator[Finding]:
    """Yield the objects, below a prefix and among the known, that do not have the known digest."""
    listed = {entry.key for entry in run.store.keys(prefix)}
    for key, sha256 in digests(run.store, sorted(listed | known.keys())).items():
        if sha256 != known.get(key) and (sha256 or key in required):
            yield Finding(key, _difference(sha256, is_known=key in known))


def _seal_findings(run: StoredRun, chunks: Sequence[ManifestChunk]) -> Iterator[Finding]:
    """Yield the groups of chunks whose seal records do not name their ciphertext."""
    if run.purged_ledger is not None:
        return
    for group in range(math.ceil(len(chunks) / GROUP)):
        members = chunks[group * GROUP : (group + 1) * GROUP]
        if not _is_recorded(run, group, members):
            yield Finding(f"{run.keys.seals}{group:05d}-001.json", CHANGED)


def _is_recorded(run: StoredRun, group: int, chunks: Sequence[ManifestChunk]) -> bool:
    with suppress(ConflictError):
        seal_records = SealRecords(run.store, run.keys.seals, group)
        return all(seal_records.names(chunk.name, chunk.sha256) for chunk in chunks)
    return False
