"""Files and folders that a command is told to read or write, on the machine of who runs it."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flows.configuration import FileUnusableError

_UNUSABLE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.EACCES,
    errno.EPERM,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)


@contextmanager
def usable_files(named: Mapping[str, Path]) -> Iterator[None]:
    """Raise FileUnusableError where a file that is named, or one in a named folder, is unusable.

    `named`: paths by what names them. A bare name is a default, in the folder of who typed it; any
    other path may be of a store, whose keys are not shown.
    """
    try:
        yield
    except OSError as error:
        purpose = _purpose(error, named)
        if not purpose:
            raise
        file = str(error.filename)
        reason = str(error.strerror)
    else:
        return
    raise FileUnusableError(file=file, purpose=purpose, reason=reason)


def _purpose(error: OSError, named: Mapping[str, Path]) -> str:
    """Return what names the file of an error, "" where it is no file of the operator's."""
    if error.errno not in _UNUSABLE or not isinstance(error.filename, str):
        return ""
    file = Path(error.filename)
    for name, path in named.items():
        if _is_within(file, path) or _is_within(path, file):
            return name
    return "in this folder" if file == Path(file.name) else ""


def _is_within(file: Path, folder: Path) -> bool:
    return file.absolute().is_relative_to(folder.absolute())
