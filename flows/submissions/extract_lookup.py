"""An extract by its name, and its identity: the digest of its bytes."""

import hashlib
from contextlib import closing

from flows.errors import OperatorError
from flows.extracts.delivery import ExtractWaitsError, companions, waits_for, with_second_file
from flows.extracts.errors import checked_name
from flows.extracts.opening import combined_digest
from flows.runs.context import IssuerContext
from flows.runs.dropped_files import dropped_files
from flows.runs.keys import extracts
from flows.runs.store import Entry, Store
from flows.runs.threads import prefetch
from schemas.manifest import SourceFile, SourceIdentity

PIECE = 1 << 22  # bytes read at a time


class ExtractNotFoundError(OperatorError):
    """There is no extract of that name."""

    message = "No extract {name} under {prefix}. Available: {available}."
    next_step = "Name one of those, or wait for the issuer's delivery."


def find_extract(context: IssuerContext, name: str) -> Entry:
    """Return the extract of that name (or key below the extracts).

    Raises ExtractNotFoundError, ExtractWaitsError, VerdictRefusedError.
    """
    prefix = extracts(context.issuer.issuer)
    dropped = dropped_files(context.adapters.store, prefix)
    files = {entry.key: entry for entry in dropped.files}
    endings = companions(context.issuer.source)
    listed = [entry for key, entry in files.items() if not key.endswith(endings)]
    checked_name(name)
    for entry in listed:
        if entry.key in (name, prefix + name):
            waits = waits_for(context, entry, files)
            if waits:
                raise ExtractWaitsError(extract=entry.key, missing=waits)
            return with_second_file(entry, files, context.issuer.source)
    newest = sorted(listed, key=lambda entry: entry.modified)[-3:]
    available = ", ".join(entry.key.removeprefix(prefix) for entry in newest) or "nothing"
    raise ExtractNotFoundError(name=name, prefix=prefix, available=available)


def identify(store: Store, entry: Entry) -> SourceIdentity:
    """Read the extract once, pinned, for its SHA-256 and its size in bytes and lines.

    With a second file, both are read, and identified together.
    """
    if not entry.files:
        return _identify_file(store, entry)
    identities = [_identify_file(store, file) for file in entry.files]
    files = [
        SourceFile(key=file.key, version=file.version, size=file.size, sha256=file.sha256)
        for file in identities
    ]
    return SourceIdentity(
        key=entry.key,
        version=entry.version,
        size=sum(file.size for file in files),
        sha256=combined_digest([file.sha256 for file in files]),
        newlines=identities[0].newlines,
        files=tuple(files),
    )


def _identify_file(store: Store, entry: Entry) -> SourceIdentity:
    hasher = hashlib.sha256()
    size = 0
    newlines = 0
    with store.open(entry.key, entry) as source:
        pieces = prefetch(iter(lambda: source.read(PIECE), b""))
        with closing(pieces):
            for piece in pieces:
                hasher.update(piece)
                size += len(piece)
                newlines += piece.count(b"\n")
    return SourceIdentity(
        key=entry.key,
        version=entry.version,
        size=size,
        sha256=hasher.hexdigest(),
        newlines=newlines,
    )
