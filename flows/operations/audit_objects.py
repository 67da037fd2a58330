"""The objects of an issuer as a proof of its journal sees them: one listing, each object read once.

Whoever writes to the store may exchange an object between two reads of it. So what is judged is the
same bytes whose digest was compared: who opens an object here gets those, or ObjectChangedError.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from io import BytesIO
from itertools import groupby
from typing import Self

from flows.runs.identity import digest
from flows.runs.keys import FOLDER_TIME
from flows.runs.store import (
    Entry,
    ObjectChangedError,
    ObjectMissingError,
    Source,
    Store,
    StoreDeniedError,
)
from flows.runs.threads import concurrently

SMALL = 1 << 14  # bytes: such an object is kept once it was read, and not read again to be judged
ROOM = 1 << 26  # bytes that are kept in all


class Snapshot:
    """What is stored below a prefix: a Store of which nothing is read that was not digested."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._entries = {entry.key: entry for entry in store.keys(prefix)}
        self._keys = sorted(self._entries)
        self._digests: dict[str, str] = {}
        self._contents: dict[str, tuple[bytes, str]] = {}  # and their digests
        self._room = ROOM

    def size(self, key: str) -> int:
        """Return the size of an object as it was listed."""
        return self._entries[key].size

    def below(self, prefix: str) -> list[str]:
        """Return the listed keys that begin with a prefix, in order."""
        first = bisect_left(self._keys, prefix)
        end = bisect_left(self._keys, f"{prefix}\U0010ffff")
        return self._keys[first:end]

    def digests(self, keys: Collection[str]) -> dict[str, str]:
        """Return the digests of objects by key, "" where there is none."""
        unread = [key for key in keys if key not in self._digests]
        for key, sha256 in zip(unread, concurrently(self._digest, unread), strict=True):
            self._digests.setdefault(key, sha256)
        return {key: self._digests[key] for key in keys}

    def fresh(self, prefix: str) -> Self:
        """Return what is stored below a prefix now; everything is read."""
        return type(self)(self._store, prefix)

    def _digest(self, key: str) -> str:
        try:
            return self._read_whole(key)[1]
        except ObjectMissingError:
            return ""

    def _read_whole(self, key: str) -> tuple[bytes, str]:
        """Return the bytes of an object and their digest, kept where they are few."""
        if key in self._contents:
            return self._contents[key]
        with self._store.open(key) as source:
            content = source.read()
        known = content, _digest_of(content)
        if len(content) <= SMALL and self._room > 0:
            self._contents[key] = known
            self._room -= len(content)
        return known

    # as a store

    def open(self, key: str, pin: Entry | None = None) -> Source:
        """Open an object whose bytes are those that were digested.

        Raises ObjectMissingError, and ObjectChangedError where it is not as it was, or gone since.
        """
        del pin
        try:
            content, sha256 = self._read_whole(key)
        except ObjectMissingError:
            self._ensure_same(key, "")
            raise
        self._ensure_same(key, sha256)
        return _Read(content, self._entries.get(key) or Entry(key, len(content), FOLDER_TIME, ""))

    def _ensure_same(self, key: str, sha256: str) -> None:
        if self._digests.setdefault(key, sha256) != sha256:
            raise ObjectChangedError(key=key)

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        """List what was listed, in key order; `shallow`: one level."""
        keys = self.below(prefix)
        if not shallow:
            return map(self._entries.__getitem__, keys)
        return self._one_level(prefix, keys)

    def _one_level(self, prefix: str, keys: Iterable[str]) -> Iterator[Entry]:
        for name, _ in groupby(keys, lambda key: _top(key.removeprefix(prefix))):
            key = prefix + name
            yield self._entries.get(key) or Entry(key, 0, FOLDER_TIME, "")

    def create(self, key: str, data: bytes) -> bool:
        """Refuse to write; StoreDeniedError."""
        del data
        raise StoreDeniedError(place=key, code="a proof writes nothing")

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        """Refuse to write; StoreDeniedError."""
        del parts
        raise StoreDeniedError(place=key, code="a proof writes nothing")


class _Read(BytesIO):
    """The bytes of an object that were read."""

    def __init__(self, content: bytes, entry: Entry) -> None:
        super().__init__(content)
        self.entry = entry


def _digest_of(content: bytes) -> str:
    """Return the digest of a content; an object without any counts as gone."""
    return digest(content) if content else ""


def _top(name: str) -> str:
    """Return the first part of a name, with a slash where it has more."""
    folder, slash, _ = name.partition("/")
    return folder + slash
