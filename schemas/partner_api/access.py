"""The tables `[service.auth]` and `[service.signing]`: how requests say who sends them.

interface.md 5 leaves open how a session is shown and whether requests are signed. No secret is a
setting: credentials and keys come from the environment.
"""

from __future__ import annotations

from itertools import pairwise
from string import Formatter
from typing import Annotated, Final, Literal

from pydantic import StringConstraints, field_validator

from schemas.settings import Settings, setting

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
FieldPath = Annotated[str, StringConstraints(pattern=r"^[^.\s]+(\.[^.\s]+)*$")]
Credential = Literal["app_name", "app_key", "username", "password"]

# what a canonical string, and the header of a signature, may name
CANONICAL: Final = frozenset(
    {
        "method",
        "scheme",
        "host",
        "path",
        "query",
        "target",
        "body",
        "body_sha256",
        "timestamp",
        "nonce",
        "key_id",
        "token",
    }
)
SIGNED: Final = frozenset({"signature", "key_id", "timestamp", "nonce", "algorithm"})


class AuthSettings(Settings):
    """How a session begins, and where requests show its token."""

    type: Literal["bearer", "api_key", "none", "plugin"] = setting(
        "bearer",
        "`bearer`: `Authorization: Bearer TOKEN`; `api_key`: the token at `location`; `none`: no "
        "token, requests are only signed; `plugin`: an `httpx.Auth` of your own",
    )
    plugin: str = setting(
        "",
        "`plugin`: name of an entry point in the group `cardlink.service_auth`; it is called with "
        "these settings and the credentials, and returns an `httpx.Auth`",
    )
    name: Name = setting("Authorization", "`api_key`: name of the header, parameter or cookie")
    location: Literal["header", "query", "cookie"] = setting("header", "`api_key`: where it is")
    prefix: str = setting("", "`api_key`: what stands before the token", pattern=r"^[ -~]*$")
    login: bool = setting(True, "`false`: there is no login, and the integrator key is the token")
    login_encoding: Literal["json", "form"] = setting("json", "how the login's body is written")
    login_fields: dict[Credential, FieldPath] = setting(
        {"app_name": "app_name", "app_key": "app_key", "username": "username"}
        | {"password": "password"},
        "properties of the login, by credential, such as `user.name`; one that is left out is not "
        "sent",
    )
    headers: dict[Credential, Name] = setting(
        {}, "headers of the login and of every request, by credential"
    )

    @field_validator("login_fields")
    @classmethod
    def _are_properties(cls, fields: dict[str, str]) -> dict[str, str]:
        names = sorted(fields.values())
        for name, following in pairwise(names):
            if name == following or following.startswith(f"{name}."):
                raise ValueError(f"{following}: {name} has a value of its own already")
        return fields


class SigningSettings(Settings):
    """Whether requests are signed, with which key, and what is signed."""

    type: Literal["none", "hmac", "http_signature"] = setting(
        "none",
        "`hmac`: over `canonical`, in `signature_header`; `http_signature`: HTTP message "
        "signatures (RFC 9421)",
    )
    key: Literal["session", "app_key", "environment"] = setting(
        "session",
        "the key: what the login gave at `key_field`, the integrator key, or "
        "`CARDLINK_SERVICE_SIGNING_KEY` (a PEM, where the algorithm is no HMAC)",
    )
    key_field: FieldPath = setting("session_key", "field of the login's response with the key")
    key_encoding: Literal["text", "hex", "base64"] = setting("text", "how an HMAC key is written")
    key_id: str | None = setting(
        None, "name of the key; unset: what is at `key_id_field`, else the integrator's name"
    )
    key_id_field: FieldPath | None = setting(None, "field of the login's response with its name")
    algorithm: Literal[
        "hmac-sha256",
        "hmac-sha512",
        "ed25519",
        "ecdsa-p256-sha256",
        "rsa-pss-sha512",
        "rsa-v1_5-sha256",
    ] = setting("hmac-sha256", "`hmac` has the first two, `http_signature` all but the second")
    sign_login: bool = setting(False, "sign the login too; not with the key of the session")
    canonical: str = setting(
        "{method}\n{path}\n{query}\n{timestamp}\n{nonce}\n{body_sha256}",
        "`hmac`: what is signed: " + ", ".join(f"`{{{name}}}`" for name in sorted(CANONICAL)),
    )
    signature_header: Name = setting("X-Signature", "`hmac`: header of the signature")
    signature_format: str = setting(
        "{signature}",
        "`hmac`: its value: " + ", ".join(f"`{{{name}}}`" for name in sorted(SIGNED)),
    )
    signature_encoding: Literal["hex", "base64"] = setting("hex", "`hmac`: how it is written")
    timestamp_header: Name | None = setting("X-Timestamp", "`hmac`: header of the time")
    timestamp_format: Literal["seconds", "milliseconds", "iso", "http"] = setting(
        "seconds", "`hmac`: how the time is written"
    )
    nonce_header: Name | None = setting("X-Nonce", "`hmac`: header of the nonce")
    key_id_header: Name | None = setting(None, "`hmac`: header of the key's name")
    components: tuple[str, ...] = setting(
        ("@method", "@target-uri"),
        "`http_signature`: what is signed of a request; of one with a body its digest is too",
        min_length=1,
    )
    label: Name = setting("sig1", "`http_signature`: label of the signature")

    @field_validator("canonical")
    @classmethod
    def _names_parts(cls, template: str) -> str:
        return _checked(template, CANONICAL)

    @field_validator("signature_format")
    @classmethod
    def _names_signature(cls, template: str) -> str:
        if "{signature}" not in template:
            raise ValueError("must contain {signature}")
        return _checked(template, SIGNED)


def _checked(template: str, names: frozenset[str]) -> str:
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
