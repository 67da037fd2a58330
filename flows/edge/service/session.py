"""Who we are at the service: credentials, and the session they open. The one part to replace where login differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

from flows.core.service.answers import fits_header
from flows.core.service.service_errors import StrangeAnswerError


@dataclass(frozen=True)
class Credentials:
    """The service object of interface.md 2.8 without its address; no repr shows a secret."""

    app_name: str
    app_key: str = field(repr=False)
    username: str = field(repr=False)
    password: str = field(repr=False)

    def as_json(self) -> dict[str, str]:
        """Return the properties as requests spell them."""
        return {name: getattr(self, name) for name in ("app_name", "app_key", "username", "password")}


class Session(Protocol):
    """Says who is asking; interface.md 5 leaves open how, so any scheme that goes by headers fits."""

    def headers(self) -> Mapping[str, str]:
        """Return the headers of a request, logging in where that has not happened yet."""
        ...

    def renew(self, refused: Mapping[str, str]) -> None:
        """Make these headers, which the service no longer takes, give way to new ones."""
        ...


class LoginSession:
    """A session by login: credentials against a token, which every later request bears."""

    def __init__(self, login: Callable[[], str | None]) -> None:
        self._login = login
        self._lock = Lock()
        self._headers: dict[str, str] = {}

    def headers(self) -> Mapping[str, str]:
        """Return the token's header; the first caller logs in."""
        with self._lock:
            if not self._headers:
                token = self._login()
                if token is None or not fits_header(token):
                    raise StrangeAnswerError(place="the login", problem="no session token")
                self._headers = {"Authorization": f"Bearer {token}"}
            return self._headers

    def renew(self, refused: Mapping[str, str]) -> None:
        """Forget the token, unless another thread has a new one already."""
        with self._lock:
            if self._headers == refused:
                self._headers = {}
