"""Signed requests: the published examples of RFC 9421, and an HMAC over what the settings name."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from flows.extensions.partner_api.access import SigningSettings
from flows.extensions.partner_api.service import SigningKeyError
from flows.extensions.partner_api.sessions import SigningKey, signer_of

# RFC 9421, appendices B.1.4, B.1.5 and B.2
CREATED = datetime.fromtimestamp(1618884473, UTC)
SHARED = "uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ=="
ED25519 = """-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF
-----END PRIVATE KEY-----
"""
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def of_the_rfc() -> httpx.Request:
    headers = {
        "Date": "Tue, 20 Apr 2021 02:07:55 GMT",
        "Content-Type": "application/json",
        "Content-Length": "18",
    }
    return httpx.Request("POST", "https://example.com/foo?param=Value&Pet=dog", headers=headers)


def signed(
    request: httpx.Request, key: SigningKey, moment: datetime = CREATED, **settings: Any
) -> httpx.Headers:
    """Return the headers of a request that was signed at a moment."""
    signer = signer_of(SigningSettings.model_validate(settings), lambda: moment)
    signer.sign(request, key, "t-1")
    return request.headers


@pytest.mark.parametrize(
    ("algorithm", "key", "components", "signature"),
    [
        (
            "hmac-sha256",
            SigningKey(SHARED, "test-shared-secret"),
            ("date", "@authority", "content-type"),
            "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=",
        ),
        (
            "ed25519",
            SigningKey(ED25519, "test-key-ed25519"),
            ("date", "@method", "@path", "@authority", "content-type", "content-length"),
            "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==",
        ),
    ],
)
def test_the_examples_of_the_rfc_have_their_published_signatures(
    algorithm: str, key: SigningKey, components: tuple[str, ...], signature: str
) -> None:
    headers = signed(
        of_the_rfc(),
        key,
        type="http_signature",
        algorithm=algorithm,
        key_encoding="base64",
        components=components,
    )

    assert f"sig1=:{signature}:" == headers["Signature"]
    assert f';created=1618884473;keyid="{key.name}"' in headers["Signature-Input"]


def test_the_body_is_signed_by_its_digest() -> None:
    request = httpx.Request("POST", "https://example.com/", content=b'{"hello": "world"}')

    headers = signed(request, SigningKey("key", "k"), type="http_signature")

    # RFC 9530, as RFC 9421 has it in B.2
    assert "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:" == headers["Content-Digest"]
    assert '"content-digest")' in headers["Signature-Input"]


def test_an_hmac_is_of_what_the_settings_name() -> None:
    request = httpx.Request("POST", "https://example.com/a%20b?x=1&y=2", content=b"{}")

    headers = signed(
        request,
        SigningKey("6b6579", "bank"),
        NOON,
        type="hmac",
        key_encoding="hex",
        canonical="{method} {host} {path}?{query} {timestamp_iso} {token} {key_id} {body} {body_sha256}",
        headers={
            "X-Time": "{timestamp_iso}",
            "X-Signature": "HMAC {key_id}:{signature_base64}",
        },
    )

    digest = hashlib.sha256(b"{}").hexdigest()
    text = f"POST example.com /a%20b?x=1&y=2 2026-11-20T12:00:00Z t-1 bank {{}} {digest}"
    signature = base64.b64encode(hmac.digest(b"key", text.encode(), "sha256")).decode()
    assert f"HMAC bank:{signature}" == headers["X-Signature"]
    assert "2026-11-20T12:00:00Z" == headers["X-Time"]
    assert "X-Nonce" not in headers


def test_no_request_is_signed_twice_with_one_nonce() -> None:
    requests = [httpx.Request("GET", "https://example.com/") for _ in range(2)]

    first, second = (signed(request, SigningKey("k", "n"), type="hmac") for request in requests)

    assert first["X-Nonce"] != second["X-Nonce"]
    assert first["X-Signature"] != second["X-Signature"]


@pytest.mark.parametrize(
    "settings",
    [
        {"type": "hmac", "key_encoding": "hex"},
        {"type": "hmac", "key_encoding": "base64"},
        {"type": "http_signature", "algorithm": "ed25519"},
    ],
)
def test_a_key_that_does_not_fit_is_refused_and_not_shown(settings: dict[str, Any]) -> None:
    with pytest.raises(SigningKeyError) as caught:
        signed(of_the_rfc(), SigningKey("hush!", "k"), **settings)

    assert "hush" not in f"{caught.value}{caught.value.args}{caught.value.__cause__}"


@pytest.mark.parametrize(
    "wrong",
    [
        {"canonical": "{method}{secret}"},
        {"canonical": "{method.__class__}"},
        {"canonical": "{method:>10}"},
        {"canonical": "{"},
        {"headers": {"X-Signature": "v1"}},
        {"components": []},
    ],
)
def test_settings_that_name_nothing_to_sign_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="SigningSettings"):
        SigningSettings.model_validate(wrong)
