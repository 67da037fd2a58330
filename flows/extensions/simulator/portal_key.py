"""A throwaway key pair, as the portal would make it: for the demo, for practice and for tests."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from flows.adapters.gpg import Keyring
from flows.errors import BugError

Algorithm = Literal["rsa2048", "rsa3072", "rsa4096", "curve25519"]
_PARTS: Final = {
    "rsa2048": ("RSA\nKey-Length: 2048", "RSA\nSubkey-Length: 2048"),
    "rsa3072": ("RSA\nKey-Length: 3072", "RSA\nSubkey-Length: 3072"),
    "rsa4096": ("RSA\nKey-Length: 4096", "RSA\nSubkey-Length: 4096"),
    "curve25519": ("EDDSA\nKey-Curve: ed25519", "ECDH\nSubkey-Curve: cv25519"),
}
# Without --openpgp gpg 2.4 asks for AEAD, which 2.2 cannot read; with it, the digest would be
# SHA-1.
BUILDING: Final = ("--openpgp", "--cert-digest-algo", "SHA256")
_PORTAL_KEY: Final = """\
Key-Type: {0}
Key-Usage: sign,cert
Subkey-Type: {1}
Subkey-Usage: encrypt
Name-Real: Throwaway portal
Name-Email: portal@example.com
Expire-Date: 2y
%no-protection
%commit
"""


class PortalKey(NamedTuple):
    """A throwaway key pair: armored public and secret key, 40-hex fingerprint."""

    public: bytes
    secret: bytes
    fingerprint: str

    def __repr__(self) -> str:
        return f"PortalKey({self.fingerprint})"


def make_portal_key(algorithm: Algorithm = "rsa2048") -> PortalKey:
    """Make a throwaway key pair as the portal would, for the demo and for practice without the
    partner.
    """
    with Keyring(agent=True, options=BUILDING) as ring:
        built = ring.ask(lambda gpg: gpg.gen_key(_PORTAL_KEY.format(*_PARTS[algorithm])))
        if built is None or not built.fingerprint:
            raise BugError(place="making a throwaway key", kind="gpg")
        export = {"passphrase": "", "expect_passphrase": False}
        public = ring.ask(lambda gpg: gpg.export_keys(built.fingerprint))
        secret = ring.ask(lambda gpg: gpg.export_keys(built.fingerprint, secret=True, **export))
    return PortalKey(public.encode(), secret.encode(), built.fingerprint)
