"""Logins and signatures: a token in a header of its own, an HMAC with the session's key."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request as HttpRequest

SKEW_SECONDS = 300.0


class Credentials(NamedTuple):
    """What a client logs in with."""

    app_name: str
    app_key: str
    username: str
    password: str


class Session(NamedTuple):
    """A login: its token, its key for signatures and its end."""

    token: str
    key: bytes
    ends: float


class Sessions:
    """The logins that are open."""

    def __init__(self, accepted: Credentials, seconds: float = 600.0) -> None:
        self._accepted = accepted
        self._seconds = seconds
        self._open: dict[str, Session] = {}

    def log_in(self, body: Mapping[str, object], now: float) -> Session | None:
        """Open a session where the credentials are right."""
        client = body.get("client")
        user = body.get("user")
        if not isinstance(client, Mapping) or not isinstance(user, Mapping):
            return None
        sent = Credentials(
            str(client.get("name")),
            str(client.get("key")),
            str(user.get("login")),
            str(user.get("password")),
        )
        if sent != self._accepted:
            return None
        session = Session(secrets.token_hex(16), secrets.token_bytes(32), now + self._seconds)
        self._open[session.token] = session
        return session

    def refusal(self, request: HttpRequest, body: bytes, now: float) -> tuple[str, str] | None:
        """Return why a request is refused: a code and a sentence."""
        session = self._open.get(request.headers.get("x-placement-token", ""))
        if session is None or session.ends < now:
            return "session", "log in first: there is no such session, or it has ended"
        stamp = request.headers.get("x-placement-time", "")
        if not stamp.isdigit() or abs(int(stamp) / 1000 - now) > SKEW_SECONDS:
            return "clock", "x-placement-time is not within five minutes of the server's time"
        expected = "v1=" + signature(session.key, request, stamp, body)
        if not hmac.compare_digest(expected, request.headers.get("x-placement-signature", "")):
            return "signature", "bad signature"
        return None


def signature(key: bytes, request: HttpRequest, stamp: str, body: bytes) -> str:
    """Return the signature that a request must carry."""
    query = f"?{request.url.query}" if request.url.query else ""
    lines = [
        request.method,
        request.url.path + query,
        stamp,
        hashlib.sha256(body).hexdigest(),
    ]
    digest = hmac.digest(key, "\n".join(lines).encode(), "sha256")
    return base64.b64encode(digest).decode()
