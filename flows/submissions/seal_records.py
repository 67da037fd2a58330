"""Seal records: the digests of a group's ciphertext, written before the ciphertext itself.

Ciphertext differs at every sealing, and we cannot open it. After a crash only these records tell a
chunk of ours from a foreign or truncated object.
"""

from collections.abc import Mapping
from threading import Lock

from pydantic import RootModel

from flows.runs.chains import CONTESTS, records
from flows.runs.identity import canonical
from flows.runs.keys import link
from flows.runs.store import Store, StoreBusyError

# Chunks per gpg process and seal record. If it changes, RECIPE must go up, since a group would not
# find the records of a run that began before.
GROUP = 32
_DIGITS = 3  # of a seal record's number


class _SealRecord(RootModel[dict[str, str]]):
    """One link of the chain: the digests of freshly sealed chunks, by chunk name."""


class SealRecords:
    """The seal records of one group of chunks of one run, as far as they have been read."""

    def __init__(self, store: Store, prefix: str, group: int) -> None:
        self._store = store
        self._prefix = f"{prefix}{group:05d}-"
        self._sealed: set[tuple[str, str]] = set()
        self._reading = Lock()  # the uploads of a group look at the same time
        self.length = 0
        self._catch_up()

    def names(self, chunk: str, sha256: str) -> bool:
        """Return whether this run has sealed `chunk` to these bytes, here or concurrently."""
        if (chunk, sha256) not in self._sealed:
            self._catch_up()
        return (chunk, sha256) in self._sealed

    def add(self, digests: Mapping[str, str]) -> None:
        """Write the digests of freshly sealed chunks, by chunk name, as the chain's next record."""
        record = canonical(dict(digests))
        for _ in range(CONTESTS):
            if self._store.create(link(self._prefix, self.length + 1, _DIGITS), record):
                self._sealed.update(digests.items())
                self.length += 1
                return
            self._catch_up()
        raise StoreBusyError(place=self._prefix, code="contested")

    def _catch_up(self) -> None:
        with self._reading:
            for record in records(self._store, self._prefix, _SealRecord, self.length + 1, _DIGITS):
                self._sealed.update(record.root.items())
                self.length += 1
