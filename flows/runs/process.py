"""The name of a process, and whether it is provably gone.

Only a reader in the same pid namespace of the same boot can know that a process is gone. What /proc
may hide proves nothing.
"""

import os
from pathlib import Path


def process_name(number: int) -> str:
    """Return what no other process is ever named: boot, pid namespace, pid and start.

    "" where /proc does not say.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = Path("/proc/self/ns/pid").readlink()
        stat = Path(f"/proc/{number}/stat").read_text()
    except OSError:
        return ""
    # after the command, which may hold anything
    state, *fields = stat.rpartition(")")[2].split()
    start = "ended" if state in "ZX" else fields[18]
    return f"{boot} {space} {number} {start}"


def is_gone(name: str) -> bool:
    """Return whether a process is provably gone.

    Its name is of this boot and pid namespace, where no such process is.
    """
    words = name.split()
    if len(words) != 4:
        return False
    boot, space, number, _ = words
    if [boot, space] != process_name(os.getpid()).split()[:2]:
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # of another user
        pass
    return process_name(int(number)) not in ("", name)  # "": /proc may hide a living one
