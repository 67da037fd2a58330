"""The proof of an issuer's audit trail: what was changed, removed or put between; and the evidence of one run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

from pydantic import ValidationError

from flows.errors import OperatorError
from flows.operations.remediation import checked_reason
from flows.runs.chains import records
from flows.runs.chunks import stored_chunks
from flows.runs.context import IssuerContext
from flows.runs.documents import UnknownRunError, keys_of, manifests, read_plan, read_purged
from flows.runs.identity import canonical, digest
from flows.runs.keys import approvals, dismissed, extracts, purged, trail
from flows.runs.store import ConflictError, ObjectMissingError, Store, read
from flows.runs.trail import ENTRY, RECORDS, AuditTrail, entry_key, record_keys, sealed
from flows.submissions.publish import GROUP, SealRecords
from schemas.manifest import Manifest
from schemas.records import PARTS, Approval, AuditEntry

READERS = 16  # objects read at a time
CHANGED, REMOVED, BETWEEN, BROKEN = "changed", "removed", "put between", "does not follow the entry before it"
REPORTS = ("summary.json", "chunks.csv", "breaks.csv")  # those without cardholders and links


class NothingToAcceptError(OperatorError):
    """The object is no finding, or none that can be accepted."""

    message = "{key} is no record that `cardlink audit verify {issuer}` finds changed, removed or put between."
    next_step = "Name one of its findings; entries of the trail, chunks and ledgers cannot be accepted, only restored."


class Finding(NamedTuple):
    """One object that is not as it was recorded; the number, author and time of the entry that first names it."""

    key: str
    what: str
    entry: int = 0
    by: str = ""
    at: str = ""


class Proof(NamedTuple):
    """What was compared and what does not fit, first in the order of the trail; of `older` only the names are known.

    `head` is number and digest of the last entry: kept elsewhere, it shows when the end of the trail is cut off.
    """

    entries: int
    objects: int
    older: int
    head: str
    findings: tuple[Finding, ...]
    accepted: tuple[str, ...]


@dataclass
class _Trail:
    """An issuer's trail as it was read: who first names each key, its digests, and what is wrong with the trail."""

    named: dict[str, Finding] = field(default_factory=dict)
    digests: dict[str, set[str]] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    older: set[str] = field(default_factory=set)
    heads: list[str] = field(default_factory=list)
    wrong: list[Finding] = field(default_factory=list)


def verify(store: Store, issuer: str, head: str = "") -> Proof:
    """Compare everything an issuer's trail names with what is stored; `head`, of an earlier proof, must be in it."""
    stored = _digests(store, list(record_keys(store, issuer)))  # before the trail: a record is named first
    found = _read_trail(store, issuer)
    findings = [*found.wrong, *_records(store, found, stored)]
    findings += _contents(store, issuer, {one.key for one in findings})
    if head and head not in found.heads:
        findings.append(Finding(trail(issuer), f"without the entry {head} of an earlier proof", len(found.heads)))
    return Proof(
        len(found.heads),
        len(stored),
        len(found.older - found.digests.keys()),
        found.heads[-1] if found.heads else "",
        tuple(sorted(findings, key=lambda one: (one.entry or len(found.heads) + 1, one.key))),
        tuple(sorted(found.accepted - {one.key for one in findings})),
    )


def accept(context: IssuerContext, key: str, reason: str, *, dry_run: bool = False) -> Finding:
    """Record why a finding is accepted as it is now; NothingToAcceptError, NoReasonError."""
    issuer, adapters, why = context.issuer.issuer, context.adapters, checked_reason(reason)
    found = next((one for one in verify(adapters.store, issuer).findings if one.key == key), None)
    if found is None or not RECORDS.fullmatch(key):
        raise NothingToAcceptError(key=key, issuer=issuer)
    if not dry_run:
        AuditTrail(adapters.store, adapters.actor, adapters.now).add(
            issuer, {key: _digests(adapters.store, [key])[key]}, why
        )
    return found


def evidence(context: IssuerContext, run: str) -> dict[str, bytes]:
    """Return the files that prove what happened to a run: its records, requests, reports, and its part of the trail.

    Nothing in them names a cardholder, a card or a link; chunks, ledger, lists and links are there by digest only.
    """
    store, issuer, keys = context.adapters.store, context.issuer.issuer, keys_of(run)
    plan = read_plan(store, keys)
    if plan is None:
        raise UnknownRunError(run=run)
    subjects = {run, plan.source.key.removeprefix(extracts(issuer))}
    prefixes = [keys.base, f"{purged(issuer)}{run}/", f"{dismissed(issuer)}{plan.source.sha256}/"]
    for chain in store.keys(approvals(issuer), shallow=True):
        first = next(records(store, chain.key, Approval), None)
        prefixes += [chain.key] if first and any(one in first.line for one in subjects) else []
    names = [key for key in record_keys(store, issuer) if key.startswith(tuple(prefixes))]
    names += [entry.key for entry in store.keys(keys.report("")) if entry.key.endswith(REPORTS)]
    files = {key.removeprefix(f"{issuer}/"): read(store, key) for key in names}
    everything = _digests(store, [entry.key for entry in store.keys(keys.base)])
    files["objects.sha256"] = "".join(f"{sha256}  {key}\n" for key, sha256 in everything.items()).encode()
    numbers = range(1, len(_read_trail(store, issuer).heads) + 1)
    files["trail.jsonl"] = b"".join(_stored(store, entry_key(issuer, number)) for number in numbers)
    return files


def bundle(files: Mapping[str, bytes]) -> bytes:
    """Return files as a zip, with their digests in SHA256SUMS."""
    sums = "".join(f"{digest(content)}  {name}\n" for name, content in sorted(files.items()))
    out = BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED) as archive:
        for name, content in sorted({**files, "SHA256SUMS": sums.encode()}.items()):
            archive.writestr(name, content)
    return out.getvalue()


def _read_trail(store: Store, issuer: str) -> _Trail:
    """Read an issuer's entries in order, and judge each by its seal and by the one before."""
    found = _Trail()
    listed = [entry.key for entry in store.keys(trail(issuer))]
    last = max((int(one[1]) for key in listed if (one := ENTRY.fullmatch(key))), default=0)
    wanted = [entry_key(issuer, number) for number in range(1, last + 1)]
    found.wrong += [Finding(key, BETWEEN) for key in listed if key not in set(wanted)]
    before: str | None = ""  # None: the entry before cannot be judged by
    with ThreadPoolExecutor(READERS) as readers:
        for number, content in enumerate(readers.map(lambda key: _stored(store, key), wanted), 1):
            entry = _entry(content)
            what = REMOVED if not content else CHANGED if entry is None else ""
            what = what or (BROKEN if entry and before not in (None, entry.before) else "")
            found.wrong += [Finding(wanted[number - 1], what, number)] if what else []
            before = digest(content) if entry else None
            found.heads.append(f"{number}:{digest(content)[:16]}")
            if entry:
                _note(found, entry, number)
    return found


def _note(found: _Trail, entry: AuditEntry, number: int) -> None:
    """Note what an entry names."""
    found.older |= set(entry.older)
    found.accepted |= set(entry.objects) if entry.reason else set()
    for key, sha256 in entry.objects.items():
        found.named.setdefault(key, Finding(key, "", number, entry.by, entry.at.isoformat(timespec="seconds")))
        found.digests.setdefault(key, set()).add(sha256)


def _entry(content: bytes) -> AuditEntry | None:
    """Return an entry, None where it is not one or a byte of it was changed."""
    with suppress(ValidationError):
        entry = AuditEntry.model_validate_json(content)
        return entry if canonical(sealed(entry)) == content else None
    return None


def _records(store: Store, found: _Trail, stored: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the records that are not as they were named, or not named."""
    late = _digests(store, [key for key in found.digests.keys() | found.older if key not in stored])
    for key, sha256 in {**late, **stored}.items():
        known = found.digests.get(key, set())
        if sha256 not in known and not (sha256 and not known and key in found.older):
            what = REMOVED if not sha256 else CHANGED if known else BETWEEN
            if found.heads or what != BETWEEN:  # without any entry nothing was named yet
                yield found.named.get(key, Finding(key, ""))._replace(what=what)


def _contents(store: Store, issuer: str, wrong: Collection[str]) -> Iterator[Finding]:
    """Yield chunks, ledger parts and seal records that are not those their manifests name."""
    try:
        committed = list(manifests(store, issuer))
    except ConflictError:  # a finding already, and the first thing to put right
        return
    for manifest in committed:
        if not any(key.startswith(keys_of(manifest.run).base) for key in wrong):
            yield from _content(store, manifest)


def _content(store: Store, manifest: Manifest) -> Iterator[Finding]:
    keys = keys_of(manifest.run)
    gone = {part for part in PARTS if read_purged(store, keys, part) is not None}
    now = {one.key: one.chunk.sha256 for one in stored_chunks(store, manifest).values()}
    parts = {keys.ledger + one.name: one.sha256 for one in manifest.ledger}
    known = {keys.chunks + one.name: one.sha256 for one in manifest.chunks} | now | parts
    must = (set() if "chunks" in gone else now.keys()) | (set() if "ledger" in gone else parts.keys())
    listed = [entry.key for prefix in (keys.chunks, keys.ledger) for entry in store.keys(prefix)]
    for key, sha256 in _digests(store, sorted({*listed, *known})).items():
        if key not in known or sha256 not in ("", known[key]) or (not sha256 and key in must):
            yield Finding(key, BETWEEN if key not in known else CHANGED if sha256 else REMOVED)
    for group in () if "ledger" in gone else range((len(manifest.chunks) + GROUP - 1) // GROUP):
        mine = [one for one in manifest.chunks if (one.number - 1) // GROUP == group]
        with suppress(ConflictError):
            written = SealRecords(store, keys.seals, group)
            if all(written.names(one.name, one.sha256) for one in mine):
                continue
        yield Finding(f"{keys.seals}{group:05d}-001.json", CHANGED)


def _digests(store: Store, keys: Collection[str]) -> dict[str, str]:
    """Return the digests of objects by key, "" where there is none."""
    with ThreadPoolExecutor(READERS) as readers:
        found = readers.map(lambda key: _stored(store, key), keys)
        return {key: digest(content) if content else "" for key, content in zip(keys, found, strict=True)}


def _stored(store: Store, key: str) -> bytes:
    try:
        return read(store, key)
    except ObjectMissingError:
        return b""
