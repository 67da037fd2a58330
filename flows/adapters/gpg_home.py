"""Private gpg homes: made for one command, locked while its process lives; every command removes those of the killed.

Nothing here imports gnupg, so that looking costs nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

SHORT: Final = "/tmp"  # noqa: S108  mkdtemp makes a private folder in it
MEMORY: Final = "/dev/shm"  # noqa: S108  as above; files there never touch a disk
SHARED: Final = (Path(MEMORY), Path(SHORT))  # where every process of a user looks, whatever its TMPDIR
ROOM: Final = 48 << 20  # bytes free in memory: the ciphertext of a few groups
SOCKET_ROOM: Final = 86  # longest path of a home: the agent's sockets below it must fit in the kernel's 108 bytes
_NAME = re.compile(r"^cardlink-gpg-(?P<pid>\d+)-")


class Home:
    """A private folder (0700, short path) that no other process removes while this one lives."""

    def __init__(self) -> None:
        prefix = f"cardlink-gpg-{os.getpid()}-"
        fit = (root for root in _roots() if len(str(root)) + len(prefix) + 9 <= SOCKET_ROOM and _has_room(root))
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=next(fit, Path(SHORT))))
        self._held = (self.path / "holding").open("wb")
        fcntl.flock(self._held, fcntl.LOCK_EX)  # for as long as this process lives: the kernel unlocks it on a kill
        (self.path / "holding").rename(self.path / "held")  # locked from the moment it can be seen
        if self.path.parent not in SHARED:
            _point_to(self.path)

    def close(self, *, agent: bool) -> None:
        """Stop the agent, if there may be one, and remove the folder; closing twice is harmless."""
        _remove(self.path, agent=agent)
        self._held.close()


def remove_dead_homes() -> None:
    """Remove the homes left behind by killed processes, and end their agents."""
    for home in {home.resolve() for root in _roots() for home in root.glob("cardlink-gpg-*") if _is_dead(home)}:
        _remove(home, agent=True)


def _roots() -> list[Path]:
    """Return the folders a home may be in, in order of preference: TMPDIR if it is set, then memory."""
    roots = (os.environ.get("TMPDIR"), MEMORY, tempfile.gettempdir(), SHORT)
    return [Path(root) for root in dict.fromkeys(roots) if root]


def _has_room(root: Path) -> bool:
    """Return whether a home fits in a folder; a container's memory may be small, and we must not fill it."""
    if not os.access(root, os.W_OK | os.X_OK):
        return False
    free = os.statvfs(root)
    return str(root) != MEMORY or free.f_bavail * free.f_frsize >= ROOM


def _point_to(home: Path) -> None:
    """Leave a link where a process with another TMPDIR finds it."""
    for root in SHARED:
        with contextlib.suppress(OSError):
            (root / home.name).symlink_to(home)
            return


def _is_dead(home: Path) -> bool:
    """Return whether a home, or a link to one, is ours and its process is gone, here or in another container."""
    name = _NAME.match(home.name)
    try:
        if not name or home.lstat().st_uid != os.getuid():
            return False
        with (home / "held").open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:  # being made, or half removed
        return name is not None and not _runs(int(name["pid"]))
    except OSError:  # its process lives
        return False
    return True


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _remove(home: Path, *, agent: bool) -> None:
    if agent and home.is_dir():
        _gpgconf(home, "--kill", "gpg-agent")
        _gpgconf(home, "--remove-socketdir")  # under /run/user, if that exists
    shutil.rmtree(home, ignore_errors=True)  # the agent may remove its sockets meanwhile
    for link in (root / home.name for root in SHARED):
        if link.is_symlink():
            link.unlink(missing_ok=True)


def _gpgconf(home: Path, *arguments: str) -> None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # an agent without its home ends by itself
        subprocess.run(["gpgconf", "--homedir", str(home), *arguments], check=False, capture_output=True, timeout=20)
