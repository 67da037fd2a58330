"""Every byte that processes write to files, shown by tracing system calls, so that a file deleted
at once is seen too.

Where tracing is not possible (no strace, no right to trace), the folders for temporary files are
watched instead.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.leaks.place import Place, Said
from tests.leaks.scanner import Leak

CALLS = "write,pwrite64,writev,pwritev,pwritev2,sendfile,copy_file_range,splice,execve"
IN_MEMORY = (
    "pipe:",
    "socket:",
    "anon_inode:",
    "/memfd:",
    "/dev/null",
    "UNIX",
    "TCP",
    "UDP",
    "NETLINK",
)
_WRITE = re.compile(
    r"^\d+ +p?writev?\w*\(\d+<(?P<path>(?:[^>\\]|\\.)*)>(?:\(deleted\))?, (?P<rest>.*)$"
)
_COPY = re.compile(r"^\d+ +(?:sendfile|copy_file_range|splice)\(")
_BYTES = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@cache
def can_trace() -> bool:
    """Tell whether strace is there and may trace."""
    if not shutil.which("strace"):
        return False
    return (
        subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True).returncode
        == 0
    )


def traced(
    place: Place, command: Sequence[str], env: Mapping[str, str] | None = None
) -> tuple[Said, list[Leak]]:
    """Run a command; return what it said, and the leaks in what was written to files and in command
    lines.
    """
    if not can_trace():
        return _watched(place, command, env)
    trace = place.folder / "trace"
    place.dropped.append(trace)  # it shows the memory files and pipes too
    strace = [
        "strace",
        "-f",
        "-qq",
        "-v",
        "-y",
        "-xx",
        "-s",
        "10000000",
        "-o",
        str(trace),
        "-e",
        f"trace={CALLS}",
    ]
    said = place.run([*strace, *command], env)
    return said, [leak for name, data in _written(trace) for leak in place.scanner.scan(name, data)]


def _written(trace: Path) -> Iterator[tuple[str, bytes]]:
    """Yield what went to each file, calls joined, and every command line with its environment."""
    files: defaultdict[str, list[bytes]] = defaultdict(list)
    for line in trace.read_text("latin-1").splitlines():
        if " execve(" in line:
            yield "a command line", b" ".join(_bytes(line))
        elif written := _WRITE.match(line):
            files[_path(written["path"])] += _bytes(written["rest"])
        elif _COPY.match(line):
            raise AssertionError(f"copied within the kernel, unseen: {line[:200]}")
    for name, pieces in files.items():
        if not name.startswith(IN_MEMORY):
            yield f"written to {name}", b"".join(pieces)


def _path(text: str) -> str:
    """Return a descriptor's path, which newer versions write in hex as well."""
    return (
        bytes.fromhex(text.replace("\\x", "")).decode(errors="replace")
        if text.startswith("\\x")
        else text
    )


def _bytes(text: str) -> list[bytes]:
    return [bytes.fromhex(found.replace("\\x", "")) for found in _BYTES.findall(text)]


def _watched(
    place: Place, command: Sequence[str], env: Mapping[str, str] | None
) -> tuple[Said, list[Leak]]:
    leaks: list[Leak] = []
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(place, leaks, done))
    watcher.start()
    try:
        return place.run(command, env), leaks
    finally:
        done.set()
        watcher.join()


def _watch(place: Place, leaks: list[Leak], done: threading.Event) -> None:
    while not done.wait(0.001):
        with contextlib.suppress(OSError):
            leaks += place.scanner.scan_folder(place.folder / "tmp")
