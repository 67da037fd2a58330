"""A store whose writes stay in memory: a dry run does what the real one does first, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from io import BytesIO

from flows.runs.context import IssuerContext
from flows.runs.identity import digest
from flows.runs.keys import FOLDER_TIME, checked
from flows.runs.store import Entry, ObjectChangedError, ObjectMissingError, Source, Store


class Overlay:
    """A store over another one, which is only read; implements Store."""

    def __init__(self, below: Store, now: datetime) -> None:
        self._below, self._now, self._written = below, now, dict[str, bytes]()

    def create(self, key: str, data: bytes) -> bool:
        """Write `key` in memory unless it exists; False where it does."""
        try:
            self.open(key).__exit__(None, None, None)
        except ObjectMissingError:
            return self._written.setdefault(key, data) is data
        return False

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        """Write `key` in memory, over any earlier content."""
        self._written[checked(key)] = b"".join(parts)

    def open(self, key: str, pin: Entry | None = None) -> Source:
        """Open `key` as it was written here, else as it is stored; ObjectMissingError or ObjectChangedError."""
        if key not in self._written:
            return self._below.open(key, pin)
        entry = self._entry(key)
        if pin and pin.version != entry.version:
            raise ObjectChangedError(key=key)
        return _Memory(self._written[key], entry)

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        """List what is stored and what was written here, in key order."""
        found = {entry.key: entry for entry in self._below.keys(prefix, shallow=shallow)}
        for key in self._written:
            if key.startswith(prefix):
                name, deeper, _ = key.removeprefix(prefix).partition("/")
                folder = Entry(f"{prefix}{name}/", 0, FOLDER_TIME, "")
                entry = folder if shallow and deeper else self._entry(key)
                found[entry.key] = entry
        yield from sorted(found.values(), key=lambda entry: entry.key.encode())

    def _entry(self, key: str) -> Entry:
        data = self._written[key]
        return Entry(key, len(data), self._now, digest(data))


class _Memory(BytesIO):
    def __init__(self, data: bytes, entry: Entry) -> None:
        super().__init__(data)
        self.entry = entry


def overlaid(context: IssuerContext) -> IssuerContext:
    """Return a context whose writes stay in memory."""
    adapters = context.adapters
    return context._replace(adapters=adapters._replace(store=Overlay(adapters.store, adapters.now())))
