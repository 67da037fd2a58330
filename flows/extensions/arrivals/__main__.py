"""The process `python -m flows.extensions.arrivals` starts a run as soon as its file is there.

It looks after every issuer with `[arrivals]`, and takes up changes of the TOML files by itself.
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
from typing import Final, NoReturn

from flows.errors import CardlinkError
from flows.hardening import harden_process

LOG = logging.getLogger("cardlink")
CONFIGURED: Final = 30.0  # seconds between two looks at the TOML files
SILENT: Final = 120.0  # seconds without a sign of life after which a supervisor may end it


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
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        work()
    except CardlinkError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 0


def work() -> NoReturn:
    """Start runs until a signal, with a sign of life while every issuer is looked after."""
    # what takes time to import, after the health check above
    from flows.extensions.arrivals.looks import watch_issuers
    from flows.extensions.arrivals.starts import begin
    from flows.prefect_answers import require_server
    from flows.wiring import config_folder

    require_server()
    watches = watch_issuers(config_folder(), begin)
    while True:
        if all(watch.is_alive() for watch in watches):
            sign()
        time.sleep(CONFIGURED)
        watches = watch_issuers(config_folder(), begin, watches)


def sign_file() -> Path:
    """Return the file whose age is that of the last sign of life, of this user on this machine."""
    return Path(tempfile.gettempdir()) / f"cardlink-arrivals-{os.getuid()}"


def sign() -> None:
    """Give a sign of life, where the folder for temporary files takes it."""
    with suppress(OSError):
        sign_file().touch(mode=0o600)


def is_alive() -> bool:
    """Return whether there was a sign of life within SILENT seconds."""
    with suppress(OSError):
        return time.time() - sign_file().stat().st_mtime < SILENT
    return False


if __name__ == "__main__":
    sys.exit(main())
