"""Throwaway keys for tests, sound and flawed, made by real gpg once per test process."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

from flows.adapters.gpg import Keyring
from flows.extensions.simulator.portal_key import BUILDING, Algorithm, PortalKey, make_portal_key

NAME = "Portal <portal@example.com>"
LONG_AGO = "20200101T000000"


@cache
def sound(algorithm: Algorithm = "curve25519", copy: int = 1) -> PortalKey:
    """Return a key that may be sealed to; another one for another `copy`."""
    return make_portal_key(algorithm)


@cache
def behind(passphrase: str) -> PortalKey:
    """Return a sound key whose secret part needs a passphrase."""
    return made(lambda gpg: _primary_and_subkey(gpg, "never", "never"), passphrase=passphrase)


@cache
def expired() -> PortalKey:
    """Return a key of 2020 that was good for a year."""
    return made(lambda gpg: _primary_and_subkey(gpg, "1y", "1y"), since=LONG_AGO)


@cache
def with_expired_subkey() -> PortalKey:
    """Return a key without end whose only encryption subkey ended in 2021."""
    return made(lambda gpg: _primary_and_subkey(gpg, "never", "1y"), since=LONG_AGO)


@cache
def with_renewed_subkey() -> PortalKey:
    """Return a key with an encryption subkey that ended in 2021 and a later one without end."""

    def make(gpg: Gpg) -> None:
        primary = _primary_and_subkey(gpg, "never", "1y")
        gpg("--quick-add-key", primary, "cv25519", "encr", "never", at="20210601T000000")

    return made(make, since=LONG_AGO)


@cache
def lasting(days: int) -> PortalKey:
    """Return a key that ends some days from now."""
    return made(lambda gpg: _primary_and_subkey(gpg, f"{days}d", "never"))


@cache
def revoked() -> PortalKey:
    """Return a key its owner revoked."""

    def make(gpg: Gpg) -> None:
        primary = _primary_and_subkey(gpg, "never", "never")
        certificate = gpg.home / "openpgp-revocs.d" / f"{primary}.rev"
        gpg("--import", given=certificate.read_bytes().replace(b":-----BEGIN", b"-----BEGIN"))

    return made(make)


@cache
def sign_only() -> PortalKey:
    """Return a key that can sign but not encrypt."""
    return made(lambda gpg: gpg("--quick-gen-key", NAME, "ed25519", "sign,cert", "never"))


class Gpg:
    """Calls of plain gpg in one home, at a time and with a passphrase of its own, without
    questions.
    """

    def __init__(self, home: Path, since: str = "", passphrase: str = "") -> None:
        self.home = home
        self._passphrase = passphrase
        self._since = since

    def __call__(self, *arguments: str, given: bytes = b"", at: str = "") -> str:
        """Run gpg and return what it prints; CalledProcessError where it does not end well."""
        at = at or self._since
        clock = (
            [f"--faked-system-time={at}!"] if at else []
        )  # stands still: else a slow machine makes keys of the future
        quiet = [
            "--batch",
            *BUILDING,
            "--no-tty",
            "--pinentry-mode",
            "loopback",
            "--passphrase",
            self._passphrase,
        ]
        command = ["gpg", "--homedir", str(self.home), *quiet, *clock, *arguments]
        return subprocess.run(command, input=given, capture_output=True, check=True).stdout.decode(
            "latin-1"
        )


def _primary_and_subkey(gpg: Gpg, primary_ends: str, subkey_ends: str) -> str:
    gpg("--quick-gen-key", NAME, "ed25519", "sign,cert", primary_ends)
    primary = fingerprint(gpg)
    gpg("--quick-add-key", primary, "cv25519", "encr", subkey_ends)
    return primary


def fingerprint(gpg: Gpg) -> str:
    """Return the fingerprint of the first key in a home."""
    listed = gpg("--list-keys", "--with-colons").splitlines()
    return next(line.split(":")[9] for line in listed if line.startswith("fpr"))


def made(make: Callable[[Gpg], object], since: str = "", passphrase: str = "") -> PortalKey:
    """Return the key that some calls of gpg make, at a time and behind a passphrase."""
    with Keyring(agent=True) as ring:
        gpg = Gpg(ring.home, since, passphrase)
        make(gpg)
        public = gpg("--export", "--armor").encode()
        secret = gpg("--export-secret-keys", "--armor").encode()
        return PortalKey(public, secret, fingerprint(gpg))
