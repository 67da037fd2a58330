"""The page server: `python -m flows.pages` serves the reports of every issuer to browsers that know
its token.

CARDLINK_REPORTS_URL is its address with the token, as a browser reaches it: its own, or that of a
proxy that ends TLS.
"""

import argparse
import logging
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import uvicorn

from flows.errors import CardlinkError, OperatorError
from flows.hardening import harden_process
from flows.pages.address import ReportsAddress, reports_address
from flows.pages.connections import BoundedProtocol, WithoutTraces
from flows.pages.site import site
from flows.wiring import clear_token_problems, config_folder, reports_url

HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Server": "cardlink",
}
REQUEST_LINES = 8192  # bytes of a request's line and headers


class PagesPortError(OperatorError):
    """The page server cannot listen where it should."""

    message = "The page server cannot listen on {host}, port {port}: {reason}."
    next_step = "End what listens there, or give the page server and its proxy another address."


def server(folder: Path, address: ReportsAddress) -> uvicorn.Server:
    """Return a server of the reports of a folder's issuers.

    It logs no request: each has the token.
    """
    logging.getLogger("uvicorn.error").addFilter(WithoutTraces())
    return uvicorn.Server(
        uvicorn.Config(
            site(folder, address),
            http=BoundedProtocol,
            ws="none",
            headers=list(HEADERS.items()),
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=REQUEST_LINES,
            timeout_graceful_shutdown=5,
            log_config=None,  # the handlers of this process, which redact
            log_level="error",
            access_log=False,
        )
    )


def listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens; PagesPortError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise PagesPortError(host=host, port=port, reason=reason)


def main() -> int:
    """Serve at CARDLINK_REPORTS_URL until Ctrl-C or SIGTERM; return the exit code.

    Behind a proxy (https) it listens on 127.0.0.1:4201.
    """
    harden_process()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("--host", help="interface to listen on (default: that of the address)")
    options.add_argument("--port", type=int, help="port to listen on (default: of the address)")
    chosen = options.parse_args()
    try:
        address = reports_address(reports_url())
        host, port = address.listens_on
        bound = listener(chosen.host or host, port if chosen.port is None else chosen.port)
    except CardlinkError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    for problem in clear_token_problems():
        sys.stderr.write(f"warning: {problem}\n")
    with bound, suppress(KeyboardInterrupt):
        server(config_folder(), address).run(sockets=[bound])
    return 0


if __name__ == "__main__":
    sys.exit(main())
