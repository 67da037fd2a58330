"""How a partner's service names and shapes what the interface leaves open: names and words.

`NAMES` are the interface's own, or the usual ones where it shows none, by our name for each;
`[service.names]` says where a partner has others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from itertools import chain, pairwise
from string import Formatter
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BeforeValidator, StringConstraints, field_validator

from flows.extensions.partner_api.service_objects import ACK_KEY, ACKNOWLEDGED, CredentialRequest
from schemas.settings import Settings, setting

JOBS: Final = "/place_card_on_single_site_jobs"  # interface.md 4: below it, the job record
JOB_MESSAGES: Final = f"/messages{JOBS}"
CARDHOLDER_MESSAGES: Final = "/messages/cardholders"
LINKS: Final = "/card_links"  # below it, the record of a link
ID: Final = "{id}"  # in a path, stands for the id of the record
PAGE: Final = frozenset({"cursor", "offset", "page"})

Place = Annotated[str, StringConstraints(min_length=1)]
Places = tuple[Place, ...]  # where a value may be, such as `data.id`; the first present one counts
Code = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,39}$")]
_OF_ONE = re.compile(
    r"/[A-Za-z0-9._~/-]*(\?[A-Za-z0-9._~=&-]*)?\{id\}[^\s#{}]*"  # has the id once
)
_OF_NONE = re.compile(r"(/[A-Za-z0-9._~-]+)+")


class Named(NamedTuple):
    """Where a value is by the interface, the first that is present; and what it is."""

    usual: Places
    meaning: str


_CREDENTIALS: Final = "login.credentials"
NAMES: Final[Mapping[str, Named]] = {
    "path.login": Named(
        ("/session",), "path of the login; empty: there is none, and the integrator key is a token"
    ),
    "path.create_link": Named((LINKS,), "path that creates a link"),
    "path.link": Named((f"{LINKS}/{ID}",), f"path of the record of a link; `{ID}`: its id"),
    "path.job": Named((f"{JOBS}/{ID}",), "path of the record of a job, and its update"),
    "path.job_messages": Named((f"{JOB_MESSAGES}/{ID}",), "path of messages of a job"),
    "path.cardholder_messages": Named(
        (f"{CARDHOLDER_MESSAGES}/{ID}",), "path of messages of a cardholder's jobs"
    ),
    "path.credential_requests": Named(
        (f"{JOB_MESSAGES}/{ID}/credential_requests",), "path of pending requests of a job"
    ),
    "path.credential_responses": Named(
        (f"{JOB_MESSAGES}/{ID}/credential_responses",), "path of answers by message"
    ),
    "path.broadcasts": Named((f"{JOB_MESSAGES}/{ID}/broadcasts",), "path of a broadcast channel"),
    "path.registrations": Named(
        (f"{JOB_MESSAGES}/{ID}/broadcasts/registrations",), "path that registers such a channel"
    ),
    f"{_CREDENTIALS}.app_name": Named(("app_name",), "of a login: the integrator's name"),
    f"{_CREDENTIALS}.app_key": Named(("app_key",), "of a login: the integrator's key"),
    f"{_CREDENTIALS}.username": Named(("username",), "of a login: the user"),
    f"{_CREDENTIALS}.password": Named(("password",), "of a login: the password"),
    "login.session_token": Named(("session_token",), "of its response: the token"),
    "login.session_key": Named(("session_key",), "of its response: the key to sign with"),
    "request.service": Named(("service",), "of a request for a link: the service object"),
    "request.fi_key": Named(("financial_institution_key",), "the same: `fi_key`"),
    "request.safe_key": Named(("safe_key",), "the same: `safe_key`"),
    "request.card_id": Named(("id",), "of `card.reference`: the id of a card"),
    "request.idempotency_key": Named(
        (),
        "header that lets the service know a request for a link again: with it, one whose response "
        "is lost, or that ends in 409 or 5xx, is repeated; without it never",
    ),
    "request.job_hydration": Named(
        ('["credential_requests"]',), "value of the hydration header when a job is read"
    ),
    "channel.access_key": Named(
        ("access_key", "messaging_access_key", "key"), "of a registration: a channel's access key"
    ),
    "link.record": Named(("card_link",), "the record of a link; without it, the body itself"),
    "link.id": Named(("id", "card_link_id"), "id of the link"),
    "link.url": Named(("url", "card_link_url", "link"), "its URL"),
    "link.cardholder_long_token": Named(
        ("cardholder_long_token",), "token that `link_url` makes a URL of"
    ),
    "link.expiration_date": Named(
        ("expiration_date", "expires_on", "expiration", "expires_at"), "when it expires"
    ),
    "link.opened_on": Named(
        ("opened_on", "opened_at", "verified_on"), "when it was opened; null: not yet"
    ),
    "link.card_id": Named(("card.id", "card_id"), "id of its card"),
    "link.cardholder_id": Named(
        ("card.cardholder.id", "card.cardholder_id", "cardholder_id"), "id of its cardholder"
    ),
    "link.cuid": Named(("card.cardholder.cuid",), "the issuer's reference of its cardholder"),
    "job.record": Named((), "the record of a job; without it, the body itself"),
    "job.id": Named(("id",), "id of the job"),
    "job.cardholder_id": Named(("cardholder_id",), "id of its cardholder"),
    "job.status": Named(("status",), "its status, in messages too"),
    "job.termination_type": Named(("termination_type",), "how it ended; null: it runs"),
    "job.percent_complete": Named(("percent_complete",), "percent of the whole placement"),
    "job.auth_percent_complete": Named(("auth_percent_complete",), "percent of the authentication"),
    "job.job_timeout": Named(("job_timeout",), "seconds that are left"),
    "job.job_timeout_ms": Named((), "the same in milliseconds"),
    "job.status_message": Named(("status_message",), "text for the user"),
    "job.merchant_site": Named(
        ("merchant_site", "merchant_site_name", "merchant_site_hostname"), "its merchant site"
    ),
    "job.credential_requests": Named(("credential_requests",), "requests that it waits for"),
    "message.list": Named(
        ("messages", "credential_requests", "broadcasts", "data", "results", "items"),
        "the messages in a body; without it, the body itself",
    ),
    "message.type": Named(("type", "request_type"), "type of a message or credential request"),
    "message.job_id": Named(("job_id",), "the job it is about"),
    "message.message": Named(("message",), "its status data; without it, the message itself"),
    "message.envelope_id": Named(("envelope_id",), "what an answer must name"),
    "message.account_link": Named(("account_link",), "the values to collect"),
    "message.key_name": Named(("key_name",), "of a value: the name under which it is answered"),
    "message.label": Named(("label",), "of a value: the prompt"),
    "message.secret": Named(("secret",), "of a value: whether it is typed unseen"),
    "message.acknowledged": Named(
        (ACKNOWLEDGED,),
        "types of credential requests, and names of their values, that are acknowledged with "
        "`tfa` = `ack`, without a prompt",
    ),
    "page.query": Named(
        (),
        "query of the pages of a list of messages: `cursor={cursor}`, `limit=50&offset={offset}` "
        "or `page={page}`; without it a link to the next page is followed, where there is one",
    ),
    "page.next": Named(
        ("next", "links.next", "_links.next.href", "paging.next", "next_url"),
        "of a page of messages: URL of the next one; the header `Link` is read before it",
    ),
    "page.cursor": Named(("cursors.next",), "the same: the next cursor"),
    "page.total": Named(
        (), "the same: the number of messages, or of pages; without it, an empty page is the last"
    ),
    "report.cuid": Named(("cuid", "cardholder cuid"), "column of transaction reports: the cuid"),
    "report.status": Named(
        ("status", "transaction status", "job status", "termination type"), "the job's status"
    ),
    "report.completed_on": Named(
        ("completed on", "completed", "completed at", "completion date"), "when it ended"
    ),
    "report.merchant_site": Named(
        ("merchant_site_hostname", "merchant site", "merchant site name"), "its merchant site"
    ),
}


def _flat(names: Any, prefix: str = "") -> Any:
    """Return tables within tables, as a TOML has dotted keys, as one; a text is a list of it."""
    if not isinstance(names, Mapping):
        return names
    flat: dict[str, Any] = {}
    for name, value in names.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            texts = [value] if value else []
            flat[f"{prefix}{name}"] = texts if isinstance(value, str) else value
    return flat


# Who sends a request (interface.md 5): no secret is a setting
# --------------------------------------------------------------------------------------------------

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
Credential = Literal["app_name", "app_key", "username", "password"]

MOMENTS: Final = ("timestamp", "timestamp_ms", "timestamp_iso", "timestamp_http")
# what a canonical string, and the headers of a signature, may name
CANONICAL: Final = frozenset(
    {"method", "scheme", "host", "path", "query", "target", "body", "body_sha256"}
    | {*MOMENTS, "nonce", "key_id", "token"}
)
SIGNED: Final = frozenset(
    {"signature", "signature_base64", "algorithm", "nonce", "key_id", *MOMENTS}
)


def _listed(names: frozenset[str]) -> str:
    return ", ".join(f"`{{{name}}}`" for name in sorted(names))


class AuthSettings(Settings):
    """How a session begins, and where requests show its token."""

    token: str = setting(
        "Authorization: Bearer {token}",
        "where requests show it: a header, `Cookie` too, such as `X-Session: {token}`, or a query "
        "parameter such as `?key={token}`; empty: nowhere, requests are only signed",
        pattern=r"^$|^\?[A-Za-z][A-Za-z0-9_-]*=\{token\}$|^[A-Za-z][A-Za-z0-9-]*: [ -~]*\{token\}$",
    )
    login_encoding: Literal["json", "form"] = setting("json", "how the login's body is written")
    headers: dict[Credential, Name] = setting(
        {}, "headers of the login and of every request, by credential"
    )
    plugin: str = setting(
        "",
        "an `httpx.Auth` of your own instead: name of an entry point in the group "
        "`cardlink.service_auth`, which is called with these settings and the credentials",
    )


class SigningSettings(Settings):
    """Whether requests are signed, with which key, and what is signed."""

    type: Literal["none", "hmac"] = setting(
        "none",
        "`hmac`: over `canonical`, in `headers`; another way is a plug-in of `[service.auth]`",
    )
    key: Literal["session", "app_key"] = setting(
        "session",
        "the key: what the login gave as `login.session_key` of `[service.names]`, or the "
        "integrator key",
    )
    key_encoding: Literal["text", "hex", "base64"] = setting("text", "how the key is written")
    algorithm: Literal["hmac-sha256", "hmac-sha512"] = setting("hmac-sha256", "the digest")
    canonical: str = setting(
        "{method}\n{path}\n{query}\n{timestamp}\n{nonce}\n{body_sha256}",
        f"what is signed: {_listed(CANONICAL)}",
    )
    headers: dict[Name, str] = setting(
        {"X-Signature": "{signature}", "X-Timestamp": "{timestamp}", "X-Nonce": "{nonce}"},
        f"the headers that a request gets: {_listed(SIGNED)}",
    )

    @field_validator("canonical")
    @classmethod
    def _names_parts(cls, template: str) -> str:
        return checked_template(template, CANONICAL)

    @field_validator("headers")
    @classmethod
    def _name_signature(cls, headers: dict[str, str]) -> dict[str, str]:
        if not any("{signature" in template for template in headers.values()):
            raise ValueError("one must contain {signature} or {signature_base64}")
        return {name: checked_template(value, SIGNED) for name, value in headers.items()}


def checked_template(template: str, names: frozenset[str]) -> str:
    """Return a template that names nothing else; a name may have no format of its own."""
    try:
        fields = [
            (name, spec) for _, name, spec, _ in Formatter().parse(template) if name is not None
        ]
    except ValueError:
        fields = [("", "")]
    if any(name not in names or spec for name, spec in fields):
        known = ", ".join(sorted(names))
        raise ValueError(f"names in braces are {known}; a brace itself is doubled")
    return template


# What a partner's words mean
# --------------------------------------------------------------------------------------------------


class Words(Settings):
    """What the partner's own words mean: each with one of the interface's.

    Case, spaces and punctuation do not matter.
    """

    status: dict[str, Code] = setting({}, 'statuses of jobs, such as `LINKED = "UPDATING"`')
    termination_type: dict[str, Code] = setting({}, 'how jobs end, such as `DONE = "BILLABLE"`')
    report: dict[str, Code] = setting(
        {"Card Placed Successfully": "BILLABLE", "Card Placed": "BILLABLE"},
        "statuses of transaction reports",
    )
    opened: tuple[str, ...] = setting(
        (), "where `link.opened_on` is a state in words: those of a link that was opened"
    )


class Profile(Settings):
    """One partner's names and shapes; without any setting, the interface's own."""

    names: Annotated[
        dict[str, Places],
        BeforeValidator(_flat, json_schema_input_type=dict[str, str | Places]),
    ] = setting(
        {},
        "how the service names what the interface names, or leaves open, by our name (below): "
        "fields as names or paths such as `data.id`, of which the first that is present counts; of "
        "columns case, spaces and punctuation do not matter",
    )
    auth: AuthSettings = AuthSettings()
    signing: SigningSettings = SigningSettings()
    words: Words = Words()

    @field_validator("names")
    @classmethod
    def _are_names(cls, names: dict[str, Places]) -> dict[str, Places]:
        unknown = ", ".join(sorted(names.keys() - NAMES.keys()))
        if unknown:
            raise ValueError(f"{unknown}: none of the names that deploy/SETTINGS.md lists")
        for name, texts in names.items():
            _check_form(name, texts)
        credentials = [places for name, places in names.items() if _CREDENTIALS in name]
        properties = sorted(chain.from_iterable(credentials))
        for place, following in pairwise(properties):
            if place == following or following.startswith(f"{place}."):
                raise ValueError(f"{following}: {place} has a value of its own already")
        return names

    @cached_property
    def _places(self) -> dict[str, Places]:
        return {name: self.names.get(name, named.usual) for name, named in NAMES.items()}

    def places(self, name: str) -> Places:
        """Return where the service has what we call so: the first that is present counts."""
        return self._places[name]

    def fields(self, record: str) -> dict[str, Places]:
        """Return where a record, `link` or `job`, a `message` or a `report` has its values, by our
        name.
        """
        prefix = f"{record}."
        return {
            name.removeprefix(prefix): places
            for name, places in self._places.items()
            if name.startswith(prefix)
        }

    def name(self, name: str) -> str:
        """Return what the service calls a property that we write; "" where it is not written."""
        return next(iter(self.places(name)), "")

    def path(self, name: str) -> str:
        """Return the path of an endpoint below `base_url`."""
        return self.name(f"path.{name}")

    def wants_no_input(self, request: CredentialRequest) -> bool:
        """Return whether a request is of the acknowledgement kind (interface.md 2.5)."""
        acknowledged = self.places("message.acknowledged")
        keys = {prompt.key_name for prompt in request.account_link}
        has_keys = keys <= set(acknowledged)
        has_type = request.kind in acknowledged and keys <= {*acknowledged, ACK_KEY}
        return bool(keys) and (has_keys or has_type)


def _check_form(name: str, texts: Places) -> None:
    """Raise ValueError where the path of an endpoint, or the query of a page, is none."""
    text = next(iter(texts), "")
    if name == "page.query":
        checked_template(text, PAGE)
    if not name.startswith("path.") or (name, texts) == ("path.login", ()):
        return
    usual = NAMES[name].usual[0]
    form = _OF_ONE if ID in usual else _OF_NONE
    if len(texts) > 1 or not form.fullmatch(text):
        raise ValueError(f"{name}: a path such as {usual}")


INTERFACE: Final = Profile()
