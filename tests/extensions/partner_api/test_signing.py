"""Signed requests: an HMAC over what the settings name."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from flows.extensions.partner_api.profile import SigningSettings
from flows.extensions.partner_api.service import SigningKeyError
from flows.extensions.partner_api.sessions import SigningKey, sign

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def signed(
    request: httpx.Request, key: SigningKey, moment: datetime = NOON, **settings: Any
) -> httpx.Headers:
    """Return the headers of a request that was signed at a moment."""
    sign(request, SigningSettings.model_validate(settings), key, "t-1", moment)
    return request.headers


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
    ],
)
def test_a_key_that_does_not_fit_is_refused_and_not_shown(settings: dict[str, Any]) -> None:
    with pytest.raises(SigningKeyError) as caught:
        signed(httpx.Request("GET", "https://example.com/"), SigningKey("hush!", "k"), **settings)

    assert "hush" not in f"{caught.value}{caught.value.args}{caught.value.__cause__}"


@pytest.mark.parametrize(
    "wrong",
    [
        {"canonical": "{method}{secret}"},
        {"canonical": "{method.__class__}"},
        {"canonical": "{method:>10}"},
        {"canonical": "{"},
        {"headers": {"X-Signature": "v1"}},
    ],
)
def test_settings_that_name_nothing_to_sign_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="SigningSettings"):
        SigningSettings.model_validate(wrong)
