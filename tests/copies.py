"""Copies of folders that have a database of SQLite, which a process may still hold open."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any


def copy_folder(
    origin: Path, folder: Path, ignore: Callable[[Any, list[str]], set[str]] | None = None
) -> None:
    """Copy a folder into another one, with all that its database was told.

    What the database was told last is in a file beside it until its last connection is closed,
    which may be at any moment: so it is brought into the database first.
    """
    for file in origin.glob("cardlink.db"):
        with closing(sqlite3.connect(file, timeout=60)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copytree(origin, folder, dirs_exist_ok=True, ignore=ignore)
