"""Signatures of persons, made with their own OpenPGP keys and verified against pinned ones."""

import os
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

import gnupg

from flows.adapters.gpg import Keyring
from flows.configuration import read_file
from flows.errors import OperatorError
from flows.extensions.governance.settings import normalised
from flows.runs.sealing import SecretKeyUnreadableError
from flows.wiring import secret

KEY_FILE = "CARDLINK_PERSON_KEY_FILE"


class SignatureRefusedError(OperatorError):
    """A person's own key made no signature."""

    message = "The key of CARDLINK_PERSON_KEY_FILE does not sign: wrong passphrase, or it cannot."
    next_step = "Correct CARDLINK_PERSON_PASSPHRASE_FILE, or name a key that signs."


class PersonSignatures:
    """Signatures of the persons whose keys are pinned.

    `folder` has their public keys, as `NAME.asc`; `own_key` is the secret key of whoever runs the
    command, empty where there is none.
    """

    def __init__(
        self, folder: Path, pinned: Mapping[str, str], own_key: bytes, passphrase: str
    ) -> None:
        self._folder = folder
        self._pinned = pinned
        self._own_key = own_key
        self._passphrase = passphrase

    @property
    def persons(self) -> Collection[str]:
        """The names whose keys are pinned."""
        return self._pinned.keys()

    def sign(self, statement: bytes) -> str:
        """Return the signature of whoever runs the command, "" where they have no key at hand."""
        if not self._own_key:
            return ""
        return signature_by(statement, self._own_key, self._passphrase)

    def holds(self, name: str, statement: bytes, signature: str) -> bool:
        """Return whether a signature is of a statement, by the person of that name."""
        for person, fingerprint in self._pinned.items():
            if normalised(person) == normalised(name):
                file = self._folder / f"{person}.asc"
                public_key = file.read_bytes() if file.is_file() else b""
                return is_signed_by(statement, signature, public_key, fingerprint)
        return False


def signatures(folder: Path, pinned: Mapping[str, str], *, at_hand: bool) -> PersonSignatures:
    """Return the signatures of the persons whose keys are pinned, by name.

    `at_hand`: whoever runs the command may sign, at a terminal of their own; never in a worker.
    """
    key_file = os.environ.get(KEY_FILE) if at_hand else None
    own_key = read_file(Path(key_file), KEY_FILE) if key_file else b""
    passphrase = secret("CARDLINK_PERSON_PASSPHRASE") if key_file else ""
    return PersonSignatures(folder / "persons", pinned, own_key, passphrase)


def signature_by(statement: bytes, secret_key: bytes, passphrase: str) -> str:
    """Return an armored signature of a statement; SecretKeyUnreadableError.

    SignatureRefusedError where the key does not sign.
    """
    with Keyring(agent=True) as ring:
        unlocking = {"passphrase": passphrase.encode().decode("latin-1")} if passphrase else {}
        read = ring.ask(partial(gnupg.GPG.import_keys, key_data=secret_key, **unlocking))
        if read is None or not read.fingerprints or not read.sec_read:
            raise SecretKeyUnreadableError(number=1, total=1)
        options = [] if passphrase else ["--pinentry-mode", "error"]
        signed = ring.ask(
            lambda gpg: gpg.sign(
                statement,
                keyid=read.fingerprints[0],
                detach=True,
                extra_args=options,
                **unlocking,
            )
        )
    if signed is None or not signed.data:
        raise SignatureRefusedError
    return bytes(signed.data).decode("ascii")


def is_signed_by(statement: bytes, signature: str, public_key: bytes, fingerprint: str) -> bool:
    """Return whether a signature is of this statement, by the key with that fingerprint.

    A key that expired or was revoked signs nothing.
    """
    with Keyring() as ring:
        ring.ask(partial(gnupg.GPG.import_keys, key_data=public_key))
        file = ring.home / "statement.asc"
        file.write_text(signature)
        verified = ring.ask(lambda gpg: gpg.verify_data(str(file), statement))
    if verified is None or not verified.valid:
        return False
    return str(verified.pubkey_fingerprint) == fingerprint
