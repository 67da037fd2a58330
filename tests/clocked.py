"""A directory store whose objects are as old as a test's clock says, so that months go by in a
second.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from flows.adapters.local import LocalStore


class ClockedStore(LocalStore):
    """Dates whatever is written by `now` instead of the machine's clock."""

    def __init__(self, root: Path, now: Callable[[], datetime]) -> None:
        super().__init__(root)
        self._files = root
        self._clock = now

    def create(self, key: str, data: bytes) -> bool:
        """Write a key where nothing is, as of the test's clock."""
        created = super().create(key, data)
        if created:
            self._date(key)
        return created

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        """Write a derived object, as of the test's clock."""
        super().replace(key, parts)
        self._date(key)

    def _date(self, key: str) -> None:
        moment = self._clock().timestamp()
        os.utime(self._files / key, (moment, moment))
