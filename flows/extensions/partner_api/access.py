"""The tables `[service.auth]` and `[service.signing]`: how requests say who sends them.

interface.md 5 leaves open how a session is shown and whether requests are signed. No secret is a
setting: credentials and keys come from the environment.
"""

from __future__ import annotations

from string import Formatter
from typing import Annotated, Final, Literal

from pydantic import StringConstraints, field_validator

from schemas.settings import Settings, setting

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
