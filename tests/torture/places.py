"""The two storages under torture, named so that a child process finds the same one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from flows.adapters.local import LocalStore
from flows.adapters.s3 import S3Store
from flows.runs.retry import Retry
from flows.runs.store import Store
from tests import servers


class Place(NamedTuple):
    """One store: a directory, or a prefix of the bucket at an endpoint."""

    name: str
    endpoint: str = ""

    def open(self) -> Store:
        """Open the store; each process gets connections of its own."""
        if self.endpoint:
            return S3Store(
                "cards", self.name, servers.client(self.endpoint, read_timeout=60.0), impatient()
            )
        Path(self.name).mkdir(parents=True, exist_ok=True)
        return LocalStore(Path(self.name))


def directories(folder: Path) -> Iterator[Place]:
    """Yield fresh directories without end."""
    return (Place(str(folder / f"store-{number}")) for number in count(1))


def prefixes(server: servers.S3Server, name: str) -> Iterator[Place]:
    """Yield fresh prefixes of a server's bucket without end."""
    return (Place(f"{name}-{number}", server.endpoint) for number in count(1))


def impatient(attempts: int = 25) -> Retry:
    """Try again without waiting long, so that faults cost no time."""
    return Retry(
        time.monotonic, lambda _: time.sleep(0.001), random.random, budget=300, attempts=attempts
    )
