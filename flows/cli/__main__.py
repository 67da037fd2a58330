"""The entry point, which hears stop signals before it imports the commands."""

import atexit
import gc
import json
import os
import resource
import sys
import threading
from contextlib import suppress

from flows import stopping
from flows.cli import VERSION

# bytes of addresses that Python, polars and their threads take for the smallest extract
ROOM = 1700 << 20


def run() -> None:
    """Be the command; at exit, skip the final garbage collection."""
    # Imported modules stay, so searching them for garbage is in vain. This, and `gc.freeze` at
    # exit, take a tenth of the CPU of a command that has little to do.
    gc.set_threshold(200_000, 10, 10)
    # pandera would import it where the tests are installed, and no command makes examples
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # "not there", as Python has it
    stopping.install_handlers(_report("StoppedError", stopping.MESSAGE, stopping.EXIT_CODE))
    atexit.register(gc.freeze)  # what is left ends with the process: no last search for garbage
    atexit.register(stopping.finish)
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        # closed: else a file of a store could get its number, and what is printed
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDONLY)  # takes the lowest free number; writing to it fails
            stream = open(number, mode, closefd=False)  # noqa: SIM115  for the process's life
            setattr(sys, name, stream)
    room, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= room < ROOM:  # below it, libraries in Rust abort
        _refuse(
            f"The limit of address space (ulimit -v) is {room >> 20} MB; "
            f"raise it to {ROOM >> 20} MB or more.",
            2,
        )
    import ctypes  # here, since it takes time

    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).mallopt(-8, 2)  # M_ARENA_MAX, before any thread starts: 20 to 30 MB less
    _try_threads()
    try:
        os.getcwd()  # noqa: PTH109  pathlib takes time
    except OSError:
        _refuse(
            "The working directory was removed. "
            "Change to one that exists, and run the same command again.",
            2,
        )
    from flows.cli.main import main  # here, since it takes time

    try:
        main()
    except OSError as error:  # in click's own help or usage
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _refuse(f"The output could not be printed ({error.strerror}).", stopping.EXIT_CODE)


def _try_threads() -> None:
    """Refuse where the threads that libraries in Rust need cannot be started: they would print and
    abort.
    """
    done = threading.Event()
    try:
        for _ in range(12 + 2 * (os.cpu_count() or 1)):
            threading.Thread(target=done.wait).start()
    except RuntimeError:
        problem = "The limit of processes and threads (ulimit -u, or that of the container) is met."
        _refuse(f"{problem} Raise it, or wait, and run the same command again.", stopping.EXIT_CODE)
    finally:
        done.set()


def _refuse(problem: str, code: int) -> None:
    # nothing that prints is imported yet
    branch = "TryAgainError" if code == stopping.EXIT_CODE else "OperatorError"
    report = _report(branch, problem, code)
    if report:
        print(report)  # noqa: T201
    else:
        print(f"cardlink: {problem}", file=sys.stderr)  # noqa: T201
    sys.exit(code)


def _report(error: str, message: str, code: int) -> str:
    """Return an outcome as `--json` shows it, "" where the line has no such option."""
    if "--json" not in sys.argv:
        return ""
    facts = {"version": VERSION, "command": "", "error": error, "message": message}
    return json.dumps({**facts, "next": "", "exit_code": code})


if __name__ == "__main__":
    run()
