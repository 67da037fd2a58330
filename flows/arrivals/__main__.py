"""The process of arrivals: `python -m flows.arrivals` starts a run as soon as its file is there.

It listens for every issuer with `[arrivals]`, and takes up changes of the TOML files by itself.
"""

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from threading import Event
from types import FrameType

from flows.hardening import harden_process

LOG = logging.getLogger("cardlink")
SILENT = 120.0  # seconds without a sign of life after which a supervisor may end it


def main() -> int:
    """Start runs when their files arrive, until Ctrl-C or SIGTERM; return the exit code."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument(
        "--alive",
        action="store_true",
        help="ask whether the process of this user works, for a health check; start nothing",
    )
    if options.parse_args().alive:
        return 0 if is_alive() else 1
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    LOG.setLevel(logging.INFO)
    harden_process()
    # what takes time to import, after the health check above
    from flows.arrivals.process import run
    from flows.arrivals.starts import prefect_starts
    from flows.errors import CardlinkError
    from flows.wiring import config_folder

    stop = Event()
    listen_for_stop(stop)
    try:
        with prefect_starts() as starts:
            run(config_folder(), starts, stop, sign)
    except CardlinkError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def listen_for_stop(stop: Event) -> None:
    """Let the first Ctrl-C, SIGTERM or SIGHUP end the process in order."""

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


def sign_file() -> Path:
    """Return the file whose age is that of the last sign of life, of this user on this machine."""
    return Path(tempfile.gettempdir()) / f"cardlink-arrivals-{os.getuid()}"


def sign() -> None:
    """Give a sign of life, where the folder for temporary files takes it."""
    with suppress(OSError):
        sign_file().touch(mode=0o600)


def is_alive() -> bool:
    """Return whether there was a sign of life within SILENT seconds."""
    try:
        return time.time() - sign_file().stat().st_mtime < SILENT
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
