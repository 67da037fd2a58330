"""Private gpg homes: made for one command, locked while its process lives.

Every command removes those of killed processes. Nothing here imports gnupg, so that looking costs
nothing.

A home is locked by its process before it can be seen, and is dead once its lock is free. No process
id is trusted: ids are reused, and mean nothing in another container.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Final

from flows.errors import LimitError
from flows.stopping import uninterrupted

# mkdtemp makes a private folder in it; files there never touch a disk
MEMORY: Final = Path("/dev/shm")  # noqa: S108  as it says above
SHARED: Final = (MEMORY, Path("/tmp"))  # noqa: S108  as above; every process of a user looks there
PREFIX: Final = "cardlink-gpg-"
LONGEST: Final = len(PREFIX) + 17  # with the largest process id and what mkdtemp adds
MAKING: Final = 60.0  # seconds for which a home without its lock is left alone
ROOM: Final = 48 << 20  # bytes free in memory: the ciphertext of a few groups
# longest path of a home: the agent's sockets below it must fit in the kernel's 108 bytes
SOCKET_ROOM: Final = 86


@contextmanager
def private_home(*, agent: bool) -> Iterator[Path]:
    """Give a folder (0700, short path) that no other process removes while this one lives.

    Its agent, if any, is ended with it.
    """
    with ExitStack() as held:
        home = None
        try:
            with uninterrupted():
                home = _made(held)
            yield home
        finally:
            with uninterrupted():
                if home:
                    _remove(home, agent=agent)


def _made(held: ExitStack) -> Path:
    """Make a home whose lock is held until `held` ends.

    Raises LimitError where there is no room for one.
    """
    roots = [root for root in _roots() if len(str(root)) + LONGEST <= SOCKET_ROOM]
    for root in filter(_has_room, roots):
        home = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=root))
        lock = held.enter_context((home / "holding").open("wb"))
        # for as long as this process lives: the kernel unlocks it on a kill
        fcntl.flock(lock, fcntl.LOCK_EX)
        (home / "holding").rename(home / "held")  # locked from the moment it can be seen
        for link in _links(home):
            with suppress(OSError):
                link.symlink_to(home)
        return home
    folders = ", ".join(map(str, roots))
    reason = f"less than {ROOM >> 20} MB are free in each of {folders}, or they are read-only"
    raise LimitError(place="gpg", reason=reason)


def _has_room(root: Path) -> bool:
    """Return whether a folder can be written to and has room.

    A container's memory may be small, and we must not fill it.
    """
    return os.access(root, os.W_OK | os.X_OK) and shutil.disk_usage(root).free >= ROOM


def remove_dead_homes() -> None:
    """Remove the homes left behind by killed processes, and end their agents."""
    homes = chain.from_iterable(root.glob(f"{PREFIX}*") for root in _roots())
    for home in {home.resolve() for home in homes if _is_dead(home)}:
        _remove(home, agent=True)


def _roots() -> list[Path]:
    """Return the folders a home may be in, preferred first: TMPDIR if it is set, then memory."""
    named = os.environ.get("TMPDIR")
    roots = (Path(named), *SHARED) if named else SHARED
    return list(dict.fromkeys(roots))


def _links(home: Path) -> list[Path]:
    """Return the links by which a process with another TMPDIR finds a home."""
    if home.parent in SHARED:
        return []
    return [root / home.name for root in SHARED]


def _is_dead(home: Path) -> bool:
    """Return whether a home, or a link to one, is ours and its process is gone.

    The process may have been in another container.
    """
    try:
        status = home.lstat()
        if status.st_uid != os.getuid():
            return False
        if not (home / "held").exists():  # no key yet, or none any more
            return time.time() - status.st_mtime > MAKING
        with (home / "held").open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # its process lives, or another one is removing it
        return False
    return True


def _remove(home: Path, *, agent: bool) -> None:
    if agent and home.is_dir():  # an agent without its home ends by itself
        _run_gpgconf(home, "--kill", "gpg-agent")
        _run_gpgconf(home, "--remove-socketdir")
    shutil.rmtree(home / "private-keys-v1.d", ignore_errors=True)  # first: we may be killed
    shutil.rmtree(home, ignore_errors=True)  # the agent may remove its sockets meanwhile
    for link in _links(home):
        if link.is_symlink():
            link.unlink(missing_ok=True)


def _run_gpgconf(home: Path, *arguments: str) -> None:
    """Ask the agent of a home for something; it may be gone."""
    with suppress(OSError, subprocess.SubprocessError):
        command = ["gpgconf", "--homedir", str(home), *arguments]
        subprocess.run(command, check=False, capture_output=True, timeout=20)
