"""Two files that are one extract: which they are, and what identifies them together.

What `*` stands for in the name of the extract, it stands for in that of the second file. Both are
pinned, and the digest of the two digests identifies the extract, so that another second file is
another extract.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from flows.runs.store import Entry, Store
from schemas.manifest import SourceIdentity
from schemas.source import SourceSettings


def partner(key: str, source: SourceSettings) -> str | None:
    """Return the key of the second file of an extract, None where it has none."""
    if source.join is None:
        return None
    folder, name = _split(key)
    before, _, after = source.pattern.partition("*")
    shape = f"{re.escape(before)}(.*){re.escape(after)}"
    own = re.fullmatch(shape, name, re.DOTALL)
    return folder + source.join.pattern.replace("*", own[1]) if own else None


def is_partner(name: str, source: SourceSettings) -> bool:
    """Return whether a file of this name is the second of an extract, and none itself."""
    return source.join is not None and fnmatchcase(name, source.join.pattern)


def with_partner(entry: Entry, files: Mapping[str, Entry], source: SourceSettings) -> Entry:
    """Return an extract as listed, together with its second file where it has one in `files`."""
    second = files.get(partner(entry.key, source) or "")
    return entry if second is None else _together((entry, second))


def stored_entry(store: Store, source: SourceIdentity) -> Entry:
    """Return an extract as it is stored now, with its second file where its run had one."""
    entries = []
    for key in [file.key for file in source.files] or [source.key]:
        with store.open(key) as stream:
            entries.append(stream.entry)
    return entries[0] if len(entries) == 1 else _together(entries)


def combined_digest(digests: Sequence[str]) -> str:
    """Return what identifies files together: the SHA-256 of their digests, a line each."""
    return hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()


def _together(entries: Sequence[Entry]) -> Entry:
    return Entry(
        key=entries[0].key,
        size=sum(entry.size for entry in entries),
        modified=max(entry.modified for entry in entries),
        version=" ".join(entry.version for entry in entries),
        files=tuple(entries),
    )


def _split(key: str) -> tuple[str, str]:
    """Return the folder of extracts in a key, with its slash, and the name below it."""
    issuer, extracts, name = key.partition("/extracts/")
    return (issuer + extracts, name) if extracts else ("", key)
