"""The address of the page server: what browsers use, and where it listens itself."""

import re
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from flows.errors import OperatorError

SHORTEST = 16  # characters of a token
PORT = 4201  # where it listens behind a proxy
LOOPBACK = "127.0.0.1"


class ReportsAddressError(OperatorError):
    """The page server has no address, or one without a token."""

    message = (
        "CARDLINK_REPORTS_URL is not an address with a token of at least {shortest} characters."
    )
    next_step = (
        "Set it like http://127.0.0.1:4201/TOKEN, or like https://reports.example.com/cards/TOKEN "
        "behind a proxy that ends TLS, for the page server and the worker alike."
    )


class ReportsAddress(NamedTuple):
    """An address as browsers have it: its host, what comes before the token, and the token."""

    host: str
    port: int | None
    prefix: str
    token: str

    @property
    def listens_on(self) -> tuple[str, int]:
        """Host and port of the server itself: those of the address, or loopback behind a proxy."""
        return (self.host, self.port) if self.port is not None else (LOOPBACK, PORT)


def reports_address(url: str) -> ReportsAddress:
    """Return the parts of an address.

    http with a port is where the server listens itself; https, with or without one, is a proxy
    before it, which may keep or strip the path before the token. ReportsAddressError for anything
    else.
    """
    parts = _split(url)
    prefix, _, token = parts.path.rstrip("/").rpartition("/")
    is_whole = parts.hostname and not (parts.query or parts.fragment or parts.username)
    is_reached = parts.scheme == "https" or (parts.scheme == "http" and parts.port)
    is_named = re.fullmatch(rf"[\w-]{{{SHORTEST},}}", token) and re.fullmatch(
        r"(/[\w.~-]+)*", prefix
    )
    if not (is_whole and is_reached and is_named):
        raise ReportsAddressError(shortest=SHORTEST)
    port = parts.port if parts.scheme == "http" else None
    return ReportsAddress(str(parts.hostname), port, prefix, token)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # read here: a port that is no number is found when it is read
        return parts
    except ValueError:
        raise ReportsAddressError(shortest=SHORTEST) from None
