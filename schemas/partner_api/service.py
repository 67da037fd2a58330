"""The table `[service]` of the issuer's TOML: where the partner's interface is, and what it leaves open."""

from __future__ import annotations

import json
import re
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator, model_validator

from schemas.settings import Settings

JOBS: Final = "/place_card_on_single_site_jobs"  # interface.md 4: below it, the job record
JOB_MESSAGES: Final = f"/messages{JOBS}"
CARDHOLDER_MESSAGES: Final = "/messages/cardholders"
LINKS: Final = "/card_links"  # below it, the record of a link
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})

Path = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9._~-]+)+$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]


class ServiceSettings(Settings):
    """Address and details of the partner's interface; the credentials come from the environment only."""

    base_url: str
    prefix: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$")] = "service"
    login_path: Path = "/session"  # POST {app_name, app_key, username, password}
    session_field: Name = "session_token"  # what its answer calls the token, sent as `Authorization: Bearer`
    link_path: Path = "/card_links"  # POST creates a link; its record is always GET /card_links/<id>
    service_property: Name = "service"  # the request's property that holds the service object of 2.8
    fi_key: str = ""  # identifies the institution; required only to request a link
    fi_key_property: Name = "financial_institution_key"
    safe_key: str | None = None  # none: the service manages key storage
    safe_key_property: Name = "safe_key"
    job_hydration: str = '["credential_requests"]'  # value of the hydration header when a job is read
    access_key_fields: tuple[Name, ...] = ("access_key", "messaging_access_key", "key")  # first one present
    link_url: Annotated[str, StringConstraints(pattern=r"^https://.*\{token\}")] | None = None  # if records have no URL
    link_id: str = r"/(?P<id>[A-Za-z0-9_-]+)/?(?:[?#].*)?$"  # finds a link's id in its URL: its last segment
    connect_timeout_seconds: float = Field(5, gt=0)
    read_timeout_seconds: float = Field(30, gt=0)
    tries: int = Field(4, ge=1, le=20)  # of requests that are safe to retry
    requests_per_second: float = Field(10, gt=0)
    requests_at_a_time: int = Field(4, ge=1, le=64)  # when checking placements
    look_again_hours: float = Field(6, gt=0)  # hours from one check of a link that is not placed to the next
    follow_every_seconds: float = Field(2, gt=0)  # between two polls of a job followed in the terminal
    follow_cardholders: bool = (
        False  # read cardholders' messages: each can be read only once, so another client misses it
    )

    @field_validator("link_id")
    @classmethod
    def _finds_an_id(cls, given: str) -> str:
        """Require one named group `id` in the expression."""
        try:
            groups = re.compile(given).groupindex
        except re.error:
            groups = {}
        if "id" not in groups:
            raise ValueError("a regular expression with a named group: (?P<id>...)")
        return given

    @model_validator(mode="after")
    def _safe(self) -> Self:
        parts = urlsplit(self.base_url)
        secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
        if not (secure and parts.hostname):
            raise ValueError("base_url: an https address (http on loopback only)")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("base_url: no credentials, query or fragment; credentials come from the environment")
        return self

    @property
    def envelope_header(self) -> str:
        """The header that names the credential request an update answers (interface.md 4)."""
        return f"x-{self.prefix}-envelope-id"

    @property
    def hydration_header(self) -> str:
        """The header that requests linked records too (interface.md 4)."""
        return f"x-{self.prefix}-hydration"

    @property
    def access_key_header(self) -> str:
        """The header that holds a broadcast channel's access key (interface.md 5)."""
        return f"{self.prefix}-messaging-access-key"

    def link_hydration(self, *parts: str) -> str:
        """Return the hydration header's value for a link: a JSON array of strings, `card` and `card.cardholder`."""
        return json.dumps(parts)

    def url_of(self, token: str | None) -> str | None:
        """Return the URL that `link_url` makes of a cardholder's long token (interface.md 2.9); None without either."""
        return self.link_url.replace("{token}", token) if self.link_url and token else None

    def id_of(self, url: str) -> str | None:
        """Return the id of the link a URL leads to; None if `link_id` finds none."""
        found = re.search(self.link_id, url)
        return found["id"] if found else None
