"""The kinds of keys that a partner may send, each made by real gpg: accepted and sealed to as gpg
would, or refused.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flows.adapters.gpg import Keyring
from flows.adapters.gpg_keys import import_public_keys
from flows.adapters.gpg_opener import GpgOpener
from flows.adapters.gpg_sealer import GpgSealer
from flows.errors import CardlinkError
from flows.extensions.simulator.portal_key import PortalKey
from flows.runs.openpgp import inspect
from flows.runs.sealing import (
    KeyAlgorithmError,
    KeyNotPinnedError,
    KeyUnreadableError,
    KeyUnusableError,
    SecretKeyGivenError,
)
from tests import keys
from tests.adapters.key_kinds import (
    FUTURE,
    LATER,
    LATEST,
    LONG_AGO,
    key,
    revoke,
    stock,
    sub,
    used_by_gpg,
)
from tests.adapters.sealers import CHUNKS, TODAY
from tests.builders import quick

ANY = ("Curve25519", "P-256", "P-384", "P-521")
DEFAULT = ANY[:1]
Kind = Callable[[], PortalKey]


def sealer(kind: PortalKey, curves: tuple[str, ...] = DEFAULT, pin: str = "") -> GpgSealer:
    """Return a sealer to a key that may use these curves."""
    return GpgSealer(
        [kind.public],
        [pin or kind.fingerprint],
        armor=False,
        compression="zip",
        today=TODAY,
        curves=curves,
    )


ACCEPTED: dict[str, tuple[Kind, tuple[str, ...]]] = {
    "RSA 2048": (lambda: key("rsa2048", sub("rsa2048")), DEFAULT),
    "RSA 3072": (lambda: key("rsa3072", sub("rsa3072")), DEFAULT),
    "Curve25519": (lambda: key("ed25519", sub("cv25519")), DEFAULT),
    "RSA with a subkey of Curve25519": (lambda: key("rsa2048", sub("cv25519")), DEFAULT),
    "Curve25519 with a subkey of RSA": (lambda: key("ed25519", sub("rsa2048")), DEFAULT),
    "stock batch, both able, of one second": (lambda: stock(2048), DEFAULT),
    "primary key alone, able to encrypt": (lambda: key("rsa2048", usage="sign,cert,encr"), DEFAULT),
    "able primary key, expired subkey": (
        lambda: key("rsa2048", sub("rsa2048", "1y"), since=LONG_AGO, usage="sign,cert,encr"),
        DEFAULT,
    ),
    "able primary key with a subkey": (
        lambda: key("rsa2048", sub("rsa2048"), usage="sign,cert,encr"),
        DEFAULT,
    ),
    "two subkeys": (lambda: key("ed25519", sub(at=LATER), sub(at=LATEST), since=LONG_AGO), DEFAULT),
    "two subkeys of one second": (lambda: key("ed25519", sub(), sub(), since=LONG_AGO), DEFAULT),
    "renewed subkey": (keys.with_renewed_subkey, DEFAULT),
    "newest subkey expired": (
        lambda: key("ed25519", sub(), sub(ends="1y", at=LATER), since=LONG_AGO),
        DEFAULT,
    ),
    "newest subkey revoked": (
        lambda: key("ed25519", sub(), sub(at=LATER), revoke(2), since=LONG_AGO),
        DEFAULT,
    ),
    "newest subkey in the future": (lambda: key("ed25519", sub(), sub(at=FUTURE)), DEFAULT),
    "weak subkey that is replaced": (
        lambda: key("ed25519", sub("rsa1024", at=LATER), sub(at=LATEST), since=LONG_AGO),
        DEFAULT,
    ),
    "weak subkey for signing": (
        lambda: key("ed25519", sub(), sub("rsa1024", usage="sign")),
        DEFAULT,
    ),
    "P-256 by setting": (lambda: key("nistp256", sub("nistp256")), ANY),
    "P-384 by setting": (lambda: key("nistp384", sub("nistp384")), ANY),
    "P-521 by setting": (lambda: key("nistp521", sub("nistp521")), ANY),
    "Curve25519 with a subkey of P-256 by setting": (lambda: key("ed25519", sub("nistp256")), ANY),
}


@pytest.mark.parametrize(("kind", "curves"), quick(5, list(ACCEPTED.values())), ids=ACCEPTED)
def test_a_sound_key_is_sealed_to_at_the_part_that_gpg_itself_would_use(
    kind: Kind, curves: tuple[str, ...]
) -> None:
    made = kind()

    with sealer(made, curves) as ours, GpgOpener([made.secret]) as opener:
        sealed = ours.seal(CHUNKS[:1])[0]
        opened = opener.open(sealed.data, 100)

    assert CHUNKS[0].data == opened
    assert (used_by_gpg(made),) == inspect(sealed.data)


REFUSED: dict[str, tuple[Kind, type[CardlinkError], str]] = {
    "RSA 1024": (
        lambda: key("rsa1024", sub("rsa1024")),
        KeyAlgorithmError,
        "Primary key .* is RSA 1024",
    ),
    "RSA 1024 alone": (
        lambda: key("rsa1024", usage="sign,cert,encr"),
        KeyAlgorithmError,
        "Primary key .* is RSA 1024",
    ),
    "RSA 1024 stock batch": (lambda: stock(1024), KeyAlgorithmError, "Primary key .* is RSA 1024"),
    "RSA 1536": (
        lambda: key("rsa1536", sub("rsa2048")),
        KeyAlgorithmError,
        "Primary key .* is RSA 1536",
    ),
    "RSA 2048, subkey of 1024": (
        lambda: key("rsa2048", sub("rsa1024")),
        KeyAlgorithmError,
        "subkey .* is RSA 1024",
    ),
    "Curve25519, subkey of RSA 1024": (
        lambda: key("ed25519", sub("rsa1024")),
        KeyAlgorithmError,
        "subkey .* is RSA 1024",
    ),
    "a weak subkey replaces a sound one": (
        lambda: key("ed25519", sub(at=LATER), sub("rsa1024", at=LATEST), since=LONG_AGO),
        KeyAlgorithmError,
        "subkey .* is RSA 1024",
    ),
    "DSA and ElGamal 1024": (
        lambda: key("dsa1024", sub("elg1024")),
        KeyAlgorithmError,
        "Primary key .* is DSA 1024",
    ),
    "RSA, subkey of ElGamal 1024": (
        lambda: key("rsa2048", sub("elg1024")),
        KeyAlgorithmError,
        "subkey .* ElGamal 1024",
    ),
    "DSA and ElGamal 2048": (
        lambda: key("dsa2048", sub("elg2048")),
        KeyAlgorithmError,
        "Primary .* DSA 2048",
    ),
    "RSA, subkey of ElGamal 2048": (
        lambda: key("rsa2048", sub("elg2048")),
        KeyAlgorithmError,
        "subkey .* ElGamal",
    ),
    "P-256": (
        lambda: key("nistp256", sub("nistp256")),
        KeyAlgorithmError,
        "Primary key .* is P-256",
    ),
    "P-384": (
        lambda: key("nistp384", sub("nistp384")),
        KeyAlgorithmError,
        "Primary key .* is P-384",
    ),
    "P-521": (
        lambda: key("nistp521", sub("nistp521")),
        KeyAlgorithmError,
        "Primary key .* is P-521",
    ),
    "Curve25519, subkey of P-256": (
        lambda: key("ed25519", sub("nistp256")),
        KeyAlgorithmError,
        "subkey .* is P-256",
    ),
    "P-256, subkey of Curve25519": (
        lambda: key("nistp256", sub()),
        KeyAlgorithmError,
        "Primary key .* is P-256",
    ),
    "Brainpool": (
        lambda: key("brainpoolP256r1", sub()),
        KeyAlgorithmError,
        "Primary key .* is brainpoolP256r1",
    ),
    "secp256k1": (
        lambda: key("ed25519", sub("secp256k1")),
        KeyAlgorithmError,
        "subkey .* is secp256k1",
    ),
    "expired": (keys.expired, KeyUnusableError, "key .* expired on"),
    "expired, subkey without end": (
        lambda: key("ed25519", sub(), since=LONG_AGO, ends="1y"),
        KeyUnusableError,
        "key .* expired on 2020-12-31",
    ),
    "subkey expired": (
        keys.with_expired_subkey,
        KeyUnusableError,
        "subkey .* expired on 2020-12-31; the key itself",
    ),
    "both subkeys expired": (
        lambda: key("ed25519", sub(ends="1y"), sub(ends="1y", at=LATER), since=LONG_AGO),
        KeyUnusableError,
        "subkey .* expired on 2022-06-01",
    ),
    "made in the future": (
        lambda: key("ed25519", sub(at=FUTURE), since=FUTURE),
        KeyUnusableError,
        "The key in file 1 of 1 was made on",
    ),
    "subkey made in the future": (
        lambda: key("ed25519", sub(at=FUTURE)),
        KeyUnusableError,
        "subkey .* was made on",
    ),
    "revoked": (keys.revoked, KeyUnusableError, "Primary key .* was revoked"),
    "subkey revoked": (
        lambda: key("ed25519", sub(), revoke(1)),
        KeyUnusableError,
        "subkey .* was revoked",
    ),
    "unable to encrypt": (keys.sign_only, KeyUnusableError, "key .* cannot encrypt"),
    "secret": (
        lambda: keys.sound()._replace(public=keys.sound().secret),
        SecretKeyGivenError,
        "holds a secret key",
    ),
    "two keys in one file": (
        lambda: keys.sound()._replace(public=keys.sound().public + keys.sound(copy=2).public),
        KeyUnreadableError,
        "2 keys",
    ),
    "cut": (
        lambda: keys.sound()._replace(public=keys.sound().public[:300]),
        KeyUnreadableError,
        "no readable",
    ),
}


@pytest.mark.parametrize(
    ("kind", "error", "sentence"), quick(8, list(REFUSED.values())), ids=REFUSED
)
def test_an_unsound_key_is_refused_by_its_flaw_and_its_part(
    kind: Kind, error: type[CardlinkError], sentence: str
) -> None:
    made = kind()

    with pytest.raises(error, match=sentence):
        sealer(made)


def test_the_pin_of_a_subkey_is_refused_and_the_key_named() -> None:
    made = key("ed25519", sub())
    with Keyring() as ring:
        ((_, chosen),) = import_public_keys(ring, [made.public], [made.fingerprint], DEFAULT, TODAY)

    with pytest.raises(KeyNotPinnedError) as caught:
        sealer(made, pin=chosen.fingerprint)

    found = f"key {made.fingerprint}, whose subkey that is"
    assert {"fingerprint": chosen.fingerprint, "found": found} == caught.value.fields


def test_the_end_of_a_subkey_is_told_apart_from_that_of_the_key() -> None:
    ending = key("ed25519", sub(ends="10d"), ends="20d")

    with sealer(ending) as ours:
        warned = [one.text.partition(" expires on ")[0] for one in ours.warnings]
        subjects = [one.ending for one in ours.warnings]

    assert [
        f"Primary key {ending.fingerprint}",
        f"Encryption subkey {subjects[1][-16:]} of key {ending.fingerprint}",
    ] == warned
    assert ending.fingerprint == subjects[0] != subjects[1]
