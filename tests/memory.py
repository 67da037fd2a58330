"""A store and a seal in memory, fast enough for thousands of nights; the store can die at any of its operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from io import BytesIO
from itertools import count
from threading import Lock

from flows.core.ports import Entry, Plain, Sealed
from flows.core.store_errors import ObjectChangedError, ObjectMissingError

DROPPED = datetime(2026, 11, 20, 3, tzinfo=UTC)
SEAL = b"\x84sealed"


class KilledError(BaseException):
    """The process is dead: nothing of it may catch this."""


class MemoryStore:
    """Objects in a dictionary; `die_at` operations from now on, every one of them raises, until `revive`."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[Entry, bytes]] = {}
        self._versions = count(1)
        self._lock = Lock()
        self._left: int | None = None
        self._late = False

    def die_at(self, operation: int, *, late: bool) -> None:
        """Die before the operation of that number, or (`late`) after it has been done."""
        self._left, self._late = operation, late

    def revive(self) -> None:
        """Live on: what was written is there."""
        self._left = None

    def copy(self) -> MemoryStore:
        """Return a store of its own with the same objects."""
        other = MemoryStore()
        other.objects = {**self.objects}
        other._versions = count(1 << 30)
        return other

    def create(self, key: str, data: bytes) -> bool:
        with self._lock:
            self._step()
            created = key not in self.objects
            if created:
                self._put(key, data)
            self._after()
            return created

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        data = b"".join(parts)
        with self._lock:
            self._step()
            self._put(key, data)
            self._after()

    def open(self, key: str, pin: Entry | None = None) -> MemorySource:
        with self._lock:
            self._step()
            if key not in self.objects:
                raise ObjectMissingError(key)
            entry, data = self.objects[key]
            if pin is not None and pin.version != entry.version:
                raise ObjectChangedError(key)
            return MemorySource(entry, data)

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        with self._lock:
            self._step()
            found = [self.objects[key][0] for key in sorted(self.objects) if key.startswith(prefix)]
        return iter(found if not shallow else one_level(found, prefix))

    def _put(self, key: str, data: bytes) -> None:
        self.objects[key] = Entry(key, len(data), DROPPED, str(next(self._versions))), data

    def _step(self) -> None:
        if self._left is None:
            return
        self._left -= 1
        if self._left < 0 or (self._left == 0 and not self._late):
            raise KilledError

    def _after(self) -> None:
        if self._left == 0:
            raise KilledError


class MemorySource:
    """A stream over one object's bytes."""

    def __init__(self, entry: Entry, data: bytes) -> None:
        self.entry = entry
        self._stream = BytesIO(data)

    def read(self, size: int = -1, /) -> bytes:
        return self._stream.read(size)

    def __enter__(self) -> MemorySource:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


class MemorySealer:
    """Seals as gpg does in what matters here: other bytes each time."""

    fingerprints = ("A" * 40,)
    warnings: tuple[str, ...] = ()
    _number = count(1)

    def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
        return [Sealed(chunk.name, SEAL + b"%08d" % next(self._number) + chunk.data) for chunk in chunks]


class MemoryOpener:
    """Opens what `MemorySealer` sealed."""

    def open(self, message: bytes, limit: int) -> bytes:
        assert message.startswith(SEAL)
        return message[len(SEAL) + 8 :][:limit]


def one_level(entries: Iterable[Entry], prefix: str) -> Iterator[Entry]:
    """Yield what a shallow listing shows of a deep one."""
    last = ""
    for entry in entries:
        head, slash, _ = entry.key.removeprefix(prefix).partition("/")
        if not slash:
            yield entry
        elif head != last:
            last = head
            yield Entry(f"{prefix}{head}/", 0, DROPPED, "")
