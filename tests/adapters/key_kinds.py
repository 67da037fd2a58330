"""Every kind of public key that a partner may send, made by real gpg; and which part of it plain
gpg would use.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache

from flows.extensions.simulator.portal_key import PortalKey
from flows.runs.openpgp import inspect
from tests import keys
from tests.keys import Gpg

LONG_AGO, LATER, LATEST = "20200101T000000", "20210601T000000", "20220601T000000"
FUTURE = f"{datetime.now(UTC) + timedelta(days=400):%Y%m%dT000000}"
DIGEST = ("--cert-digest-algo", "SHA512")  # P-521 takes no shorter one
BATCH = """\
Key-Type: RSA
Key-Length: {0}
Subkey-Type: RSA
Subkey-Length: {0}
Name-Real: Portal
%no-protection
%commit"""

Step = Callable[[Gpg, str], object]


def sub(algorithm: str = "cv25519", ends: str = "never", at: str = "", usage: str = "encr") -> Step:
    """Return the step that adds a subkey."""
    return lambda gpg, key: gpg(*DIGEST, "--quick-add-key", key, algorithm, usage, ends, at=at)


def revoke(subkey: int) -> Step:
    """Return the step that revokes a subkey, by its number from 1."""
    typed = f"key {subkey}\nrevkey\ny\n0\n\ny\nsave\n".encode()
    return lambda gpg, key: gpg("--no-batch", "--command-fd", "0", "--edit-key", key, given=typed)


@cache
def key(
    primary: str, *steps: Step, since: str = "", ends: str = "never", usage: str = "sign,cert"
) -> PortalKey:
    """Return a key of that primary algorithm, after the steps."""

    def make(gpg: Gpg) -> None:
        gpg(*DIGEST, "--quick-gen-key", keys.NAME, primary, usage, ends)
        for step in steps:
            step(gpg, keys.fingerprint(gpg))

    return keys.made(make, since=since)


@cache
def stock(bits: int) -> PortalKey:
    """Return what gpg's batch recipe without usages makes: key and subkey of one second, both able
    to encrypt.
    """
    return keys.made(lambda gpg: gpg("--gen-key", given=BATCH.format(bits).encode()))


def used_by_gpg(key: PortalKey) -> str:
    """Return the key id that plain gpg, left to choose, seals to."""
    with tempfile.TemporaryDirectory() as home:
        gpg = [
            "gpg",
            "--homedir",
            home,
            "--batch",
            "--quiet",
            "--no-autostart",
            "--trust-model",
            "always",
        ]
        subprocess.run([*gpg, "--import"], input=key.public, check=True, capture_output=True)
        sealed = subprocess.run(
            [*gpg, "--recipient", key.fingerprint, "--encrypt"],
            input=b"x",
            check=True,
            capture_output=True,
        )
    return inspect(sealed.stdout)[0]
