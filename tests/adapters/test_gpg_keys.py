"""A key is refused by its fingerprint and the cause before anything is sealed to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from subprocess import CalledProcessError

import pytest

from flows.adapters.gpg import Keyring
from flows.adapters.gpg_keys import import_public_keys
from flows.adapters.gpg_opener import GpgOpener
from flows.errors import CardlinkError, OperatorError
from flows.extensions.simulator.portal_key import PortalKey
from flows.runs.openpgp import inspect
from flows.runs.sealing import (
    GpgHungError,
    KeyNotPinnedError,
    KeyUnreadableError,
    KeyUnusableError,
    SealedUnreadableError,
    SecretKeyGivenError,
)
from tests import keys
from tests.adapters.sealers import CHUNKS, TODAY, gpg_that, sealer_to


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (keys.expired, KeyUnusableError),
        (keys.with_expired_subkey, KeyUnusableError),
        (keys.revoked, KeyUnusableError),
        (keys.sign_only, KeyUnusableError),
    ],
)
def test_an_unsound_key_is_refused_by_fingerprint_and_cause(
    key: Callable[[], PortalKey], error: type[CardlinkError]
) -> None:
    unsound = key()

    with pytest.raises(error) as caught:
        sealer_to(unsound)

    assert unsound.fingerprint in str(caught.value)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            ("--cert-digest-algo", "SHA1"),
            "has no signature by a sound algorithm: all of them are by SHA-1, or older",
        ),
        (
            ("--cert-notation", "!odd@example.org=1"),
            "has a critical notation that must be understood and is not: odd@example.org",
        ),
    ],
)
def test_a_key_whose_signatures_hold_nothing_is_refused_for_that(
    options: tuple[str, str], why: str
) -> None:
    def make(gpg: keys.Gpg) -> None:
        gpg(*options, "--quick-gen-key", keys.NAME, "rsa2048", "sign,cert", "never")
        with suppress(CalledProcessError):  # gpg itself takes no key with such a notation
            gpg(*options, "--quick-add-key", keys.fingerprint(gpg), "rsa2048", "encr", "never")

    with pytest.raises(KeyUnusableError) as caught:
        sealer_to(keys.made(make))

    assert {"part": "The key in file 1 of 1", "why": why} == caught.value.fields


def test_a_key_with_a_renewed_subkey_is_sealed_to_the_renewed_one() -> None:
    key = keys.with_renewed_subkey()

    with sealer_to(key) as sealer, GpgOpener([key.secret]) as opener:
        opened = opener.open(sealer.seal(CHUNKS[:1])[0].data, 100)

    assert CHUNKS[0].data == opened


def test_another_key_than_the_pinned_one_is_refused_and_named() -> None:
    pinned, found = keys.sound(), keys.sound(copy=2)

    with pytest.raises(KeyNotPinnedError) as caught:
        sealer_to(found, pins=(pinned.fingerprint,))

    assert {"fingerprint": pinned.fingerprint, "found": found.fingerprint} == caught.value.fields


def test_a_pin_without_a_key_is_refused_and_named() -> None:
    key, other = keys.sound(), keys.sound(copy=2)

    with pytest.raises(KeyNotPinnedError) as caught:
        sealer_to(key, pins=(key.fingerprint, other.fingerprint))

    assert {"fingerprint": other.fingerprint, "found": "other pinned keys"} == caught.value.fields


def test_a_user_id_or_a_short_id_is_no_pin() -> None:
    key = keys.sound()

    for pin in ("portal@example.com", key.fingerprint[-16:], key.fingerprint[-8:]):
        with pytest.raises(OperatorError):
            sealer_to(key, pins=(pin,))


def test_a_secret_key_in_place_of_the_public_one_is_refused() -> None:
    key = keys.sound()

    with pytest.raises(SecretKeyGivenError) as caught:
        sealer_to(key._replace(public=key.secret))

    assert {"file": "1 of 1", "pinned": key.fingerprint} == caught.value.fields


def test_two_keys_in_one_file_are_refused() -> None:
    key, other = keys.sound(), keys.sound(copy=2)

    with pytest.raises(KeyUnreadableError) as caught:
        sealer_to(key._replace(public=key.public + other.public))

    assert {"file": "1 of 1", "reason": "2 keys"} == caught.value.fields


@pytest.mark.parametrize(
    "content", [b"", b"no key", b"\x00" * 50, b"\x99\x00\x05 short", b"\x99\x00\x03abc"]
)
def test_a_file_that_holds_no_key_is_refused(content: bytes) -> None:
    with pytest.raises(KeyUnreadableError) as caught:
        sealer_to(keys.sound()._replace(public=content))

    assert "1 of 1" == caught.value.fields["file"]
    assert caught.value.__context__ is None


@pytest.mark.parametrize("does", ["--import", "--list-keys"])
def test_a_gpg_that_fails_by_itself_is_not_taken_for_a_bad_key(tmp_path: Path, does: str) -> None:
    gpg = gpg_that(tmp_path, f'case "$*" in *{does}*) echo "gpg: out of core" >&2; exit 2;; esac')

    with pytest.raises(GpgHungError, match="it reported that no key could be"):
        sealer_to(keys.sound(), gpg=gpg)


def test_a_key_cut_short_is_refused() -> None:
    key = keys.sound()

    with pytest.raises(KeyUnreadableError) as caught:
        sealer_to(key._replace(public=key.public[:200]))

    assert {"file": "1 of 1", "reason": "armor.end.missing"} == caught.value.fields


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\r\n\r\n", b"Your key:\n\n"])
def test_a_key_pasted_with_other_line_ends_or_text_around_it_is_accepted(before: bytes) -> None:
    key = keys.sound()
    pasted = before + key.public.replace(b"\n", b"\r\n")

    with sealer_to(key._replace(public=pasted)) as sealer:
        assert (key.fingerprint,) == sealer.fingerprints


def expiry(key: PortalKey) -> date:
    """Return the day a key expires, as its import reads it."""
    with Keyring() as ring:
        (recipient,) = import_public_keys(
            ring, [key.public], [key.fingerprint], ["Curve25519"], TODAY
        )
    assert recipient[0].expires is not None
    return recipient[0].expires


@pytest.mark.parametrize(("days", "warned"), [(31, False), (30, True), (1, True)])
def test_a_key_that_ends_within_thirty_days_is_warned_of(days: int, warned: bool) -> None:
    key = keys.lasting(40)
    end = expiry(key)

    with sealer_to(key, today=end - timedelta(days=days)) as sealer:
        warnings = sealer.warnings

    assert warned == any(
        f"Primary key {key.fingerprint} expires on {end}" in one.text for one in warnings
    )


def test_a_key_is_refused_from_the_day_it_ends_on() -> None:
    key = keys.lasting(40)
    end = expiry(key)

    with pytest.raises(KeyUnusableError) as caught:
        sealer_to(key, today=end)

    assert {
        "part": f"Primary key {key.fingerprint}",
        "why": f"expired on {end}",
    } == caught.value.fields


def test_several_recipients_can_each_open_and_all_show_outside() -> None:
    portal, escrow = keys.sound("rsa2048"), keys.sound()

    with sealer_to(portal, escrow) as sealer:
        sealed = sealer.seal(CHUNKS[:1])[0]
    with GpgOpener([portal.secret]) as one, GpgOpener([escrow.secret]) as other:
        opened = [one.open(sealed.data, 100), other.open(sealed.data, 100)]

    assert 2 == len(inspect(sealed.data))
    assert [CHUNKS[0].data] * 2 == opened


def test_with_old_and_new_key_in_the_ring_only_the_pinned_one_can_open() -> None:
    old, new = keys.sound(), keys.sound(copy=2)

    with sealer_to(old, new, pins=(new.fingerprint,)) as sealer:
        sealed = sealer.seal(CHUNKS[:1])[0]

    with GpgOpener([new.secret]) as opener:
        assert CHUNKS[0].data == opener.open(sealed.data, 100)
    with GpgOpener([old.secret]) as opener, pytest.raises(SealedUnreadableError) as caught:
        opener.open(sealed.data, 100)
    assert {"reason": "key.secret.missing"} == caught.value.fields
