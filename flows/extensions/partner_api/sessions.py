"""Who sends a request: sessions as `httpx.Auth`, by `[service.auth]` and `[service.signing]`.

An `auth_flow` is a generator without I/O: it yields requests and is given their responses, so it
may log in first, and once more where the service no longer accepts the session. `transport` sends
what it yields. An installed package may bring a flow of its own, as an entry point in the group
`cardlink.service_auth`; it yields the request itself last.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from importlib.metadata import entry_points
from threading import Lock
from typing import Any, Final, NamedTuple

import httpx

from flows.extensions.partner_api.profile import SigningSettings
from flows.extensions.partner_api.responses import document_of, fits_header, text_in
from flows.extensions.partner_api.service import (
    NoSuchPluginError,
    SigningKeyError,
    StrangeAnswerError,
)
from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.partner_api.translation import fields_of

UNAUTHORISED: Final = 401
GROUP: Final = "cardlink.service_auth"
LOGIN: Final = "the login"  # as messages name it
Flow = Generator[httpx.Request, httpx.Response, None]


@dataclass(frozen=True)
class Credentials:
    """The service object of interface.md 2.8 without its address; no repr shows a secret."""

    app_name: str
    app_key: str = field(repr=False)
    username: str = field(repr=False)
    password: str = field(repr=False)

    def as_json(self) -> dict[str, str]:
        """Return the properties as requests spell them."""
        return {
            "app_name": self.app_name,
            "app_key": self.app_key,
            "username": self.username,
            "password": self.password,
        }


class SessionKeys(NamedTuple):
    """What a session gives: the token that requests show, and the key that they are signed with."""

    token: str
    key: SigningKey

    def __repr__(self) -> str:
        return "SessionKeys()"


def auth_of(settings: ServiceSettings, credentials: Credentials) -> httpx.Auth:
    """Return how the requests to a service say who sends them.

    Raises NoSuchPluginError.
    """
    if settings.auth.plugin:
        return _plugin(settings, credentials)
    return SessionAuth(settings, credentials)


def _plugin(settings: ServiceSettings, credentials: Credentials) -> httpx.Auth:
    name = settings.auth.plugin
    for plugin in entry_points(group=GROUP, name=name):
        auth: httpx.Auth = plugin.load()(settings, credentials)
        return auth
    known = ", ".join(sorted(entry_points(group=GROUP).names)) or "none"
    raise NoSuchPluginError(name=name, known=known)


class SessionAuth(httpx.Auth):
    """A session by login, or the integrator key for one; requests show its token, or are signed."""

    requires_request_body = True

    def __init__(self, settings: ServiceSettings, credentials: Credentials) -> None:
        self._settings = settings
        self._credentials = credentials
        self._lock = Lock()
        self._session: SessionKeys | None = None

    def auth_flow(self, request: httpx.Request) -> Flow:
        """Log in if necessary and send the request; if its session is refused, once more."""
        session = yield from self._current()
        self._prepare(request, session)
        response = yield request
        if response.status_code != UNAUTHORISED or not self._settings.path("login"):
            return
        self._forget(session)
        session = yield from self._current()
        self._prepare(request, session)
        yield request

    def _current(self) -> Generator[httpx.Request, httpx.Response, SessionKeys]:
        """Return the session; the first caller logs in, and the others wait for it."""
        with self._lock:
            if self._session is None:
                self._session = yield from self._begun()
            return self._session

    def _begun(self) -> Generator[httpx.Request, httpx.Response, SessionKeys]:
        credentials = self._credentials
        if not self._settings.path("login"):
            return SessionKeys(credentials.app_key, self._key(b""))
        response = yield self._login()
        token = text_in(response.content, self._settings.places("login.session_token"))
        if not self._settings.auth.token:
            token = token or ""
        elif token is None or not fits_header(token):
            problem = "no session token; name its field in [service.names] login.session_token"
            raise StrangeAnswerError(place=LOGIN, problem=problem + it_has(response.content))
        return SessionKeys(token, self._key(response.content))

    def _login(self) -> httpx.Request:
        settings = self._settings
        values = self._credentials.as_json()
        names = {key: settings.name(f"login.credentials.{key}") for key in values}
        fields = {name: values[key] for key, name in names.items() if name}
        url = f"{settings.base_url.rstrip('/')}{settings.path('login')}"
        headers = self._own_headers()
        if settings.auth.login_encoding == "form":
            return httpx.Request("POST", url, data=fields, headers=headers)
        return httpx.Request("POST", url, json=_nested(fields), headers=headers)

    def _own_headers(self) -> dict[str, str]:
        """Return the headers that show a credential with every request."""
        values = self._credentials.as_json()
        return {name: values[key] for key, name in self._settings.auth.headers.items()}

    def _key(self, login: bytes) -> SigningKey:
        """Return the key that requests are signed with; `login`: the body of its response."""
        signing = self._settings.signing
        name = self._credentials.app_name
        if signing.key == "app_key":
            return SigningKey(self._credentials.app_key, name)
        key = text_in(login, self._settings.places("login.session_key"))
        if signing.type != "none" and key is None and login:
            problem = "no key to sign with; name its field in [service.names] login.session_key"
            raise StrangeAnswerError(place=LOGIN, problem=problem + it_has(login))
        return SigningKey(key or "", name)

    def _prepare(self, request: httpx.Request, session: SessionKeys) -> None:
        request.headers.update(self._own_headers())
        show_token(request, self._settings.auth.token, session.token)
        signing = self._settings.signing
        if signing.type == "hmac":
            sign(request, signing, session.key, session.token, datetime.now(UTC))

    def _forget(self, session: SessionKeys) -> None:
        """End a session, unless another thread already has a new one."""
        with self._lock:
            if self._session is session:
                self._session = None


def _nested(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties of an object by their paths: `user.name` is `name` in `user`."""
    properties: dict[str, Any] = {}
    for path, value in values.items():
        *outer, name = path.split(".")
        inner = properties
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[name] = value
    return properties


def it_has(body: bytes) -> str:
    """Return the names of the fields that a response has, never their values."""
    document = document_of(body)
    names = ", ".join(fields_of(document)) if isinstance(document, dict) else ""
    return f" (it has {names})" if names else ""


def show_token(request: httpx.Request, where: str, token: str) -> None:
    """Put the token of a session where requests show it (`[service.auth] token`)."""
    if where.startswith("?"):
        request.url = request.url.copy_set_param(where[1:].partition("=")[0], token)
    elif where:
        name, _, value = where.partition(": ")
        request.headers[name] = value.replace("{token}", token)


class SigningKey(NamedTuple):
    """A key, as the settings write it, and its name."""

    secret: str
    name: str

    def __repr__(self) -> str:
        return f"SigningKey(name={self.name!r})"


def sign(
    request: httpx.Request,
    settings: SigningSettings,
    key: SigningKey,
    token: str,
    moment: datetime,
) -> None:
    """Sign the canonical string of a request with a shared key: put the headers that the settings
    name in place of earlier ones.
    """
    shared = {**_moments(moment), "nonce": secrets.token_hex(16), "key_id": key.name}
    canonical = settings.canonical.format(**_parts(request), **shared, token=token)
    secret = key_bytes(key.secret, settings.key_encoding)
    digest = hmac.digest(secret, canonical.encode(), settings.algorithm.removeprefix("hmac-"))
    signed = {
        **shared,
        "signature": digest.hex(),
        "signature_base64": base64.b64encode(digest).decode(),
        "algorithm": settings.algorithm,
    }
    headers = {name: value.format(**signed) for name, value in settings.headers.items()}
    request.headers.update(headers)


def key_bytes(text: str, encoding: str) -> bytes:
    """Return an HMAC key as bytes; SigningKeyError where it is not written so."""
    try:
        match encoding:
            case "hex":
                return bytes.fromhex(text)
            case "base64":
                return base64.b64decode(text, validate=True)
    except ValueError:
        pass
    else:
        return text.encode()
    raise SigningKeyError(algorithm="HMAC", problem=f"the key is not written in {encoding}")


def _parts(request: httpx.Request) -> dict[str, str]:
    """Return what a canonical string may name of a request, as it is sent."""
    target = request.url.raw_path.decode("ascii")
    path, _, query = target.partition("?")
    return {
        "method": request.method,
        "scheme": request.url.scheme,
        "host": request.headers["Host"],
        "path": path,
        "query": query,
        "target": target,
        "body": request.content.decode("utf-8", "replace"),
        "body_sha256": hashlib.sha256(request.content).hexdigest(),
    }


def _moments(moment: datetime) -> dict[str, str]:
    """Return a time as the headers and the canonical string may have it."""
    seconds = moment.timestamp()
    in_utc = moment.astimezone(UTC)
    return {
        "timestamp": str(int(seconds)),
        "timestamp_ms": str(int(seconds * 1000)),
        "timestamp_iso": f"{in_utc:%Y-%m-%dT%H:%M:%SZ}",
        "timestamp_http": format_datetime(in_utc, usegmt=True),
    }
