"""The process itself: what it must never write to a disk or a log, whoever started it."""

from __future__ import annotations

import logging
import os
import resource
from typing import Final

from flows.core.redaction import Redaction

# Frames are printed by assertions, debuggers and other people's exceptions: their cells show as "…".
NO_CELLS: Final = {"POLARS_FMT_MAX_ROWS": "0"}

# Heard where numpy and polars are not yet imported, as on the command line.
FRUGAL: Final = {
    "OPENBLAS_NUM_THREADS": "1",  # numpy's own threads only spin here: nothing is multiplied
    "_RJEM_MALLOC_CONF": "narenas:1",  # polars' allocator: one arena keeps 50 MB less, and touches fewer new pages
}


def harden() -> None:
    """Let this process write no core file, make files for its user only, print no cells, and redact what it logs.

    Safe to call again: handlers that came since get their filter then.
    """
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold an extract's rows
    os.environ.update(NO_CELLS)
    for name, value in FRUGAL.items():
        os.environ.setdefault(name, value)
    logging.raiseExceptions = False  # a record that cannot be written would be printed with its arguments
    for handler in _handlers():
        if not any(isinstance(one, Redaction) for one in handler.filters):
            handler.addFilter(Redaction())


def _handlers() -> list[logging.Handler]:
    """Return every handler there is: the last resort, the root's and those of all loggers."""
    known = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    named = [handler for logger in known if isinstance(logger, logging.Logger) for handler in logger.handlers]
    return list(dict.fromkeys([*named, *([logging.lastResort] if logging.lastResort else [])]))
