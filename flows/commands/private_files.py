"""Files that commands write on the machine of who runs them: new, and for the owner alone."""

import os
from collections.abc import Iterable
from pathlib import Path


def write_new(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file that must not exist, mode 0600; OSError."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.writelines(pieces)
