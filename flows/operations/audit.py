"""The proof of an issuer's audit trail: what was changed, removed or inserted; and the evidence of
one run.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from io import BytesIO
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

from flows.errors import CardlinkError
from flows.runs.chains import ENTRY, RECORDS, AuditTrail, entry_key, record_keys, records
from flows.runs.chunks import stored_chunks
from flows.runs.claim import IN_PROCESS
from flows.runs.context import IssuerContext
from flows.runs.documents import (
    NotFoundError,
    UnknownRunError,
    keys_of,
    planned,
    read_end,
    read_manifest,
    read_plan,
    read_purged,
    run_ids,
)
from flows.runs.identity import canonical, digest
from flows.runs.keys import RunKeys, approvals, dismissed, extracts, purged, trail
from flows.runs.store import ConflictError, Store, concurrently, read, read_if_stored
from flows.runs.versions import parsed, read_events
from flows.submissions.plan import dismissals
from flows.submissions.seal_records import GROUP, SealRecords
from schemas.manifest import Manifest
from schemas.records import PARTS, Abandoned, Approval, AuditEntry, Closing, Reseal

CHANGED, REMOVED, INSERTED, BROKEN = (
    "changed",
    "removed",
    "inserted",
    "does not follow the entry before it",
)
REPORTS = ("summary.json", "chunks.csv")  # those without cardholders and links


class Finding(NamedTuple):
    """One object that is not as it was recorded; the number, author and time of the entry that
    first names it.
    """

    key: str
    what: str
    entry: int = 0
    by: str = ""
    at: str = ""


class Proof(NamedTuple):
    """What was compared and what does not fit, first in the order of the trail; of `older` only the
    names are known.

    `head` is number and digest of the last entry: kept elsewhere, it shows when the end of the trail is cut off.
    """

    entries: int
    objects: int
    older: int
    head: str
    findings: tuple[Finding, ...]
    accepted: tuple[str, ...]


class _Entry(NamedTuple):
    """One entry as it is stored; no content where it is gone, no document where a byte of it was
    changed.
    """

    number: int
    key: str
    content: bytes
    document: AuditEntry | None


def verify(store: Store, issuer: str, head: str = "") -> Proof:
    """Compare everything an issuer's trail names with what is stored; `head`, of an earlier proof,
    must be in it.
    """
    # before the trail: a record is named first
    stored = _digests(store, list(record_keys(store, issuer)))
    entries = _entries(store, issuer)
    sound = [(one.number, one.document) for one in entries if one.document]
    named: dict[str, list[tuple[int, AuditEntry]]] = {}
    for number, entry in sound:
        for key in entry.objects:
            named.setdefault(key, []).append((number, entry))
    older = {key for _, entry in sound for key in entry.older} - named.keys()
    stored |= _digests(store, [key for key in named.keys() | older if key not in stored])
    judged = (
        _judge(key, sha256, named.get(key, []), older, entries) for key, sha256 in stored.items()
    )
    findings = [*_broken(store, issuer, entries), *filter(None, judged)]
    findings += _contents(store, issuer, {one.key for one in findings})
    heads = [f"{one.number}:{digest(one.content)[:16]}" for one in entries]
    if head and head not in heads:
        findings.append(
            Finding(trail(issuer), f"lacks the entry {head} of an earlier proof", len(heads))
        )
    accepted = {key for _, entry in sound if entry.reason for key in entry.objects} - {
        one.key for one in findings
    }
    ranked = sorted(findings, key=lambda one: (one.entry or len(heads) + 1, one.key))
    there, last = sum(1 for sha256 in stored.values() if sha256), heads[-1] if heads else ""
    return Proof(len(heads), there, len(older), last, tuple(ranked), tuple(sorted(accepted)))


def accept(context: IssuerContext, key: str, reason: str) -> Finding:
    """Record why a finding about a record is accepted as it is now; NotFoundError,
    NoReasonError.
    """
    issuer, adapters, why = (
        context.issuer.issuer,
        context.adapters,
        context.adapters.signed(reason)["reason"],
    )
    found = next((one for one in verify(adapters.store, issuer).findings if one.key == key), None)
    if found is None or not RECORDS.fullmatch(key):
        what, command = f"finding {key} that can be accepted", f"cardlink audit verify {issuer}"
        raise NotFoundError(place=issuer, what=what, command=command)
    AuditTrail(adapters.store, adapters.actor, adapters.now).add(
        issuer, _digests(adapters.store, [key]), why
    )
    return found


def evidence(context: IssuerContext, run: str) -> dict[str, bytes]:
    """Return the files that prove what happened to a run: its records, requests, reports, and its
    part of the trail.

    Nothing in them names a cardholder, a card or a link; chunks, ledger, lists and links are there
    by digest only.
    """
    store, issuer, keys = context.adapters.store, context.issuer.issuer, keys_of(run)
    plan = planned(store, run)
    subjects = {run, plan.source.key.removeprefix(extracts(issuer))}
    prefixes = [keys.base, f"{purged(issuer)}{run}/", f"{dismissed(issuer)}{plan.source.sha256}/"]
    for chain in store.keys(approvals(issuer), shallow=True):
        first = next(records(store, chain.key, Approval), None)
        prefixes += [chain.key] if first and any(one in first.line for one in subjects) else []
    names = [key for key in record_keys(store, issuer) if key.startswith(tuple(prefixes))]
    names += [entry.key for entry in store.keys(keys.report("")) if entry.key.endswith(REPORTS)]
    files = {key.removeprefix(f"{issuer}/"): read(store, key) for key in names}
    everything = _digests(store, [entry.key for entry in store.keys(keys.base)])
    files["objects.sha256"] = "".join(
        f"{sha256}  {key}\n" for key, sha256 in everything.items()
    ).encode()
    files["trail.jsonl"] = b"".join(one.content for one in _entries(store, issuer))
    return files


def bundle(files: Mapping[str, bytes]) -> bytes:
    """Return files as a zip, with their digests in SHA256SUMS."""
    sums = "".join(f"{digest(content)}  {name}\n" for name, content in sorted(files.items()))
    out = BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED) as archive:
        for name, content in sorted({**files, "SHA256SUMS": sums.encode()}.items()):
            archive.writestr(name, content)
    return out.getvalue()


def _entries(store: Store, issuer: str) -> list[_Entry]:
    """Return the entries of an issuer's trail from the first to the last that is listed."""
    found = (ENTRY.fullmatch(entry.key) for entry in store.keys(trail(issuer)))
    last = max((int(one[1]) for one in found if one), default=0)
    wanted = [entry_key(issuer, number) for number in range(1, last + 1)]
    contents = concurrently(lambda key: read_if_stored(store, key) or b"", wanted)
    return [
        _Entry(at, key, contents[at - 1], _parsed(contents[at - 1], key))
        for at, key in enumerate(wanted, 1)
    ]


def _parsed(content: bytes, key: str) -> AuditEntry | None:
    with suppress(CardlinkError):
        # its seal is of unknown fields too
        entry, stored = parsed(content, key, AuditEntry), json.loads(content)
        whole = canonical({**stored, "seal": digest(canonical({**stored, "seal": ""}))}) == content
        return entry if whole else None
    return None


def _broken(store: Store, issuer: str, entries: Sequence[_Entry]) -> Iterator[Finding]:
    """Yield what is wrong with the entries themselves; behind one that is wrong, the next cannot be
    judged.
    """
    before: str | None = ""
    for one in entries:
        if one.document is None:
            yield Finding(one.key, CHANGED if one.content else REMOVED, one.number)
        elif before not in (None, one.document.before):
            yield Finding(one.key, BROKEN, one.number)
        before = digest(one.content) if one.document else None
    wanted = {one.key for one in entries}
    yield from (
        Finding(entry.key, INSERTED)
        for entry in store.keys(trail(issuer))
        if entry.key not in wanted
    )


def _judge(
    key: str,
    sha256: str,
    named: Sequence[tuple[int, AuditEntry]],
    older: Collection[str],
    entries: Sequence[_Entry],
) -> Finding | None:
    """Return what is wrong with a record, by the entries that name it; without any entry nothing
    was named yet.
    """
    if sha256 in [entry.objects[key] for _, entry in named] or (
        sha256 and (key in older or not entries)
    ):
        return None
    what = REMOVED if not sha256 else CHANGED if named else INSERTED
    number, entry = named[0] if named else (0, None)
    return (
        Finding(key, what, number, entry.by, f"{entry.at:%Y-%m-%d %H:%M:%S}")
        if entry
        else Finding(key, what)
    )


def _contents(store: Store, issuer: str, wrong: Collection[str]) -> Iterator[Finding]:
    """Yield chunks, ledger parts and seal records that are not those their manifests name."""
    for run in run_ids(store, issuer):
        keys = RunKeys(run)
        # a changed manifest may name any run and chunks
        if not any(key.startswith(keys.base) for key in wrong):
            with suppress(ConflictError):  # a finding already
                manifest = read_manifest(store, keys)
                yield from () if manifest is None else _content(store, manifest)


def _content(store: Store, manifest: Manifest) -> Iterator[Finding]:
    keys = keys_of(manifest.run)
    gone = {part for part in PARTS if read_purged(store, keys, part) is not None}
    now = {one.key: one.chunk.sha256 for one in stored_chunks(store, manifest).values()}
    parts = {keys.ledger + one.name: one.sha256 for one in manifest.ledger}
    known = {keys.chunks + one.name: one.sha256 for one in manifest.chunks} | now | parts
    must = ({} if "chunks" in gone else now) | ({} if "ledger" in gone else parts)
    listed = [entry.key for prefix in (keys.chunks, keys.ledger) for entry in store.keys(prefix)]
    for key, sha256 in _digests(store, sorted({*listed, *known})).items():
        if sha256 != known.get(key) and (sha256 or key in must):
            yield Finding(key, INSERTED if key not in known else CHANGED if sha256 else REMOVED)
    for first in () if "ledger" in gone else range(0, len(manifest.chunks), GROUP):
        with suppress(ConflictError):
            written = SealRecords(store, keys.seals, first // GROUP)
            if all(
                written.names(one.name, one.sha256)
                for one in manifest.chunks[first : first + GROUP]
            ):
                continue
        yield Finding(f"{keys.seals}{first // GROUP:05d}-001.json", CHANGED)


def _digests(store: Store, keys: Collection[str]) -> dict[str, str]:
    """Return the digests of objects by key, "" where there is none."""
    found = concurrently(
        lambda key: digest(content) if (content := read_if_stored(store, key)) else "", keys
    )
    return dict(zip(keys, found, strict=True))


class HistoryEvent(NamedTuple):
    """One thing that happened: when (ISO), what, by whom (empty where the object does not say), and
    its facts.
    """

    at: str
    what: str
    by: str
    facts: dict[str, Any]


def history(store: Store, run: str) -> list[HistoryEvent]:
    """Return everything that happened to a run, oldest first; UnknownRunError where no run has that
    id.
    """
    keys = keys_of(run)
    noted = read_events(store, list(store.keys(keys.events)))
    events = (
        HistoryEvent(event.pop("at"), event.pop("what"), event.pop("by"), event) for event in noted
    )
    found = [*_planned(store, keys), *_claimed(store, keys), *events, *_ended(store, keys)]
    found += _records(store, keys)
    if not found:
        raise UnknownRunError(run=run)
    return sorted(found, key=lambda one: datetime.fromisoformat(one.at))


def _planned(store: Store, keys: RunKeys) -> Iterator[HistoryEvent]:
    if (plan := read_plan(store, keys)) is not None:
        source = {
            "extract": plan.source.key,
            "version": plan.source.version,
            "sha256": plan.source.sha256,
        }
        facts = {
            **source,
            "bytes": plan.source.size,
            "as_of": str(plan.as_of),
            "settings": plan.settings_sha256,
        }
        facts |= {"sealed to": list(plan.recipients)} | (
            {"reason": plan.reason} if plan.reason else {}
        )
        yield HistoryEvent(_written(store, keys.plan), "planned", "", facts)


def _claimed(store: Store, keys: RunKeys) -> Iterator[HistoryEvent]:
    """Yield who claimed the run and who gave it back; renewals are left out."""
    holder = ""  # empty once the claim was given back
    for claim in read_events(store, list(store.keys(keys.claims))):
        since, until = (datetime.fromisoformat(claim[name]) for name in ("since", "until"))
        returned = until <= since
        if returned or claim["holder"] != holder:
            name = claim["holder"].partition(IN_PROCESS)[0]
            yield HistoryEvent(
                since.isoformat(), "claim given back" if returned else "claimed", name, {}
            )
        holder = "" if returned else claim["holder"]


def _ended(store: Store, keys: RunKeys) -> Iterator[HistoryEvent]:
    end = read_end(store, keys)
    if isinstance(end, Abandoned):
        yield HistoryEvent(end.at.isoformat(), "abandoned", end.by, {"reason": end.reason})
    elif end is not None:
        rows = end.counts.model_dump(exclude={"lines"}, exclude_none=True)
        sha256 = digest(read(store, keys.manifest))
        facts = {**rows, "chunks": len(end.chunks), "sha256": sha256}
        yield HistoryEvent(_written(store, keys.manifest), "manifest written", "", facts)


def _records(store: Store, keys: RunKeys) -> Iterator[HistoryEvent]:
    """Yield what was added after the commit: breaks closed, chunks sealed anew, extract dismissed,
    parts purged.
    """
    facts: dict[str, Any]
    for closing in records(store, keys.closed, Closing):
        facts = {
            "break": closing.name,
            "place": closing.place,
            "rows": closing.rows,
            "reason": closing.reason,
        }
        yield HistoryEvent(closing.at.isoformat(), f"break {closing.what}", closing.by, facts)
    for one in records(store, keys.reseals, Reseal):
        facts = {"chunks": [chunk.name for chunk in one.chunks], "sealed to": list(one.recipients)}
        yield HistoryEvent(
            one.at.isoformat(), "sealed anew", one.by, {**facts, "reason": one.reason}
        )
    plan = read_plan(store, keys)
    for decided in dismissals(store, keys.run.issuer, plan.source.sha256) if plan else ():
        facts = {"extract": decided.key, "reason": decided.reason}
        yield HistoryEvent(decided.at.isoformat(), f"extract {decided.what}", decided.by, facts)
    for part in PARTS:
        gone = read_purged(store, keys, part)
        if gone is not None:
            facts = {
                "objects": sum(gone.objects.values()),
                "bytes": gone.bytes,
                "setting": gone.setting,
            }
            yield HistoryEvent(gone.at.isoformat(), f"{part} purged", gone.by, facts)


def _written(store: Store, key: str) -> str:
    with store.open(key) as source:
        return source.entry.modified.isoformat()
