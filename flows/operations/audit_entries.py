"""The entries of an issuer's audit trail as they are stored, and what they say of each object."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from flows.errors import CardlinkError
from flows.runs.identity import canonical, digest
from flows.runs.keys import trail
from flows.runs.store import Store, read_if_stored
from flows.runs.threads import concurrently
from flows.runs.trail_entries import COVERS, ENTRY, EVIDENCE, OLD, REPLACED, entry_key
from flows.runs.trail_proof import Prover
from flows.runs.versions import parsed
from schemas.records import AuditEntry

CHANGED = "changed"
REMOVED = "removed"
INSERTED = "inserted"
BROKEN = "does not follow the entry before it"
FORGED = "has a proof that is not by our key"
UNPROVED = "has no proof, after entries that have one"
NEVER_WRITTEN = "named, and never written"


class Finding(NamedTuple):
    """One object that is not as it was recorded.

    `entry`, `by` and `at` are number, author and time of the entry that first names it.
    """

    key: str
    what: str
    entry: int = 0
    by: str = ""
    at: str = ""


class TrailEntry(NamedTuple):
    """One entry as it is stored.

    No content where it is gone, no document where a byte of it was changed.
    """

    number: int
    key: str
    content: bytes
    document: AuditEntry | None

    @property
    def sha256(self) -> str:
        """Its digest, which the next entry holds."""
        return digest(self.content)

    @property
    def head(self) -> str:
        """Its number and digest: all that must be kept to show later that it was there."""
        return f"{self.number}:{self.sha256[:16]}"


class _Mention(NamedTuple):
    """An intact entry that names an object, and its number in the trail."""

    number: int
    entry: AuditEntry
    sha256: str


class Trail:
    """The entries of an issuer's trail, and what the intact ones say about each object."""

    def __init__(self, entries: Sequence[TrailEntry]) -> None:
        self.entries = entries
        self.heads = [entry.head for entry in entries]
        self.accepted: set[str] = set()  # objects about which a finding was accepted
        self._covers = 0  # the kinds of objects that entries name
        self._settled = 0  # up to this entry it is known of everything whether it was written
        self._mentions: dict[str, list[_Mention]] = {}
        self._written_before: set[str] = set()
        for entry in entries:
            if entry.document is not None:
                self._read(entry.number, entry.document)

    def _read(self, number: int, entry: AuditEntry) -> None:
        for key, sha256 in entry.objects.items():
            self._mentions.setdefault(key, []).append(_Mention(number, entry, sha256))
        self._written_before.update(entry.older)
        self._settled = max(self._settled, entry.settled)
        self._covers = max(self._covers, entry.covers)
        if entry.reason:
            self.accepted.update(entry.objects)

    @property
    def older(self) -> set[str]:
        """What was written before entries named things of its kind, and no entry names since."""
        return self._written_before - self._mentions.keys()

    @property
    def named(self) -> set[str]:
        """Every object that an entry names, or that the first entry knew as older."""
        return self._written_before | self._mentions.keys()

    def finding(self, key: str, sha256: str) -> Finding | None:
        """Return what is wrong with an object of that digest; "": it is gone.

        What was named and never written is one too (NEVER_WRITTEN), as long as no later command has
        said so.
        """
        mentions = self._mentions.get(key)
        if mentions is None:
            if not sha256:
                return Finding(key, REMOVED)
            return None if self._needs_no_entry(key) else Finding(key, INSERTED)
        if sha256 in _expected(key, mentions):
            return None
        last = mentions[-1]
        is_open = last.entry.covers > 1 and last.number > self._settled
        if is_open and sha256 in {"", *(mention.sha256 for mention in mentions)}:
            return _finding(key, NEVER_WRITTEN, last)
        return _finding(key, CHANGED if sha256 else REMOVED, mentions[0])

    def _needs_no_entry(self, key: str) -> bool:
        """Return whether an object that no entry names may be there."""
        if key in self._written_before or not self.entries:
            return True  # a trail that is missing is a finding of its own
        return self._covers < COVERS and EVIDENCE.fullmatch(key) is not None

    def named_at(self, key: str) -> datetime | None:
        """Return when an object was named last, None where it never was."""
        mentions = self._mentions.get(key)
        return mentions[-1].entry.at if mentions else None


def _finding(key: str, difference: str, mention: _Mention) -> Finding:
    entry = mention.entry
    return Finding(key, difference, mention.number, entry.by, f"{entry.at:%Y-%m-%d %H:%M:%S}")


def _expected(key: str, mentions: Sequence[_Mention]) -> set[str]:
    """Return the digests that an object may have, as the trail names it; "": it may be gone.

    A record is written once, by one of those who named it. Of what is written again the last time
    counts, and what others named at about the same time.
    """
    if not REPLACED.fullmatch(key):
        return {mention.sha256 for mention in mentions}
    counting = list[_Mention]()
    for mention in mentions:
        if mention.entry.reason:
            counting = [mention]
        elif mention.sha256:
            counting.append(mention)
        elif counting:  # the time before was not written after all
            counting.pop()
    if not counting:
        return {""}
    last = counting[-1].entry.at
    return {mention.sha256 for mention in counting if mention.entry.at >= last - OLD}


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


def _intact(content: bytes, key: str) -> AuditEntry | None:
    """Return an entry, None where its content does not fit its seal."""
    with suppress(CardlinkError):
        document = parsed(content, key, AuditEntry)
        # its seal is of unknown fields too
        stored = json.loads(content)
        if canonical({**stored, "seal": digest(_sealed(stored))}) == content:
            return document
    return None


def _sealed(stored: Mapping[str, object]) -> bytes:
    """Return what seal and proof of an entry are of."""
    unproved = {name: fact for name, fact in stored.items() if name != "proof"}
    return canonical({**unproved, "seal": ""})


def digests(store: Store, keys: Collection[str]) -> dict[str, str]:
    """Return the digests of objects by key, "" where there is none."""

    def digest_of(key: str) -> str:
        content = read_if_stored(store, key)
        return digest(content) if content else ""

    return dict(zip(keys, concurrently(digest_of, keys), strict=True))


def entry_findings(
    store: Store, issuer: str, entries: Sequence[TrailEntry], prover: Prover
) -> Iterator[Finding]:
    """Yield what is wrong with the entries themselves.

    Behind one that is wrong, the next cannot be judged.
    """
    before: str | None = ""
    is_proved = False
    for entry in entries:
        if entry.document is None:
            yield Finding(entry.key, CHANGED if entry.content else REMOVED, entry.number)
            before = None
            continue
        if before not in (None, entry.document.before):
            yield Finding(entry.key, BROKEN, entry.number)
        before = entry.sha256
        if entry.document.proof and not _may_be_proof(entry, prover):
            yield Finding(entry.key, FORGED, entry.number)
        elif is_proved and not entry.document.proof:
            yield Finding(entry.key, UNPROVED, entry.number, entry.document.by)
        is_proved = is_proved or bool(entry.document.proof)
    keys = {entry.key for entry in entries}
    for stored in store.keys(trail(issuer)):
        if stored.key not in keys:
            yield Finding(stored.key, INSERTED)


def _may_be_proof(entry: TrailEntry, prover: Prover) -> bool:
    """Return whether the proof is right, or by a key that is not at hand."""
    document = entry.document
    if document is None:
        return False
    content = _sealed(json.loads(entry.content))
    return prover.is_proof(document.proof, content, document.proved_by) is not False


def unverified(entries: Sequence[TrailEntry], prover: Prover) -> int:
    """Return how many entries have a proof by a key that is not at hand."""
    documents = [entry.document for entry in entries if entry.document is not None]
    proved = [document for document in documents if document.proof]
    return sum(
        prover.is_proof(document.proof, b"", document.proved_by) is None for document in proved
    )
