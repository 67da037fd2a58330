"""The table `[service]` of the issuer's TOML: the partner's API, with a setting for all that it leaves open."""

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
    """Where the partner's API is and how it is spoken to; credentials come from the environment only."""

    base_url: str = Field(description="address of the partner's service: https, or http on loopback")
    prefix: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$")] = Field(
        "service", description="prefix of the service's own request headers"
    )
    login_path: Path = Field(
        "/session", description="path of the login: POST of app_name, app_key, username and password"
    )
    session_field: Name = Field(
        "session_token", description="field of its response that holds the token, sent as `Authorization: Bearer`"
    )
    link_path: Path = Field(
        "/card_links", description="path that creates a link; the record of a link is always `/card_links/<id>`"
    )
    service_property: Name = Field("service", description="property of the request that holds the service object")
    fi_key: str = Field("", description="key of the institution; needed for single links only")
    fi_key_property: Name = Field(
        "financial_institution_key", description="property of the request that holds `fi_key`"
    )
    safe_key: str | None = Field(None, description="key of the safe; unset: the service manages key storage")
    safe_key_property: Name = Field("safe_key", description="property of the request that holds `safe_key`")
    job_hydration: str = Field(
        '["credential_requests"]', description="value of the hydration header when a job is read"
    )
    access_key_fields: tuple[Name, ...] = Field(
        ("access_key", "messaging_access_key", "key"),
        description="fields that may hold a channel's access key; the first that is present counts",
    )
    link_url: Annotated[str, StringConstraints(pattern=r"^https://.*\{token\}")] | None = Field(
        None, description="URL of a link, made from `{token}`, where link records hold none"
    )
    link_id: str = Field(
        r"/(?P<id>[A-Za-z0-9_-]+)/?(?:[?#].*)?$", description="regular expression that finds a link's id in its URL"
    )
    connect_timeout_seconds: float = Field(5, gt=0, description="time to connect")
    read_timeout_seconds: float = Field(30, gt=0, description="time to wait for a response")
    tries: int = Field(4, ge=1, le=20, description="attempts of a request that is safe to repeat")
    requests_per_second: float = Field(10, gt=0, description="request rate")
    requests_at_a_time: int = Field(4, ge=1, le=64, description="concurrent requests when placements are read")
    look_again_hours: float = Field(
        6, gt=0, description="time before a link that is not placed yet is asked about again"
    )
    follow_every_seconds: float = Field(2, gt=0, description="polling interval of `cardlink job follow`")
    follow_cardholders: bool = Field(
        False, description="read cardholders' messages; each is given once, so another client would miss it"
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
