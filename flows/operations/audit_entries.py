"""The entries of an issuer's audit trail as they are stored, and what they say of each object."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from flows.errors import CardlinkError
from flows.runs.documents import parsed
from flows.runs.identity import digest
from flows.runs.keys import trail
from flows.runs.read_once import read_once
from flows.runs.store import ConflictError, Store, read_if_stored
from flows.runs.threads import concurrently
from flows.runs.trail_entries import ENTRY, OLD, REPLACED, entry_key
from flows.runs.trail_proof import Prover
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


class TrailEntry:
    """One entry as it is stored: its content is read when it is asked for, where only its digest is
    known.

    No content where it is gone, no document where a byte of it was changed.
    """

    def __init__(self, store: Store, number: int, key: str, sha256: str = "") -> None:
        self._store = store
        self.number = number
        self.key = key
        if sha256:
            self.__dict__["sha256"] = sha256

    @read_once
    def content(self) -> bytes:
        """Its bytes."""
        return read_if_stored(self._store, self.key) or b""

    @read_once
    def document(self) -> AuditEntry | None:
        """What it says; None where its content does not fit its seal."""
        return _intact(self.content, self.key)

    @read_once
    def sha256(self) -> str:
        """Its digest, which the next entry holds."""
        return digest(self.content)

    @property
    def head(self) -> str:
        """Its number and digest: all that must be kept to show later that it was there."""
        return f"{self.number}:{self.sha256[:16]}"


class Mention(NamedTuple):
    """The number of an intact entry that names an object, and the digest that it gives."""

    number: int
    sha256: str


class ProvenTrail(BaseModel):
    """What the first so many entries of a trail say, all of them intact; `sha256` is of their
    digests.

    The fields are those of `Trail`; `proofs`: how many have a proof, by the key that made it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    entries: int = 0
    sha256: str = ""
    mentions: dict[str, list[Mention]] = {}
    written_before: frozenset[str] = frozenset()
    accepted: frozenset[str] = frozenset()
    settled: int = 0
    proofs: dict[str, int] = {}

    def begins(self, entries: Sequence[TrailEntry]) -> bool:
        """Return whether a trail begins with these entries."""
        return self.entries <= len(entries) and self.sha256 == _digest_of(entries[: self.entries])


NOTHING_PROVEN = ProvenTrail()


def _digest_of(entries: Iterable[TrailEntry]) -> str:
    return digest("\n".join(entry.sha256 for entry in entries).encode())


class Trail:
    """The entries of an issuer's trail, and what the intact ones say about each object.

    `proven`: what is known of the first ones, which are not read again.
    """

    def __init__(self, entries: Sequence[TrailEntry], proven: ProvenTrail = NOTHING_PROVEN) -> None:
        self.entries = entries
        self.heads = [entry.head for entry in entries]
        self.accepted = set(proven.accepted)  # objects about which a finding was accepted
        # up to this entry it is known of everything whether it was written
        self._settled = proven.settled
        self._mentions = {key: list(mentions) for key, mentions in proven.mentions.items()}
        self._written_before = set(proven.written_before)
        self.proofs = Counter(proven.proofs)  # entries that have one, by key
        for entry in entries[proven.entries :]:
            if entry.document is not None:
                self._read(entry.number, entry.document)

    def _read(self, number: int, entry: AuditEntry) -> None:
        for key, sha256 in entry.objects.items():
            self._mentions.setdefault(key, []).append(Mention(number, sha256))
        self._written_before.update(entry.older)
        self._settled = max(self._settled, entry.settled)
        if entry.reason:
            self.accepted.update(entry.objects)
        if entry.proof:
            self.proofs[entry.proved_by] += 1

    def as_proven(self) -> ProvenTrail:
        """Return what another proof need not read again; every entry is intact."""
        return ProvenTrail(
            entries=len(self.entries),
            sha256=_digest_of(self.entries),
            mentions=self._mentions,
            written_before=frozenset(self._written_before),
            accepted=frozenset(self.accepted),
            settled=self._settled,
            proofs=dict(self.proofs),
        )

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
        if sha256 in self._expected(key, mentions):
            return None
        last = mentions[-1]
        is_open = last.number > self._settled
        if is_open and sha256 in {"", *(mention.sha256 for mention in mentions)}:
            return self._named_finding(key, NEVER_WRITTEN, last)
        return self._named_finding(key, CHANGED if sha256 else REMOVED, mentions[0])

    def _needs_no_entry(self, key: str) -> bool:
        """Return whether an object that no entry names may be there."""
        # a trail that is missing is a finding of its own
        return key in self._written_before or not self.entries

    def named_at(self, key: str) -> datetime | None:
        """Return when an object was named last, None where it never was."""
        mentions = self._mentions.get(key)
        return self._entry(mentions[-1]).at if mentions else None

    def _entry(self, mention: Mention) -> AuditEntry:
        entry = self.entries[mention.number - 1]
        if entry.document is None:
            raise ConflictError(key=entry.key)  # it was intact when it was proven
        return entry.document

    def _named_finding(self, key: str, difference: str, mention: Mention) -> Finding:
        entry = self._entry(mention)
        return Finding(key, difference, mention.number, entry.by, entry.at.isoformat())

    def _expected(self, key: str, mentions: Sequence[Mention]) -> set[str]:
        """Return the digests that an object may have, as the trail names it; "": it may be gone.

        A record is written once, by one of those who named it. Of what is written again the last
        time counts, and what others named at about the same time.
        """
        if len(mentions) == 1 or not REPLACED.fullmatch(key):
            return {mention.sha256 for mention in mentions}
        counting = list[Mention]()
        for mention in mentions:
            if self._entry(mention).reason:
                counting = [mention]
            elif mention.sha256:
                counting.append(mention)
            elif counting:  # the time before was not written after all
                counting.pop()
        if not counting:
            return {""}
        last = self._entry(counting[-1]).at
        return {mention.sha256 for mention in counting if self._entry(mention).at >= last - OLD}


def trail_entries(store: Store, issuer: str) -> list[TrailEntry]:
    """Return the entries of an issuer's trail from the first to the last that is listed."""
    last = last_number(entry.key for entry in store.keys(trail(issuer)))
    numbers = range(1, last + 1)
    entries = [TrailEntry(store, number, entry_key(issuer, number)) for number in numbers]
    concurrently(lambda entry: entry.content, entries)
    return entries


def last_number(keys: Iterable[str]) -> int:
    """Return the highest number of an entry among some keys, 0 where there is none."""
    matches = map(ENTRY.fullmatch, keys)
    return max((int(match[1]) for match in matches if match), default=0)


def _intact(content: bytes, key: str) -> AuditEntry | None:
    """Return an entry, None where its content does not fit its seal."""
    with suppress(CardlinkError):
        document = parsed(content, key, AuditEntry)
        if digest(_sealed(content, document)) == document.seal:
            return document
    return None


def _sealed(content: bytes, document: AuditEntry) -> bytes:
    """Return what seal and proof of an entry are of: its content without them.

    That is faster than to write it anew.
    """
    for name, mark in (("seal", document.seal), ("proof", document.proof)):
        content = content.replace(f'"{name}":"{mark}"'.encode(), f'"{name}":""'.encode(), 1)
    return content


def digests(store: Store, keys: Collection[str]) -> dict[str, str]:
    """Return the digests of objects by key, "" where there is none."""

    def digest_of(key: str) -> str:
        content = read_if_stored(store, key)
        return digest(content) if content else ""

    return dict(zip(keys, concurrently(digest_of, keys), strict=True))


def entry_findings(
    entries: Sequence[TrailEntry],
    listed: Iterable[str],
    prover: Prover,
    proven: ProvenTrail = NOTHING_PROVEN,
) -> Iterator[Finding]:
    """Yield what is wrong with the entries themselves, those apart that are proven.

    Behind one that is wrong, the next cannot be judged. `listed`: the keys below the trail.
    """
    later = entries[proven.entries :]
    yield from _chain_findings(later, entries[proven.entries - 1].sha256 if proven.entries else "")
    yield from _proof_findings(later, prover, is_proved=bool(proven.proofs))
    keys = {entry.key for entry in entries}
    yield from (Finding(key, INSERTED) for key in listed if key not in keys)


def _chain_findings(entries: Sequence[TrailEntry], before: str | None) -> Iterator[Finding]:
    """Yield the entries that are not as they were written, or do not name the one before them.

    `before`: the digest of the entry before the first.
    """
    for entry in entries:
        if entry.document is None:
            yield Finding(entry.key, CHANGED if entry.content else REMOVED, entry.number)
            before = None
            continue
        if before not in (None, entry.document.before):
            yield Finding(entry.key, BROKEN, entry.number)
        before = entry.sha256


def _proof_findings(
    entries: Sequence[TrailEntry], prover: Prover, *, is_proved: bool
) -> Iterator[Finding]:
    """Yield the entries with a wrong proof, and those without one behind the first that has one.

    `is_proved`: an entry before these has one.
    """
    for entry in entries:
        document = entry.document
        if document is None:
            continue
        if document.proof:
            is_proved = True
            if not _may_be_proof(entry, document, prover):
                yield Finding(entry.key, FORGED, entry.number)
        elif is_proved:
            yield Finding(entry.key, UNPROVED, entry.number, document.by)


def _may_be_proof(entry: TrailEntry, document: AuditEntry, prover: Prover) -> bool:
    """Return whether the proof is right, or by a key that is not at hand."""
    content = _sealed(entry.content, document)
    return prover.is_proof(document.proof, content, document.proved_by) is not False


def unverified(proofs: Mapping[str, int], prover: Prover) -> int:
    """Return how many entries have a proof by a key that is not at hand; `proofs` as in `Trail`."""
    return sum(number for key, number in proofs.items() if prover.is_proof("", b"", key) is None)
