"""Serves the practice service on loopback, and on nothing else, until it is told to end."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket

import uvicorn
from fastapi import FastAPI

from flows.errors import OperatorError


class NotLoopbackError(OperatorError):
    """The practice service knows test cards and has no lock on its door."""

    message = "{host} is not a loopback address; the practice service listens on loopback only."
    next_step = "Leave the address out, or use 127.0.0.1."


class PortTakenError(OperatorError):
    """Something else listens there."""

    message = "Cannot listen on loopback port {port}."
    next_step = "Leave --port out to use a free one."


def listen(port: int = 0, host: str = "127.0.0.1") -> socket.socket:
    """Return a listening socket on loopback; port 0 takes a free one."""
    if not _loopback(host):
        raise NotLoopbackError(host=host)
    try:
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
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
    return uvicorn.Server(
        uvicorn.Config(
            app, log_level="warning", access_log=False, ws="none", timeout_graceful_shutdown=2
        )
    )


def serve_until_stopped(app: FastAPI, listener: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C, and end as cleanly from either."""
    serving = server(app)
    reported = (signal.SIGTERM, signal.SIGINT)
    before = {
        one: signal.signal(one, lambda *_: setattr(serving, "should_exit", True))
        for one in reported
    }
    try:  # uvicorn raises the signal again when it has ended; ours takes it for what it is
        asyncio.run(serving.serve([listener]))
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
