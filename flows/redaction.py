"""What a process must never print, log or dump: card numbers and CVV hashes become a mask, whoever started it.

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

MASK: Final = "[masked]"
# Written as cards are, so that a run id (`…-20261120-77098123-00001`) or a list of rows stays to be read.
_DIGITS = re.compile(
    r"(?<![0-9])(?:[0-9]{13,}|[0-9]{4}(?P<by>[ ._-])[0-9]{4}(?P=by)[0-9]{4}(?P=by)[0-9]{1,7}"
    r"|[0-9]{4}(?P<as>[ ._-])[0-9]{6}(?P=as)[0-9]{5})(?![0-9])"
)
# A date and time to the second or closer, or epoch milliseconds, as names of files have them: no card begins so.
_MOMENT = re.compile(
    r"20[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?:[01][0-9]|2[0-3])[0-5][0-9][0-5][0-9][0-9]{0,6}"
    r"|1[0-9]{12}"
)
_DIGEST = re.compile(r"(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/_-]{43}=?|[0-9A-Fa-f]{64})(?![A-Za-z0-9+/_-])")
_URLSAFE = str.maketrans("+/", "-_")
_PLAIN = logging.Formatter()

# Frames are printed by assertions, debuggers and other people's exceptions: their cells show as "…".
NO_CELLS: Final = {"POLARS_FMT_MAX_ROWS": "0"}

# Heard where numpy and polars are not yet imported, as on the command line.
FRUGAL: Final = {
    "OPENBLAS_NUM_THREADS": "1",  # numpy's own threads only spin here: nothing is multiplied
    "_RJEM_MALLOC_CONF": "narenas:1",  # polars' allocator: one arena keeps 50 MB less, and touches fewer new pages
}


def redact(text: str) -> str:
    """Return `text` with every CVV hash masked, and every 13 to 19 digits that pass Luhn, bare or in a card's groups.

    A longer run of digits is masked too: a card number may be anywhere in it. Moments are left to read.
    """
    return _DIGITS.sub(_mask_card, _DIGEST.sub(_mask_hash, text))


class Redaction(logging.Filter):
    """A filter for log handlers: lets every record through, redacted, its exception and stack included.

    Name it in a logging configuration: `filters: {redaction: {(): flows.redaction.Redaction}}`.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact a record in place; True always. One whose arguments do not fit its message loses them."""
        record.msg, record.args = redact(_message(record)), ()
        if record.exc_info:
            record.exc_text = record.exc_text or _PLAIN.formatException(record.exc_info)
            record.exc_info = None  # a handler that formats it anew would show it as it was
        record.exc_text = redact(record.exc_text) if record.exc_text else record.exc_text
        record.stack_info = redact(record.stack_info) if record.stack_info else record.stack_info
        return True


def passes_luhn(digits: str) -> bool:
    """Tell whether a run of digits carries the check digit of a card number."""
    doubled = (divmod(2 * int(digit), 10) for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(tens + ones for tens, ones in doubled)) % 10 == 0


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - an argument's own __str__ may raise anything
        return str(record.msg)


def _mask_card(found: re.Match[str]) -> str:
    digits = re.sub(r"[ ._-]", "", found[0])
    if _MOMENT.fullmatch(digits):
        return found[0]
    return MASK if len(digits) > 19 or passes_luhn(digits) else found[0]


def _mask_hash(found: re.Match[str]) -> str:
    """Mask what is the SHA-256 of a CVV; any other digest, such as an extract's, is worth reading."""
    text = found[0]
    digest = bytes.fromhex(text) if len(text) == 64 else base64.urlsafe_b64decode(text.translate(_URLSAFE)[:43] + "=")
    return MASK if digest in _cvv_hashes() else text


@cache
def _cvv_hashes() -> frozenset[bytes]:
    """Return the SHA-256 of every CVV: 11,000, in 15 ms."""
    cvvs = (f"{number:0{width}d}" for width in (3, 4) for number in range(10**width))
    return frozenset(sha256(cvv.encode()).digest() for cvv in cvvs)


def harden_process() -> None:
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
