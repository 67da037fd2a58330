"""The table `[service]` of the issuer's TOML: the partner's API, with a setting for all that it
leaves open.
"""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Annotated, Final, Literal, Self
from urllib.parse import parse_qs, urlsplit

import polars as pl
from pydantic import StringConstraints, field_validator, model_validator

from flows.extensions.partner_api.profile import ID, Profile
from schemas.settings import LOOPBACK, setting

REQUESTS_AT_A_TIME: Final = 10  # within their rate: a service that is slow does not idle us
# when a single link ends: a date such as `2027-01-31`, or a period from its request
EXPIRY: Final = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}|[1-9][0-9]{0,3}(d|mo))$"
USUAL_LIFE: Final = "2mo"  # interface.md 8: what a link has where nobody says more
BY_CUID: Final = "cuid"
BY_RECORD: Final = "record"
_PARAMETER = re.compile(r"\?(?P<name>[A-Za-z0-9_.-]+)")  # of a URL, that holds the id of a link


class ServiceSettings(Profile):
    """Where the partner's API is and how it is spoken to; credentials come from the environment
    only.

    `names` and the tables below it are the partner's profile: how its service names and shapes what
    the interface leaves open. `cardlink service probe` proposes them from what the
    service answers.
    """

    base_url: str = setting(..., "address of the partner's service: https, or http on loopback")
    prefix: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$")] = setting(
        "service", "prefix of the service's own request headers"
    )
    fi_key: str = setting("", "key of the institution; needed for single links only")
    safe_key: str | None = setting(None, "key of the safe; unset: the service manages key storage")
    keys_in: Literal["body", "header"] = setting(
        "body", "where the request for a link has both keys; in a header `safe_key` only if set"
    )
    link_url: Annotated[str, StringConstraints(pattern=r"^https://.*\{token\}")] | None = setting(
        None, "URL of a link, made from `{token}`, where link records hold none"
    )
    link_expires: Annotated[str, StringConstraints(pattern=EXPIRY)] | None = setting(
        None,
        "when a single link expires: a period from its request, such as `60d` or `3mo`, or a date "
        "such as `2027-01-31`; `--expires` of a command goes before it; unset: the partner decides "
        "(2 months)",
    )
    link_id: str = setting(
        r"/(?P<id>[A-Za-z0-9_-]+)/?(?:[?#].*)?$",
        "what the record of a link is asked for by: a regular expression that finds an id in the "
        "link's URL; `?key`: that query parameter of it; `record`: the id that the service gave "
        "with a single link; `cuid`: the cardholder's cuid",
    )
    requests_per_second: float = setting(10, "request rate", gt=0)
    look_minutes: float = setting(
        5,
        "time that a check of links may take; running jobs come first, then links never queried, "
        "then those that waited longest; the others are for the next check: at ten requests a "
        "second it queries 2,700 links, of new ones half as many",
        gt=0,
    )
    follow_every_seconds: float = setting(
        2, "polling interval of `job follow` and `job watch`", gt=0
    )
    follow_cardholders: bool = setting(
        False, "read cardholders' messages; each is given once, so another client would miss it"
    )

    @field_validator("link_id")
    @classmethod
    def _finds_an_id(cls, pattern: str) -> str:
        """Require one named group `id` in the expression."""
        if pattern in (BY_CUID, BY_RECORD) or _PARAMETER.fullmatch(pattern):
            return pattern
        try:
            groups = re.compile(pattern).groupindex
        except re.error:
            groups = {}
        if "id" not in groups:
            raise ValueError("a regular expression with a named group: (?P<id>...)")
        return pattern

    @model_validator(mode="after")
    def _safe(self) -> Self:
        parts = urlsplit(self.base_url)
        secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
        if not (secure and parts.hostname):
            raise ValueError("base_url: an https address (http on loopback only)")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(
                "base_url: no credentials, query or fragment; credentials come from the environment"
            )
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
        """Return the hydration header's value for a link: a JSON array, such as `["card"]`."""
        return json.dumps(parts)

    def url_of(self, token: str | None) -> str | None:
        """Return the URL that `link_url` makes of a cardholder's long token (interface.md 2.9);
        None without either.
        """
        return self.link_url.replace("{token}", token) if self.link_url and token else None

    def id_of(self, url: str, cuid: str | None = None) -> str | None:
        """Return the id by which the record of a link is asked for; None where there is none."""
        if self.link_id == BY_CUID:
            return cuid
        if self.link_id == BY_RECORD:
            return None
        parameter = _PARAMETER.fullmatch(self.link_id)
        if parameter:
            values = parse_qs(urlsplit(url).query).get(parameter["name"], [])
            return values[0] if len(values) == 1 else None
        match = re.search(self.link_id, url)
        return match["id"] if match else None

    def link_place(self) -> str:
        """Return how messages name the record of a link: its id may be the secret part of a URL."""
        return f"GET {self.path('link').replace(ID, '…')}"


def last_day(text: str, today: date) -> date:
    """Return the day that a text means; ValueError for any other text, and for a day gone by.

    >>> last_day("2mo", date(2026, 12, 31))
    datetime.date(2027, 2, 28)
    """
    if not re.fullmatch(EXPIRY, text):
        raise ValueError("no date such as 2027-01-31, and no period such as 60d or 3mo")
    if text.endswith(("d", "mo")):
        return after(text, today)
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None:
        raise ValueError("no day of the calendar")
    if day < today:
        raise ValueError("a day gone by")
    return day


def after(period: str, today: date) -> date:
    """Return the day on which a period from today ends; of months, at most the month's last."""
    day: date = pl.select(pl.lit(today).dt.offset_by(period)).item()
    return day


def expiration_object(day: date) -> dict[str, str]:
    """Return a day as a request has it (interface.md 2.8).

    >>> expiration_object(date(2027, 2, 3))
    {'month': '02', 'day': '3', 'year': '2027'}
    """
    return {"month": f"{day.month:02d}", "day": str(day.day), "year": f"{day.year:04d}"}


TABLES = {"service": (ServiceSettings | None, None)}  # the partner's API, where it is used
