"""The name of a process, and whether it is provably gone."""

import os
from pathlib import Path


def process_name(number: int) -> str:
    """Return what no other process is ever named: boot, pid namespace, pid and start; "" where
    /proc does not say.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = Path("/proc/self/ns/pid").readlink()
        state, *rest = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        return f"{boot} {space} {number} {'ended' if state in 'ZX' else rest[18]}"
    except OSError:
        return ""


def is_gone(name: str) -> bool:
    """Return whether a process is provably gone: of this boot and pid namespace, where no such
    process is.
    """
    boot, space, number, _ = words if len(words := name.split()) == 4 else [""] * 4
    if not boot or [boot, space] != process_name(os.getpid()).split()[:2]:
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # of another user
        pass
    return process_name(int(number)) not in ("", name)  # "": /proc may hide a living one
