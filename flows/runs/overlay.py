"""A store whose writes stay in memory: dry runs do what real ones do, and leave nothing behind.

In a dry run of several extracts each is checked as it would be after the ones before it. Only
`purge` and `mend reseal` plan instead.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from io import BytesIO

from flows.runs.identity import digest
from flows.runs.keys import FOLDER_TIME, checked
from flows.runs.store import Entry, ObjectChangedError, Source, Store, read_if_stored


class Overlay:
    """A store over another one, which is only read; implements Store."""

    def __init__(self, below: Store, now: datetime) -> None:
        self._below = below
        self._now = now
        self._written: dict[str, bytes] = {}

    @property
    def written(self) -> frozenset[str]:
        """The keys that were written in memory."""
        return frozenset(self._written)

    def create(self, key: str, data: bytes) -> bool:
        """Write `key` in memory unless it exists; False where it does."""
        return read_if_stored(self, key, 0) is None and self._written.setdefault(key, data) is data

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        """Write `key` in memory, over any earlier content."""
        self._written[checked(key)] = b"".join(parts)

    def open(self, key: str, pin: Entry | None = None) -> Source:
        """Open `key` as it was written here, else as it is stored.

        Raises ObjectMissingError and ObjectChangedError.
        """
        if key not in self._written:
            return self._below.open(key, pin)
        entry = self._entry(key)
        if pin and pin.version != entry.version:
            raise ObjectChangedError(key=key)
        return _Memory(self._written[key], entry)

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        """List what is stored and what was written here, in key order."""
        entries = {entry.key: entry for entry in self._below.keys(prefix, shallow=shallow)}
        for key in list(self._written):
            if key.startswith(prefix):
                entry = self._listed(key, prefix, shallow=shallow)
                entries[entry.key] = entry
        yield from sorted(entries.values(), key=lambda entry: entry.key.encode())

    def _listed(self, key: str, prefix: str, *, shallow: bool) -> Entry:
        """Return the entry that a listing has for a key written here: itself, or its folder."""
        name, deeper, _ = key.removeprefix(prefix).partition("/")
        if shallow and deeper:
            return Entry(f"{prefix}{name}/", 0, FOLDER_TIME, "")
        return self._entry(key)

    def _entry(self, key: str) -> Entry:
        data = self._written[key]
        return Entry(key, len(data), self._now, digest(data))


class _Memory(BytesIO):
    def __init__(self, data: bytes, entry: Entry) -> None:
        super().__init__(data)
        self.entry = entry
