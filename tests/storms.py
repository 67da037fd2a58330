"""Stores that misbehave as some stores do: they fail at chosen keys, list late, or say what others
never say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from flows.runs.store import Entry, Source, Store
from tests.memory import one_level


@dataclass
class FailingStore:
    """Raises what `trouble` returns for an operation and key, instead of doing it."""

    store: Store
    trouble: Callable[[str, str], Exception | None]

    def create(self, key: str, data: bytes) -> bool:
        self._fail("create", key)
        return self.store.create(key, data)

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        self._fail("replace", key)
        self.store.replace(key, parts)

    def open(self, key: str, pin: Entry | None = None) -> Source:
        self._fail("open", key)
        return self.store.open(key, pin)

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        self._fail("keys", prefix)
        return self.store.keys(prefix, shallow=shallow)

    def _fail(self, operation: str, key: str) -> None:
        error = self.trouble(operation, key)
        if error is not None:
            raise error


@dataclass
class LateStore:
    """Lists nothing that was written through it until `settle` is called; reads are never late."""

    store: Store
    hidden: set[str] = field(default_factory=set)

    def create(self, key: str, data: bytes) -> bool:
        created = self.store.create(key, data)
        self.hidden |= {key} if created else set()
        return created

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        self.store.replace(key, parts)
        self.hidden.add(key)

    def open(self, key: str, pin: Entry | None = None) -> Source:
        return self.store.open(key, pin)

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        shown = (entry for entry in self.store.keys(prefix) if entry.key not in self.hidden)
        return shown if not shallow else one_level(shown, prefix)

    def settle(self) -> None:
        """List everything from now on."""
        self.hidden.clear()
