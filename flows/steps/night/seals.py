"""Seal records: the digests of a group's ciphertext, written before the ciphertext itself.

After a crash, whatever lies under a chunk's name counts only if a record names its digest. The records of a
group are a chain read by number, never by listing, so that a store that lists late hides none of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from threading import Lock

from flows.core.ports import Store
from flows.core.run.planning import canonical
from flows.core.storage.store_errors import ObjectMissingError, StoreBusyError
from flows.steps.edges import ConflictError, read

CONTESTS = 16  # twins that seal the same group at the same moment


class SealRecords:
    """The records of one group of chunks of one run, as far as they have been read."""

    def __init__(self, store: Store, prefix: str, group: int) -> None:
        self._store = store
        self._base = f"{prefix}{group:05d}-"
        self._length = 0
        self._digests: dict[str, set[str]] = {}
        self._reading = Lock()  # the uploads of a group ask at once
        self.catch_up()

    @property
    def empty(self) -> bool:
        """True where nobody has sealed any chunk of the group yet."""
        return self._length == 0

    def names(self, chunk: str, digest: str) -> bool:
        """Tell whether this run has sealed `chunk` to exactly these bytes; a twin may have done so just now."""
        if digest not in self._digests.get(chunk, ()):
            self.catch_up()
        return digest in self._digests.get(chunk, ())

    def add(self, digests: Mapping[str, str]) -> None:
        """Write the digests of freshly sealed chunks, by chunk name, as the chain's next record."""
        record = canonical(dict(digests))
        for _ in range(CONTESTS):
            if self._store.create(self._key(self._length + 1), record):
                self._take(digests)
                return
            self.catch_up()
        raise StoreBusyError(place=self._base, code="contested")

    def catch_up(self) -> None:
        """Read what has been added to the chain since."""
        with self._reading:
            while (record := _read(self._store, self._key(self._length + 1))) is not None:
                self._take(record)

    def _take(self, digests: Mapping[str, str]) -> None:
        self._length += 1
        for chunk, digest in digests.items():
            self._digests.setdefault(chunk, set()).add(digest)

    def _key(self, number: int) -> str:
        return f"{self._base}{number:03d}.json"


def _read(store: Store, key: str) -> dict[str, str] | None:
    try:
        record = json.loads(read(store, key))
    except ObjectMissingError:
        return None
    except ValueError:  # no JSON: not ours, and raised below without a chain
        record = None
    if not isinstance(record, dict):
        raise ConflictError(key=key)
    return record
