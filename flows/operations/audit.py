"""The proof of an issuer's audit trail: what was changed, removed or inserted."""

import json
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import chain
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
from flows.submissions.seal_records import GROUP, SealRecords
from schemas.manifest import ManifestChunk
from schemas.records import PARTS, AuditEntry, Part

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


def verify(store: Store, issuer: str, head: str = "") -> Proof:
    """Compare everything an issuer's trail names with what is stored.

    `head`, of an earlier proof, must be in the trail.
    """
    # before the trail: a record is named first
    stored = digests(store, list(record_keys(store, issuer)))
    entries = trail_entries(store, issuer)
    documents = [entry.document for entry in entries if entry.document is not None]
    mentions = _mentions(entries)
    older = {key for document in documents for key in document.older} - mentions.keys()
    stored |= digests(store, [key for key in mentions.keys() | older if key not in stored])
    findings = list(_entry_findings(store, issuer, entries))
    for key, sha256 in stored.items():
        is_older = key in older or not entries  # without any entry nothing was named yet
        finding = _judge(key, sha256, mentions.get(key, ()), is_older)
        if finding is not None:
            findings.append(finding)
    findings += _content_findings(store, issuer, {finding.key for finding in findings})
    heads = [entry.head for entry in entries]
    if head and head not in heads:
        missing = f"lacks the entry {head} of an earlier proof"
        findings.append(Finding(trail(issuer), missing, len(heads)))
    return Proof(
        entries=len(entries),
        objects=sum(1 for sha256 in stored.values() if sha256),
        older=len(older),
        head=heads[-1] if heads else "",
        findings=tuple(_in_trail_order(findings, len(entries))),
        accepted=tuple(sorted(_accepted(documents) - {finding.key for finding in findings})),
    )


def accept(context: IssuerContext, key: str, reason: str) -> Finding:
    """Record why a finding about a record is accepted; NotFoundError, NoReasonError."""
    issuer = context.issuer.issuer
    adapters = context.adapters
    signed_reason = adapters.signed(reason)["reason"]
    findings = verify(adapters.store, issuer).findings
    finding = next((finding for finding in findings if finding.key == key), None)
    if finding is None or not RECORDS.fullmatch(key):
        what, command = f"finding {key} that can be accepted", f"cardlink audit verify {issuer}"
        raise NotFoundError(place=issuer, what=what, command=command)
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


def _mentions(entries: Sequence[TrailEntry]) -> dict[str, list[_Mention]]:
    """Return the intact entries that name each record, by its key."""
    mentions: dict[str, list[_Mention]] = {}
    for entry in entries:
        if entry.document is not None:
            for key in entry.document.objects:
                mentions.setdefault(key, []).append(_Mention(entry.number, entry.document))
    return mentions


def _accepted(documents: Sequence[AuditEntry]) -> set[str]:
    """Return the records about which a finding was accepted, with its reason."""
    accepted: set[str] = set()
    for document in documents:
        if document.reason:
            accepted.update(document.objects)
    return accepted


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


def _judge(key: str, sha256: str, mentions: Sequence[_Mention], is_older: bool) -> Finding | None:
    """Return what is wrong with a record, by the entries that name it; `sha256` "": it is gone."""
    if sha256 in [mention.entry.objects[key] for mention in mentions] or (sha256 and is_older):
        return None
    what = _difference(sha256, is_known=bool(mentions))
    if not mentions:
        return Finding(key, what)
    number, entry = mentions[0]
    return Finding(key, what, number, entry.by, f"{entry.at:%Y-%m-%d %H:%M:%S}")


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
    purged: set[Part] = {part for part in PARTS if run.purged(part) is not None}
    chunks = {stored.key: stored.chunk.sha256 for stored in run.sealed_chunks.values()}
    ledger = {keys.ledger + part.name: part.sha256 for part in manifest.ledger}
    sealed_first = {keys.chunks + chunk.name: chunk.sha256 for chunk in manifest.chunks}
    known = sealed_first | chunks | ledger
    required: set[str] = set()
    if "chunks" not in purged:
        required.update(chunks)
    if "ledger" not in purged:
        required.update(ledger)
    entries = chain(run.store.keys(keys.chunks), run.store.keys(keys.ledger))
    listed = {entry.key for entry in entries}
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
