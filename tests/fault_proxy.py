"""A proxy between boto3 and an S3 server that does to requests what networks and stores do on a bad
night.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from threading import Lock, Thread
from typing import NamedTuple
from urllib.parse import urlsplit


class Fault(Enum):
    """What happens to one request; those with a number are answers given without asking the
    server.
    """

    THROTTLED = (503, "SlowDown")
    TOO_MANY = (429, "TooManyRequests")
    CONFLICT = (409, "ConditionalRequestConflict")
    EXPIRED = (400, "ExpiredToken")
    SKEWED = (403, "RequestTimeTooSkewed")
    DENIED = (403, "AccessDenied")
    NO_BUCKET = (404, "NoSuchBucket")
    MOVED = (301, "PermanentRedirect")
    FULL = (507, "InsufficientStorage")
    RESET = "the connection is reset before the server is asked"
    TIMEOUT = "the server is not asked, and nothing answers"
    LOST_ANSWER = "the server does it, the connection is reset before the answer"
    LATE_500 = "the server does it, the answer is 500 InternalError"
    RESET_IN_BODY = "the answer is reset in the middle of its body"
    CUT_BODY = "the answer's body ends early, the connection closes as if all were well"
    STALLED_BODY = "half of the answer's body comes, then nothing"
    SLOW_BODY = "the answer's body comes in eight pieces, with pauses"
    TRICKLE = "the answer's body comes byte by byte, for as long as the client waits"
    WRONG_BYTE = "one byte of the answer's body is another"
    GARBLED = "the answer's body is no XML"
    PAGE = "the server is not asked, the answer is a web page with status 200"
    NO_RANGE = "Range does not reach the server, which answers with the whole"
    NO_CONDITIONS = "If-None-Match does not reach the server, which writes over what is there"
    CONDITIONS_REFUSED = "the server refuses If-None-Match, which it does not implement"
    CONDITIONS_INVALID = "the server refuses If-None-Match as an invalid argument"
    CHECKSUMS_REFUSED = "the server refuses checksums of what is written"


PASSING = (
    Fault.THROTTLED,
    Fault.TOO_MANY,
    Fault.CONFLICT,
    Fault.RESET,
    Fault.LOST_ANSWER,
    Fault.LATE_500,
    Fault.RESET_IN_BODY,
    Fault.CUT_BODY,
)


class RunInputs(NamedTuple):
    """One request as a chooser sees it; `number` counts all requests from 0, `signed` is its
    Authorization.
    """

    number: int
    method: str
    path: str
    signed: str = ""


_DROPPED: dict[Fault | None, str] = {Fault.NO_CONDITIONS: "if-none-match", Fault.NO_RANGE: "range"}

_REFUSED: dict[Fault, tuple[str, int, str]] = {  # a header, and the answer to who sends it
    Fault.CONDITIONS_REFUSED: ("if-none-match", 501, "NotImplemented"),
    Fault.CONDITIONS_INVALID: ("if-none-match", 400, "InvalidArgument"),
    Fault.CHECKSUMS_REFUSED: ("x-amz-checksum-crc32", 400, "InvalidArgument"),
}

Chooser = Callable[[RunInputs], Fault | None]


class Proxy(NamedTuple):
    """A running proxy: where boto3 finds it, and what it has done so far."""

    endpoint: str
    injected: Counter[Fault]
    asked: list[RunInputs]


def scripted(method: str, *faults: Fault | None) -> Chooser:
    """Give these faults to the next requests of a method, one each, then none."""
    waiting, lock = list(faults), Lock()

    def choose(asked: RunInputs) -> Fault | None:
        with lock:
            return waiting.pop(0) if waiting and asked.method == method else None

    return choose


def always(fault: Fault, method: str = "") -> Chooser:
    return lambda asked: fault if method in ("", asked.method) else None


def at_random(seed: int, share: float, faults: Sequence[Fault] = PASSING) -> Chooser:
    """Give a share of all requests one of these faults."""
    chance, lock = Random(seed), Lock()

    def choose(_: RunInputs) -> Fault | None:
        with lock:
            return chance.choice(faults) if chance.random() < share else None

    return choose


@contextmanager
def between(
    endpoint: str, choose: Chooser, *, silence: float = 2.0, headers: Sequence[tuple[str, str]] = ()
) -> Iterator[Proxy]:
    """Run a proxy before `endpoint`; a TIMEOUT keeps quiet for `silence` seconds; a refusal has
    these `headers`.
    """
    proxy = Proxy("", Counter(), [])
    lock = Lock()

    class Handler(_Handler):
        upstream = urlsplit(endpoint).netloc
        quiet = silence
        said = headers

        def fault(self) -> Fault | None:
            with lock:
                asked = RunInputs(
                    len(proxy.asked), self.command, self.path, self.headers.get("Authorization", "")
                )
                proxy.asked.append(asked)
                fault = choose(asked)
                if fault:
                    proxy.injected[fault] += 1
                return fault

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing: a client that leaves in the middle is what this server is for."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy._replace(endpoint=f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream = ""
    quiet = 0.0
    said: Sequence[tuple[str, str]] = ()

    def fault(self) -> Fault | None:
        return None  # the proxy made by `between` chooses

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.fault()
        refusal = _REFUSED.get(fault) if fault else None
        if refusal and refusal[0] in self.headers:
            self._refuse(*refusal[1:])
        elif fault and isinstance(fault.value, tuple):
            self._refuse(*fault.value)
        elif fault is Fault.RESET:
            self._reset()
        elif fault is Fault.TIMEOUT:
            time.sleep(self.quiet)
            self._reset()
        elif fault is Fault.PAGE:
            page = b"" if self.command == "HEAD" else b"<html><body>Sign in</body></html>"
            modified = ("Last-Modified", "Sat, 28 Nov 2026 08:00:00 GMT")
            self._send(_Answer(200, [("Content-Type", "text/html"), modified], page), page)
        else:
            self._forward(body, fault)

    do_PUT = do_POST = do_PATCH = do_DELETE = do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""

    def _forward(self, body: bytes, fault: Fault | None) -> None:
        answer = self._ask(body, without=_DROPPED.get(fault, ""))
        if fault is Fault.LOST_ANSWER:
            self._reset()
        elif fault is Fault.LATE_500:
            self._refuse(500, "InternalError")
        elif fault in (Fault.RESET_IN_BODY, Fault.CUT_BODY) and answer.body:
            self._send(answer, answer.body[: len(answer.body) // 2])
            self._reset() if fault is Fault.RESET_IN_BODY else self._hang_up()
        elif fault is Fault.STALLED_BODY and answer.body:
            self._send(answer, answer.body[: len(answer.body) // 2])
            self.wfile.flush()
            time.sleep(self.quiet)
            self._reset()
        elif fault is Fault.SLOW_BODY and answer.body:
            step = -(-len(answer.body) // 8)
            self._send(answer, answer.body[:step])
            for start in range(step, len(answer.body), step):
                self.wfile.flush()
                time.sleep(self.quiet / 10)
                self.wfile.write(answer.body[start : start + step])
        elif fault is Fault.TRICKLE and answer.body:
            self._send(answer, b"")
            for number in range(len(answer.body)):
                self.wfile.write(answer.body[number : number + 1])
                self.wfile.flush()
                time.sleep(0.01)
        elif fault is Fault.WRONG_BYTE and answer.body:
            self._send(answer, answer.body[:-1] + bytes([answer.body[-1] ^ 1]))
        elif fault is Fault.GARBLED and answer.body:
            self._send(answer, b"?" * len(answer.body))
        else:
            self._send(answer, answer.body)

    def _ask(self, body: bytes, without: str) -> _Answer:
        connection = HTTPConnection(self.upstream, timeout=120)
        try:
            headers = {
                k: v for k, v in self.headers.items() if k.lower() not in ("expect", without)
            }
            connection.request(self.command, self.path, body, headers)
            response = connection.getresponse()
            return _Answer(response.status, response.getheaders(), response.read())
        finally:
            connection.close()

    def _send(self, answer: _Answer, body: bytes) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        declared = {name.lower(): value for name, value in answer.headers}.get("content-length")
        self.send_header("Content-Length", declared or str(len(answer.body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        body = b"" if self.command == "HEAD" else f"<Error><Code>{code}</Code></Error>".encode()
        self._send(_Answer(status, [("Content-Type", "application/xml"), *self.said], body), body)

    def _reset(self) -> None:
        """Close with RST: what was sent but not yet read is lost too."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.close()
