"""Files that commands write on the machine of who runs them: for the owner alone."""

import os
from collections.abc import Iterable
from pathlib import Path


def write_whole(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file whole or not at all, mode 0600, in place of one that is there; OSError."""
    part = path.with_name(f".{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.writelines(pieces)
    part.replace(path)


def write_new(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file that must not exist, mode 0600; OSError."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.writelines(pieces)
