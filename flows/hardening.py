"""Hardens the process: no core file, private files, no cells in what is printed, redacted logs."""

import logging
import os
import resource
from collections.abc import Iterator

from flows.redaction import Redaction


def harden_process() -> None:
    """Let this process leave no cells behind, and redact what it logs.

    It writes no core file, creates files for its user only, and prints no cells. Call it again to
    give new log handlers their filter.
    """
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold an extract's rows
    # assertions, debuggers and foreign exceptions print frames: no cells
    os.environ["POLARS_FMT_MAX_ROWS"] = "0"
    # The next three are effective only before numpy and polars are imported, as on the command
    # line. numpy's own threads only spin here: nothing is multiplied
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # polars' allocator: one arena takes 50 MB less, and fewer new pages; pages that are free for a
    # quarter of a second, not for ten, go back: 50 MB less for a twentieth of a submit's CPU
    os.environ.setdefault("_RJEM_MALLOC_CONF", "narenas:1,dirty_decay_ms:250")
    # blocks and ledgers are small queries, for which starting the streaming engine's threads costs
    # more than it saves
    os.environ.setdefault("POLARS_ENGINE_AFFINITY", "in-memory")
    # a record that cannot be written would be printed with its arguments
    logging.raiseExceptions = False
    for handler in list(_handlers()):
        if not any(isinstance(known, Redaction) for known in handler.filters):
            handler.addFilter(Redaction())


def _handlers() -> Iterator[logging.Handler]:
    """Yield the handlers of every logger, and the one of last resort."""
    for logger in [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]:
        if isinstance(logger, logging.Logger):
            yield from logger.handlers
    if logging.lastResort is not None:
        yield logging.lastResort
