"""Child processes that begin at once: a parent that has imported the libraries, but nothing of
ours, forks them.

Polars starts its threads with the first frame, and a fork does not take threads along: so nothing
of ours is imported before the fork. Run as a module it reads jobs from stdin; `Forkserver` is the
other end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.leftovers import ended

ROOT = Path(__file__).parents[2]


class Forkserver:
    """Starts children by fork and tells how they ended."""

    def __init__(self, to: IO[str], back: IO[str]) -> None:
        self._to = to
        self._back = back

    def start(self, job: dict[str, Any]) -> int:
        """Start a child on a job; return its process id."""
        return self._ask({"start": job})

    def wait(self, process: int) -> int:
        """Wait until a child has ended; return its exit code, negative for a signal."""
        return self._ask({"wait": process})

    def _ask(self, order: dict[str, Any]) -> int:
        print(json.dumps(order), file=self._to, flush=True)
        return int(self._back.readline())


@contextmanager
def forkserver() -> Iterator[Forkserver]:
    """Run a nursery; its children have ended when the context ends, whatever state they were in."""
    command = [sys.executable, "-m", "tests.torture.nursery"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with ended(process):
        assert process.stdin
        assert process.stdout
        yield Forkserver(process.stdin, process.stdout)
        process.stdin.close()


def _serve() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        print(_start(order["start"]) if "start" in order else _wait(order["wait"]), flush=True)


def _start(job: dict[str, Any]) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        if "argv" in job:
            _begin_command(job)
        from tests.torture.child import command, killed, work  # after the fork: see above

        do = killed if "harm" in job else command if "argv" in job else work
        code = do(job)
    except Exception:  # noqa: BLE001  whatever ends a child is shown
        traceback.print_exc()  # else nobody sees it
    finally:
        os._exit(code)  # without what the parent would do at its end


def _begin_command(job: dict[str, Any]) -> None:
    """Begin as the entry point does, before anything that takes time, and print to files."""
    from flows import stopping

    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{job['folder']}/{name}", os.O_WRONLY | os.O_CREAT), number)
    stopping.install_handlers()


def _wait(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


if __name__ == "__main__":
    import boto3  # noqa: F401 - what takes most of the time of a start
    import gnupg  # noqa: F401
    import pandera.polars  # noqa: F401
    import polars  # noqa: F401
    import pydantic  # noqa: F401

    _serve()
