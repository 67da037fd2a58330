"""Masks card numbers and CVV hashes in everything a process prints or logs, and hardens the process.

Redaction is the second line of defence; the first is that no foreign exception's text passes the boundary.
"""

from __future__ import annotations

import base64
import logging
import os
import re
import resource
from functools import cache
from hashlib import sha256
from typing import Final

from flows.errors import CardlinkError

MASK: Final = "[masked]"
# Grouped as on a card, so that a run id (`…-20261120-77098123-00001`) or a list of rows is left readable.
_DIGITS = re.compile(
    r"(?<![0-9])(?:[0-9]{13,}|[0-9]{4}(?P<by>[ ._-])[0-9]{4}(?P=by)[0-9]{4}(?P=by)[0-9]{1,7}"
    r"|[0-9]{4}(?P<as>[ ._-])[0-9]{6}(?P=as)[0-9]{5})(?![0-9])"
)
# A date and time to the second or finer, or epoch milliseconds, as in file names: no card begins so.
_MOMENT = re.compile(
    r"20[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?:[01][0-9]|2[0-3])[0-5][0-9][0-5][0-9][0-9]{0,6}"
    r"|1[0-9]{12}"
)
_DIGEST = re.compile(r"(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/_-]{43}=?|[0-9A-Fa-f]{64})(?![A-Za-z0-9+/_-])")
_URLSAFE = str.maketrans("+/", "-_")
_PLAIN = logging.Formatter()

# Assertions, debuggers and foreign exceptions print frames: this shows their cells as "…".
NO_CELLS: Final = {"POLARS_FMT_MAX_ROWS": "0"}

# Effective only before numpy and polars are imported, as on the command line.
FRUGAL: Final = {
    "OPENBLAS_NUM_THREADS": "1",  # numpy's own threads only spin here: nothing is multiplied
    "_RJEM_MALLOC_CONF": "narenas:1",  # polars' allocator: one arena keeps 50 MB less, and touches fewer new pages
}


def redact(text: str) -> str:
    """Return `text` with every CVV hash masked, and every 13 to 19 digits that pass Luhn, bare or in a card's groups.

    A longer run of digits is masked too: a card number may be anywhere in it. Dates and times are left readable.
    """
    return _DIGITS.sub(_mask_card, _DIGEST.sub(_mask_hash, text))


class Redaction(logging.Filter):
    """Redacts every log record of a handler, its exception and stack included.

    In a logging configuration: `filters: {redaction: {(): flows.redaction.Redaction}}`.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact a record in place; arguments that do not fit the message and traces of our errors are dropped."""
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - an argument's own __str__ may raise anything
            message = str(record.msg)
        if record.exc_info and isinstance(record.exc_info[1], CardlinkError):
            if message.startswith("Engine execution exited"):  # what Prefect adds to a flow that ended as failed
                return False
            record.exc_info = None  # its sentence says it all
        record.msg, record.args = redact(message), ()
        if record.exc_info:
            record.exc_text = record.exc_text or _PLAIN.formatException(record.exc_info)
            record.exc_info = None  # else a handler would format it again, unredacted
        record.exc_text = redact(record.exc_text) if record.exc_text else record.exc_text
        record.stack_info = redact(record.stack_info) if record.stack_info else record.stack_info
        return True


def passes_luhn(digits: str) -> bool:
    """Return whether the last of these digits is the check digit of a card number."""
    doubled = (divmod(2 * int(digit), 10) for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(tens + ones for tens, ones in doubled)) % 10 == 0


def _mask_card(found: re.Match[str]) -> str:
    digits = re.sub(r"[ ._-]", "", found[0])
    if _MOMENT.fullmatch(digits):
        return found[0]
    return MASK if len(digits) > 19 or passes_luhn(digits) else found[0]


def _mask_hash(found: re.Match[str]) -> str:
    """Mask the SHA-256 of a CVV; any other digest, such as an extract's, is left readable."""
    text = found[0]
    digest = bytes.fromhex(text) if len(text) == 64 else base64.urlsafe_b64decode(text.translate(_URLSAFE)[:43] + "=")
    return MASK if digest in _cvv_hashes() else text


@cache
def _cvv_hashes() -> frozenset[bytes]:
    """Return the SHA-256 of every CVV: 11,000, in 15 ms."""
    cvvs = (f"{number:0{width}d}" for width in (3, 4) for number in range(10**width))
    return frozenset(sha256(cvv.encode()).digest() for cvv in cvvs)


def harden_process() -> None:
    """Let this process write no core file, create files for its user only, print no cells, and redact what it logs.

    Call it again to give new log handlers their filter.
    """
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold an extract's rows
    os.environ.update(NO_CELLS)
    for name, value in FRUGAL.items():
        os.environ.setdefault(name, value)
    logging.raiseExceptions = False  # a record that cannot be written would be printed with its arguments
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    handlers = [handler for logger in loggers if isinstance(logger, logging.Logger) for handler in logger.handlers]
    for handler in (*handlers, logging.lastResort):
        if handler is not None and not any(isinstance(one, Redaction) for one in handler.filters):
            handler.addFilter(Redaction())
