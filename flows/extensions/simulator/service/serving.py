"""Serves the practice service on loopback, and on nothing else, until it is told to end."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from fastapi import FastAPI

from flows.errors import OperatorError
from flows.steps import Option, Sentence

_STARTED_WITHIN: Final = 300.0  # seconds, on a machine with other work


class NotLoopbackError(OperatorError):
    """The practice service knows test cards and has no lock on its door."""

    message = "{host} is not a loopback address; the practice service listens on loopback only."
    next_step = "Leave the address out, or use 127.0.0.1."


class PortTakenError(OperatorError):
    """Something else listens there."""

    message = "Cannot listen on loopback port {port}."
    next_step = Sentence(
        "Leave {option} out to use a free one.",
        option=Option("--port", of="practice"),
    )


def listen(port: int = 0, host: str = "127.0.0.1") -> socket.socket:
    """Return a listening socket on loopback; port 0 takes a free one."""
    if not _is_loopback(host):
        raise NotLoopbackError(host=host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError:
        listener = None
    if listener is None:
        raise PortTakenError(port=port)
    # inherited; without it every answer takes 40 ms
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def address(listener: socket.socket) -> str:
    """Return the base address of what listens there."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server(app: FastAPI) -> uvicorn.Server:
    """Return a server that writes no access log: paths and headers are secrets."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, ws="none", timeout_graceful_shutdown=2
    )
    return uvicorn.Server(config)


def serve_until_stopped(app: FastAPI, listener: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C, and end as cleanly from either."""
    running = server(app)

    def stop(_number: int, _frame: object) -> None:
        running.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:  # uvicorn raises the signal again when it has ended; ours takes it for what it is
        asyncio.run(running.serve([listener]))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def serving(app: FastAPI, listener: socket.socket) -> Iterator[asyncio.AbstractEventLoop]:
    """Serve beside other work until the block ends; yield the loop on which requests are answered.

    What changes the application's state between two requests is run on that loop.
    """
    running = server(app)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=[running.serve([listener])])
    thread.start()
    try:
        until = time.monotonic() + _STARTED_WITHIN
        while not running.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        yield loop
    finally:
        running.should_exit = True
        thread.join(_STARTED_WITHIN)
        loop.close()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
