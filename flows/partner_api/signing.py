"""Signed requests: an HMAC over a canonical string, or HTTP message signatures (RFC 9421)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, NamedTuple, Protocol

import httpx

from flows.partner_api.service import SigningKeyError
from schemas.partner_api.access import SigningSettings

Clock = Callable[[], datetime]


class SigningKey(NamedTuple):
    """A key and its name; the key as the settings write it, or a PEM."""

    secret: str
    name: str

    def __repr__(self) -> str:
        return f"SigningKey(name={self.name!r})"


class Signer(Protocol):
    """Signs a request in place."""

    def sign(self, request: httpx.Request, key: SigningKey, token: str) -> None:
        """Add the signature's headers to a request, in place of earlier ones."""
        ...


class NoSigner:
    """Requests are not signed."""

    def sign(self, request: httpx.Request, key: SigningKey, token: str) -> None:
        """Leave the request as it is."""


class HmacSigner:
    """Signs a canonical string of a request with a shared key."""

    def __init__(self, settings: SigningSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._hash = settings.algorithm.removeprefix("hmac-")

    def sign(self, request: httpx.Request, key: SigningKey, token: str) -> None:
        """Add time, nonce, the key's name and the signature, each where it has a header."""
        settings = self._settings
        parts = {
            **_parts(request),
            "timestamp": _written(self._clock(), settings.timestamp_format),
            "nonce": secrets.token_hex(16),
            "key_id": key.name,
            "token": token,
        }
        canonical = settings.canonical.format(**parts)
        secret = key_bytes(key.secret, settings.key_encoding)
        digest = hmac.digest(secret, canonical.encode(), self._hash)
        signature = digest.hex()
        if settings.signature_encoding == "base64":
            signature = base64.b64encode(digest).decode()
        value = settings.signature_format.format(
            **{**parts, "signature": signature, "algorithm": settings.algorithm}
        )
        headers = {
            settings.timestamp_header: parts["timestamp"],
            settings.nonce_header: parts["nonce"],
            settings.key_id_header: key.name,
            settings.signature_header: value,
        }
        request.headers.update({name: text for name, text in headers.items() if name})


class MessageSigner:
    """Signs the components of a request as RFC 9421 says, with the digest of its body."""

    def __init__(self, settings: SigningSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    def sign(self, request: httpx.Request, key: SigningKey, token: str) -> None:
        """Add `Signature-Input` and `Signature`, and `Content-Digest` where there is a body."""
        from http_message_signatures import (
            HTTPMessageSignaturesException,
            HTTPMessageSigner,
            MappingKeyResolver,
        )

        settings = self._settings
        secret = key.secret.encode()
        if settings.algorithm == "hmac-sha256":
            secret = key_bytes(key.secret, settings.key_encoding)
        signer = HTTPMessageSigner(
            signature_algorithm=_algorithms()[settings.algorithm],
            key_resolver=MappingKeyResolver(public_keys={}, private_keys={key.name: secret}),
        )
        try:
            signer.sign(
                request,
                key_id=key.name,
                created=self._clock(),
                label=settings.label,
                include_alg=False,
                covered_component_ids=_present(settings.components, request),
                body=request.content or None,
            )
            problem = ""
        except (HTTPMessageSignaturesException, ValueError, TypeError) as error:
            problem = type(error).__name__
        if problem:
            raise SigningKeyError(algorithm=settings.algorithm, problem=problem)


def signer_of(settings: SigningSettings, clock: Clock = lambda: datetime.now(UTC)) -> Signer:
    """Return how requests are signed."""
    match settings.type:
        case "hmac":
            return HmacSigner(settings, clock)
        case "http_signature":
            return MessageSigner(settings, clock)
    return NoSigner()


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


def _written(moment: datetime, style: str) -> str:
    match style:
        case "iso":
            return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        case "http":
            return format_datetime(moment.astimezone(UTC), usegmt=True)
        case "milliseconds":
            return str(int(moment.timestamp() * 1000))
    return str(int(moment.timestamp()))


def _present(components: tuple[str, ...], request: httpx.Request) -> tuple[str, ...]:
    """Return the components that a request has: a header that it lacks cannot be signed."""
    return tuple(
        name for name in components if name.startswith(("@", '"')) or name in request.headers
    )


def _algorithms() -> dict[str, Any]:
    from http_message_signatures import algorithms

    return {
        "hmac-sha256": algorithms.HMAC_SHA256,
        "ed25519": algorithms.ED25519,
        "ecdsa-p256-sha256": algorithms.ECDSA_P256_SHA256,
        "rsa-pss-sha512": algorithms.RSA_PSS_SHA512,
        "rsa-v1_5-sha256": algorithms.RSA_V1_5_SHA256,
    }
