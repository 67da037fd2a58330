"""What tests leave running when all of them have ended: processes, known by their environment, and
threads.

Every process that a session starts inherits its mark, so one whose parent has died is found too.
Without /proc (macOS) no process is seen.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T", str, bytes)

MARKER = "STARTED_BY_TESTS"  # not CARDLINK_: a stage of the simulator drops such variables
DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):  # it has died before we asked
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""
SWEEP = """
import os, signal, sys, time
while os.getppid() == int(sys.argv[1]):
    time.sleep(0.5)
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{name}/environ", "rb") as file:
            if sys.argv[2].encode() in file.read().split(b"\\0"):
                os.kill(int(name), signal.SIGKILL)
    except OSError:  # it has ended, or is none of ours
        pass
"""
PATIENCE = 60.0  # seconds for what was told to end


class Process(NamedTuple):
    """A process that still runs: its id and its command line."""

    id: int
    command: str

    def end(self) -> None:
        """Kill it."""
        with suppress(ProcessLookupError):
            os.kill(self.id, signal.SIGKILL)


@contextmanager
def ended(process: subprocess.Popen[T]) -> Iterator[subprocess.Popen[T]]:
    """Kill a process that leads its group, with all of the group, when the block ends, however it
    ends.
    """
    with process:
        try:
            yield process
        finally:
            kill_group(process.pid)


def with_its_parent(command: Sequence[str]) -> list[str]:
    """Return a command that Linux kills when its parent dies, kill -9 included; elsewhere the
    command.
    """
    if not sys.platform.startswith("linux"):
        return [*command]
    return [sys.executable, "-S", "-c", DIE_WITH_PARENT, str(os.getpid()), *command]


def sweep_at_the_end(marker: str) -> None:
    """Have the processes of a session killed once this process is gone, however it ends: a second
    Ctrl-C or `kill` leaves no time for that.
    """
    if sys.platform.startswith("linux"):
        command = [sys.executable, "-S", "-c", SWEEP, str(os.getpid()), f"{MARKER}={marker}"]
        others = {name: value for name, value in os.environ.items() if name != MARKER}
        silent = subprocess.DEVNULL  # who reads what this process prints does not wait for it
        sweeper = subprocess.Popen(
            command, env=others, stdin=silent, stdout=silent, stderr=silent, start_new_session=True
        )
        sweeper.returncode = 0  # nobody waits for it: it ends after this process


def kill_group(leader: int) -> None:
    """Kill what is left of a process group."""
    with suppress(ProcessLookupError, PermissionError):  # macOS forbids to kill what has ended
        os.killpg(leader, signal.SIGKILL)


def processes(marker: str) -> list[Process]:
    """Return every process but this one that was started by the session of that mark."""
    return [one for one in _marked(f"{MARKER}={marker}".encode()) if one.id != os.getpid()]


def that_stay(marker: str, seconds: float = PATIENCE) -> list[Process]:
    """Return those of a session's processes that do not end by themselves."""
    end = time.monotonic() + seconds
    while (found := processes(marker)) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def threads() -> list[str]:
    """Return the names of the threads that would keep this process from ending."""
    return [
        one.name
        for one in threading.enumerate()
        if not one.daemon and one is not threading.main_thread()
    ]


def _marked(entry: bytes) -> Iterator[Process]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is none of ours
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                command = (
                    (folder / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                    .strip()
                )
                yield Process(int(folder.name), command)
