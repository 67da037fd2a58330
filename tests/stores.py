"""The kinds of store: each is held to one contract and tortured, by being an entry of KINDS."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple, Protocol

from flows.adapters.local import LocalStore
from flows.adapters.s3 import S3Store
from flows.database.connection import Database
from flows.runs.retry import Retry
from flows.runs.store import Cleaner, Store
from tests import servers


class CleanableStore(Store, Cleaner, Protocol):
    """A store that can also delete."""


BUCKET = "cards"
PATIENT = 60.0  # seconds that a client waits for an answer


@dataclass(frozen=True)
class Kind:
    """How the tests serve a kind of store, and open one of it.

    `serve` keeps all of its data below a folder, through kill -9 too, and gives the address: that
    folder, or the endpoint of a server. `open` takes the address, a name, and the seconds to wait
    for an answer.
    """

    serve: Callable[[Path], AbstractContextManager[str]]
    open: Callable[[str, str, float], CleanableStore]
    by_http: bool = False  # faults can be put on the wire
    on_disk: bool = False  # its system calls can be lost with the power


class Place(NamedTuple):
    """One store with its database, named so that a child process opens the same ones."""

    kind: str
    address: str
    name: str
    beside: str = ""  # the folder of the databases of stores on a server

    def open(self, address: str = "", patience: float = PATIENT) -> CleanableStore:
        """Open the store, or the same through another address; each process connects anew."""
        return KINDS[self.kind].open(address or self.address, self.name, patience)

    @property
    def folder(self) -> Path:
        """The folder of the database, and of a store on disk."""
        return (Path(self.beside or self.address) / self.name).parent

    @property
    def rows(self) -> Path:
        """The file of the database."""
        return self.folder / "cardlink.db"

    def database(self) -> Database:
        """Return the database; each process connects anew."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return Database(self.rows)


def places(kind: str, address: str, prefix: str = "store", beside: str = "") -> Iterator[Place]:
    """Yield empty stores of a kind, each in a folder with its database, without end."""
    return (Place(kind, address, f"{prefix}-{number}/store", beside) for number in count(1))


def impatient(attempts: int = 25) -> Retry:
    """Retry without waiting long, so that faults cost no time."""
    return Retry(
        time.monotonic, lambda _: time.sleep(0.001), random.random, budget=300, attempts=attempts
    )


@contextmanager
def _folder(data: Path) -> Iterator[str]:
    data.mkdir(parents=True, exist_ok=True)
    yield str(data)


def _open_folder(address: str, name: str, _: float) -> LocalStore:
    folder = Path(address) / name
    folder.mkdir(parents=True, exist_ok=True)
    return LocalStore(folder)


@contextmanager
def _s3(data: Path) -> Iterator[str]:
    with servers.ministack(data) as server:
        yield server.endpoint


def _open_s3(address: str, name: str, patience: float) -> S3Store:
    return S3Store(BUCKET, name, servers.client(address, read_timeout=patience), impatient())


KINDS = {
    "directory": Kind(_folder, _open_folder, on_disk=True),
    "S3": Kind(_s3, _open_s3, by_http=True),
}
