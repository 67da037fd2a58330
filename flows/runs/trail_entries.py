"""What an issuer's audit trail names, where its entries are, and how they are read."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count

from flows.runs.documents import read_document
from flows.runs.identity import digest
from flows.runs.keys import link, trail
from flows.runs.store import Store, read
from schemas.records import AuditEntry

SKEW = timedelta(minutes=10)  # by which the clocks of machines may differ

FOLDER = 1000  # entries in a folder, so that finding the last one takes two short listings
OLD = timedelta(minutes=15)  # no write takes as long: who named it before that has gone
RECORDS = re.compile(
    r"[^/]+/("
    r"runs/[^/]+/(plan\.json|manifest\.json|(events|reseals|rewritten)/.+)"
    r"|(commits|acknowledgements|given-up|kept-links)/\d{6}\.json"
    r"|deliveries/([a-z][a-z0-9-]*/)?\d{6}(|/confirmed|/taken|/emitted)\.json"
    r"|acknowledgements/confirmed/\d{6}\.json"
    r"|(attributions|backfills|purged|erasures)/.+"
    r")"
)
# what decides who gets which link and is no record
EVIDENCE = re.compile(
    r"[^/]+/("
    r"runs/[^/]+/(claims/\d{6}\.json|outcomes/[^/]+\.parquet)"
    r"|(runs/[^/]+/)?single/.+"
    r"|deliveries/([a-z][a-z0-9-]*/)?\d{6}/(links[^/]*|done\.json)"
    r")"
)
REPLACED = re.compile(r"[^/]+/runs/[^/]+/outcomes/.+")  # may be written again: the last time counts
ENTRY = re.compile(r".*/(\d{6})\.json")


def is_named(key: str) -> bool:
    """Return whether the trail names an object with this key."""
    return bool(RECORDS.fullmatch(key) or EVIDENCE.fullmatch(key))


def entry_key(issuer: str, number: int) -> str:
    """Return the key of an entry, from 1."""
    return link(f"{trail(issuer)}{number // FOLDER:04d}/", number)


def named_keys(store: Store, issuer: str) -> list[str]:
    """Return the keys of all that the trail of an issuer names, and that is stored."""
    return [entry.key for entry in store.keys(f"{issuer}/") if is_named(entry.key)]


def record_keys(store: Store, issuer: str) -> Iterator[str]:
    """Yield the keys of an issuer's records: decisions and facts that are created once and kept."""
    keys = (entry.key for entry in store.keys(f"{issuer}/"))
    return (key for key in keys if RECORDS.fullmatch(key))


def entries_since(store: Store, issuer: str, number: int) -> Iterator[AuditEntry]:
    """Yield the entries after that number; ConflictError for one that cardlink did not write."""
    for later in count(number + 1):
        entry = read_document(store, entry_key(issuer, later), AuditEntry)
        if entry is None:
            return
        yield entry


def digests_named(store: Store, issuer: str, prefix: str, since: datetime) -> dict[str, set[str]]:
    """Return the digests under which the trail names records below a prefix, by key.

    Of the entries since then alone; those of a clock that is a little behind are read as well.
    """
    named: dict[str, set[str]] = {}
    last, _ = last_entry(store, issuer)
    recent = [*entries_since(store, issuer, last), *_entries_back(store, issuer, last)]
    for entry in recent:
        if entry.at < since - SKEW:
            break
        for key, sha256 in entry.objects.items():
            if key.startswith(prefix):
                named.setdefault(key, set()).add(sha256)
    return named


def _entries_back(store: Store, issuer: str, last: int) -> Iterator[AuditEntry]:
    """Yield the entries up to that number, the last first; one that is gone is left out."""
    for number in range(last, 0, -1):
        entry = read_document(store, entry_key(issuer, number), AuditEntry)
        if entry is not None:
            yield entry


def last_entry(store: Store, issuer: str) -> tuple[int, str]:
    """Return number and digest of the last entry that a listing shows.

    A later one is met when adding.
    """
    last_folder = trail(issuer)
    for folder in store.keys(trail(issuer), shallow=True):
        last_folder = folder.key
    matches = (ENTRY.fullmatch(entry.key) for entry in store.keys(last_folder))
    entries = [match for match in matches if match]
    if not entries:
        return 0, ""
    return int(entries[-1][1]), digest(read(store, entries[-1][0]))
