"""The page server: `python -m flows.pages` serves the reports of every issuer to browsers that know
its token.

It serves files of `report/`, `reconciliation/` and `programme/`, from whatever store they are in;
never a chunk, a link or a list of links. CARDLINK_REPORTS_URL is its address with the token, as a
browser reaches it.
"""

import argparse
import hmac
import re
import signal
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from flows.configuration import issuers, load_issuer
from flows.errors import CardlinkError, OperatorError
from flows.hardening import harden_process
from flows.runs.store import read
from flows.wiring import config_folder, open_store, reports_url

SHORTEST = 16  # characters of a token
TYPES = {
    "html": "text/html; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
SERVED = re.compile(
    rf"(?:programme|(?P<issuer>[a-z0-9-]+)/"
    rf"(?:runs/[a-z0-9-]+/report|reconciliation(?:/period-[a-z0-9-]+)?|programme))/"
    rf"(?!links)[a-z0-9_-]+\.(?P<type>{'|'.join(TYPES)})"
)
REFUSED = (
    "Not here. This server shows reports and reconciliation pages; links are read from the store.\n"
)
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class ReportsAddressError(OperatorError):
    """The page server has no address, or one without a token."""

    message = (
        "CARDLINK_REPORTS_URL is not an address with a token of at least {shortest} characters."
    )
    next_step = "Set it like http://127.0.0.1:4201/TOKEN, for the page server and the worker alike."


def page_server(folder: Path, address: str, host: str = "") -> ThreadingHTTPServer:
    """Return a server of the reports of a folder's issuers, listening at an address;
    ReportsAddressError.
    """
    url = urlsplit(address)
    token = url.path.strip("/")
    if (
        url.scheme != "http"
        or not url.hostname
        or not url.port
        or not re.fullmatch(rf"[\w-]{{{SHORTEST},}}", token)
    ):
        raise ReportsAddressError(shortest=SHORTEST)

    class Handler(BaseHTTPRequestHandler):
        timeout = 30
        server_version = "cardlink"
        sys_version = ""

        def do_GET(self) -> None:
            sent_token, _, key = unquote(urlsplit(self.path).path)[1:].partition("/")
            allowed = hmac.compare_digest(sent_token.encode(errors="replace"), token.encode())
            page = SERVED.fullmatch(key) if allowed else None
            content = _content(folder, page) if page else None
            if page is None or content is None:
                self._respond(404, "text/plain", REFUSED.encode())
            else:
                self._respond(200, TYPES[page["type"]], content)

        def _respond(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            headers = {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: a request holds the token."""

    return ThreadingHTTPServer((host or url.hostname, url.port), Handler)


def _content(folder: Path, page: re.Match[str]) -> bytes | None:
    """Return a page of an issuer; one of all issuers from the first root that has it."""
    names = [name for name in issuers(folder) if page["issuer"] in (None, name)]
    for name in names:
        with suppress(CardlinkError):
            return read(open_store(load_issuer(folder, name), folder), page.string)
    return None


def main() -> None:
    """Serve at CARDLINK_REPORTS_URL until Ctrl-C or SIGTERM; --host names another interface, as
    inside a container.
    """
    harden_process()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument(
        "--host", default="", help="interface to listen on (default: that of the address)"
    )
    with (
        page_server(config_folder(), reports_url(), options.parse_args().host) as server,
        suppress(KeyboardInterrupt),
    ):
        server.serve_forever()


if __name__ == "__main__":
    main()
