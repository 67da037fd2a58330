"""A store and a seal in memory, fast enough for thousands of nights; the store can die at any of
its operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BytesIO
from itertools import count
from threading import Lock

from flows.runs.sealing import Plain, Sealed, Warned
from flows.runs.store import Entry, ObjectChangedError, ObjectMissingError

DROPPED = datetime(2026, 11, 20, 3, tzinfo=UTC)
SEAL = b"\x84sealed"


class KilledError(BaseException):
    """The process is dead: nothing of it may catch this."""


class MemoryStore:
    """Objects in a dictionary; once its death has come, every operation raises KilledError, until
    `revive`.
    """

    def __init__(self) -> None:
        self.objects: dict[str, tuple[Entry, bytes]] = {}
        self._versions = count(1)
        self._lock = Lock()
        self._death: tuple[str, int, bool] | None = None
        self._dead = False

    def die_at(self, part: str, times: int, *, late: bool) -> None:
        """Die before the operation on a key that holds `part`, the so-manyth, or (`late`) after it
        has been done.
        """
        self._death = part, times, late

    def revive(self) -> None:
        """Live on: what was written is there."""
        self._death, self._dead = None, False

    def copy(self) -> MemoryStore:
        """Return a store of its own with the same objects."""
        other = MemoryStore()
        other.objects = {**self.objects}
        other._versions = count(1 << 30)
        return other

    def create(self, key: str, data: bytes) -> bool:
        created = False
        with self._alive(key):
            created = key not in self.objects
            if created:
                self._put(key, data)
        return created

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        data = b"".join(parts)
        with self._alive(key):
            self._put(key, data)

    def open(self, key: str, pin: Entry | None = None) -> MemorySource:
        with self._alive(key):
            if key not in self.objects:
                raise ObjectMissingError(key=key)
            entry, data = self.objects[key]
            if pin is not None and pin.version != entry.version:
                raise ObjectChangedError(key=key)
        return MemorySource(entry, data)

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        with self._alive(prefix):
            found = [self.objects[key][0] for key in sorted(self.objects) if key.startswith(prefix)]
        return iter(found if not shallow else one_level(found, prefix))

    def _put(self, key: str, data: bytes) -> None:
        self.objects[key] = Entry(key, len(data), DROPPED, str(next(self._versions))), data

    @contextmanager
    def _alive(self, key: str) -> Iterator[None]:
        with self._lock:
            part, times, late = self._death or ("", 0, False)
            if self._death and part in key:
                self._death = part, times - 1, late
                self._dead = self._dead or (times == 1 and not late)
            if self._dead:
                raise KilledError
            yield
            self._dead = bool(self._death and part in key and times == 1 and late)
            if self._dead:
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
    warnings: tuple[Warned, ...] = ()
    _number = count(1)

    def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
        return [
            Sealed(chunk.name, SEAL + b"%08d" % next(self._number) + chunk.data) for chunk in chunks
        ]


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
