"""A Prefect server that fails, is slow, has a locked database or is none: `install` and the starts
of arrivals end with their own error and exit code.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from prefect.settings import (
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    temporary_settings,
)

from flows.commands.context import Context
from flows.errors import CardlinkError
from flows.extensions.arrivals.starts import NotDeployedError, begin
from flows.install import install
from flows.prefect_answers import ServerFailsError, ServerRefusesError

LOCKED = b'{"exception_message": "database is locked"}'
# what a server does: status and body, or seconds of silence; and what `install` then ends with
FAULTS: dict[str, tuple[int, bytes, type[CardlinkError], int, str]] = {
    "has an error of its own": (500, b"{}", ServerFailsError, 75, "it answers 500"),
    "has a locked database": (503, LOCKED, ServerFailsError, 75, "it answers 503"),
    "does not answer": (0, b"", ServerFailsError, 75, "it cannot be reached (ReadTimeout)"),
    "is a page to log in": (200, b"<html>", ServerFailsError, 75, "is no Prefect server"),
    "refuses": (401, b"{}", ServerRefusesError, 2, "it answers 401"),
}


@contextmanager
def serving(status: int, body: bytes) -> Iterator[str]:
    """Serve a Prefect server that does the same whatever it is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if not status:
                time.sleep(3)
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_prefect_server_is_said_by_install_and_by_the_process_of_arrivals(
    tmp_path: Path, fault: str
) -> None:
    status, body, error, code, reason = FAULTS[fault]
    with serving(status, body) as url:
        named = {
            PREFECT_API_URL: url,
            PREFECT_API_REQUEST_TIMEOUT: 0.5,
            PREFECT_CLIENT_MAX_RETRIES: 0,
        }
        with temporary_settings(named):
            with pytest.raises(error) as installed:
                install(Context(tmp_path))
            with pytest.raises(error) as started:
                begin("nightly/nightly-bank")

    assert (code, code) == (installed.value.exit_code, started.value.exit_code)
    assert reason in str(installed.value)
    assert reason in str(started.value)


def test_a_server_that_has_no_such_deployment_is_said_with_what_puts_it_there() -> None:
    with (
        serving(404, b"{}") as url,
        temporary_settings({PREFECT_API_URL: url}),
        pytest.raises(NotDeployedError, match="no deployment nightly/nightly-bank") as started,
    ):
        begin("nightly/nightly-bank")

    assert "cardlink install" in str(started.value)
