"""Seals chunks to pinned keys and opens messages sealed to ours, by gpg; plaintext never is a file on disk."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self

from flows.adapters.gpg import PATIENCE, Keyring, Recipient, import_public_keys, memory_files
from flows.errors import BugError
from flows.runs.openpgp import Compression, Content, blocks, content, inspect
from flows.runs.sealing import (
    GpgHungError,
    MalformedMessageError,
    Plain,
    SealBrokenError,
    Sealed,
    SealedUnreadableError,
    Sealer,
    SecretKeyUnreadableError,
)

WARN_DAYS: Final = 30
GROUP: Final = 64  # chunks per gpg process: two open files each, so far below any limit
_SAFE_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
_CIPHER: Final = ("--cipher-algo", "AES256")  # without preferences in the key gpg 2.2 picks 3DES
_AS_IT_IS: Final = ("--compress-algo", "none", "--no-literal")  # what is sealed is a whole packet already


Algorithm = Literal["rsa2048", "rsa3072", "rsa4096", "curve25519"]
_PARTS: Final = {
    "rsa2048": ("RSA\nKey-Length: 2048", "RSA\nSubkey-Length: 2048"),
    "rsa3072": ("RSA\nKey-Length: 3072", "RSA\nSubkey-Length: 3072"),
    "rsa4096": ("RSA\nKey-Length: 4096", "RSA\nSubkey-Length: 4096"),
    "curve25519": ("EDDSA\nKey-Curve: ed25519", "ECDH\nSubkey-Curve: cv25519"),
}
# Without --openpgp gpg 2.4 asks for AEAD, which 2.2 cannot read; with it, the digest must be said not to be SHA-1.
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

IDLE = 4  # sealers kept, each a private gpg home of a few small files with public keys


class PortalKey(NamedTuple):
    """A throwaway key pair: armored public and secret key, 40-hex fingerprint."""

    public: bytes
    secret: bytes
    fingerprint: str

    def __repr__(self) -> str:
        return f"PortalKey({self.fingerprint})"


class GpgSealer:
    """Seal chunks to every pinned fingerprint; implements `ports.Sealer`, ends with its context.

    Each of `keys` is the content of one public key file. Raises an error of `key_errors` that names the key and
    its flaw before anything is sealed. `today` decides on expiry and its warning.
    """

    def __init__(
        self,
        keys: Sequence[bytes],
        fingerprints: Sequence[str],
        *,
        armor: bool,
        compression: Compression,
        today: date,
        patience: float = PATIENCE,
        gpg: str = "gpg",
    ) -> None:
        self._armor = armor
        self._compression = compression
        self._ring = Keyring(patience=patience, gpg=gpg)
        try:
            pins = list(dict.fromkeys(pin.upper() for pin in fingerprints))
            self._recipients = import_public_keys(self._ring, keys, pins, today)
        except BaseException:
            self.close()
            raise
        self.warnings = tuple(_warn(recipient, today) for recipient in self._recipients if _is_ending(recipient, today))

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """The 40-hex fingerprints every message is sealed to."""
        return tuple(recipient.fingerprint for recipient in self._recipients)

    @property
    def key_expiry(self) -> dict[str, date | None]:
        """The day each fingerprint's key stops working, None for never."""
        return {recipient.fingerprint: recipient.expires for recipient in self._recipients}

    def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
        """Seal chunks in order, in groups of one gpg process each; safe to call from several threads.

        A chunk that does not work carries its trouble (`seal.process.*`, `seal.message.*`), the others stand.
        """
        sealed = []
        for start in range(0, len(chunks), GROUP):
            sealed += self._seal_group(chunks[start : start + GROUP])
        return sealed

    def close(self) -> None:
        """Remove the ring; nothing happens the second time."""
        self._ring.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _seal_group(self, chunks: Sequence[Plain]) -> list[Sealed]:
        """Seal one group by one process; where that is not clean, each chunk by its own, so that only one suffers."""
        if len({chunk.name for chunk in chunks if _SAFE_NAME.match(chunk.name)}) != len(chunks):
            raise BugError(place="sealing", kind="chunk names")
        packed = [content(chunk, self._compression) for chunk in chunks]
        try:
            messages = self._encrypt_group(packed)
        except GpgHungError:
            return [Sealed(chunk.name, b"", "seal.process.killed") for chunk in chunks]
        if messages is None:
            return [self._seal_one(chunk) for chunk in packed]
        return [self._checked(chunk.name, message) for chunk, message in zip(chunks, messages, strict=True)]

    def _encrypt_group(self, chunks: Sequence[Content]) -> list[bytes] | None:
        """Return one message per chunk, None where memory files are missing (macOS) or gpg was not clean."""
        if not hasattr(os, "memfd_create"):
            return None
        try:
            with TemporaryDirectory(dir=self._ring.home) as folder, memory_files(chunks, Path(folder)) as paths:
                result = self._encrypt("".join(f"{path}\n" for path in paths).encode(), "--multifile")
                suffix = ".asc" if self._armor else ".gpg"
                return [Path(path + suffix).read_bytes() for path in paths] if _clean(result, len(paths)) else None
        except OSError:  # no room for files or ciphertext: one by one goes through pipes
            return None

    def _seal_one(self, chunk: Content) -> Sealed:
        try:
            result = self._encrypt(b"".join(chunk.pieces))
        except GpgHungError:
            return Sealed(chunk.name, b"", "seal.process.killed")
        if not _clean(result, 1):
            return Sealed(chunk.name, b"", "seal.process.refused")
        return self._checked(chunk.name, result.data)

    def _encrypt(self, data: bytes, *arguments: str) -> Any:
        return self._ring.ask(
            lambda gpg: gpg.encrypt_file(
                BytesIO(data),
                list(self.fingerprints),
                always_trust=True,
                armor=self._armor,
                extra_args=[*_CIPHER, *_AS_IT_IS, *arguments],
            )
        )

    def _checked(self, name: str, message: bytes) -> Sealed:
        """Accept a message only if its outside shows exactly the wanted keys: gpg's own `ok` is not enough."""
        wanted = sorted(recipient.key_id for recipient in self._recipients)
        try:
            found = sorted(inspect(message).recipients)
        except MalformedMessageError as error:
            return Sealed(name, b"", f"seal.{error.fields['reason']}")
        if found != wanted:
            return Sealed(name, b"", "seal.recipients.different")
        return Sealed(name, message)


class GpgOpener:
    """Open messages sealed to any of our secret keys; implements `ports.Opener`, ends with its context."""

    def __init__(
        self,
        secret_keys: Sequence[bytes],
        passphrase: str | None = None,
        *,
        patience: float = PATIENCE,
        gpg: str = "gpg",
    ) -> None:
        # An empty one would eat the first line of the message; python-gnupg writes latin-1, keys want UTF-8.
        self._passphrase = passphrase.encode().decode("latin-1") if passphrase else None
        self._no_questions = [] if passphrase else ["--pinentry-mode", "error"]
        self._ring = Keyring(agent=True, patience=patience, gpg=gpg)
        try:
            for number, key in enumerate(secret_keys, start=1):
                self._import(key, number, len(secret_keys))
        except BaseException:
            self.close()
            raise

    def open(self, message: bytes, limit: int) -> bytes:
        """Return the content of one message, at most `limit` bytes; SealedUnreadableError otherwise."""
        binary = _binary(message)
        result = self._ring.ask(
            lambda gpg: gpg.decrypt_file(
                BytesIO(binary),
                always_trust=True,
                passphrase=self._passphrase,
                extra_args=["--max-output", str(limit), *self._no_questions],
            )
        )
        if result is None or not result.ok or result.returncode != 0:  # its data may be unauthenticated: dropped
            raise SealedUnreadableError(reason=_why_unread("" if result is None else result.stderr))
        content: bytes = result.data
        return content

    def close(self) -> None:
        """End the agent and remove the ring; nothing happens the second time."""
        self._ring.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _import(self, key: bytes, number: int, of: int) -> None:
        result = self._ring.ask(lambda gpg: gpg.import_keys(key, passphrase=self._passphrase))
        if result is None or not result.fingerprints or not result.sec_read:
            raise SecretKeyUnreadableError(number=number, total=of)


def trial_seal(sealer: Sealer) -> None:
    """Seal a dummy and check the message from outside; SealBrokenError where it is not what was asked for."""
    sealed = sealer.seal([Plain("trial.csv", b"trial\n")])
    if sealed[0].trouble:
        raise SealBrokenError(reason=sealed[0].trouble, expected=", ".join(sealer.fingerprints))


def make_portal_key(algorithm: Algorithm = "rsa2048") -> PortalKey:
    """Make a throwaway key pair as the portal would: for the demo, and for trials without the partner."""
    with Keyring(agent=True, options=BUILDING) as ring:
        built = ring.ask(lambda gpg: gpg.gen_key(_PORTAL_KEY.format(*_PARTS[algorithm])))
        if built is None or not built.fingerprint:
            raise BugError(place="making a throwaway key", kind="gpg")
        export = {"passphrase": "", "expect_passphrase": False}
        public = ring.ask(lambda gpg: gpg.export_keys(built.fingerprint))
        secret = ring.ask(lambda gpg: gpg.export_keys(built.fingerprint, secret=True, **export))
    return PortalKey(public.encode(), secret.encode(), built.fingerprint)


def _clean(result: Any, count: int) -> bool:
    """Tell whether gpg sealed `count` inputs; `ok` alone also shows with return code 2 and on a full disk."""
    return (
        result is not None
        and bool(result.ok)
        and result.returncode == 0
        and result.stderr.count("[GNUPG:] END_ENCRYPTION") == count
    )


def _binary(message: bytes) -> bytes:
    """Take armor off here: gpg finds none behind a byte order mark."""
    found, why = [], "message.blocks.many"
    try:
        found = blocks(message)
    except MalformedMessageError as error:
        why = str(error.fields["reason"])
    if len(found) != 1:
        raise SealedUnreadableError(reason=why)
    return found[0]


def _why_unread(stderr: str) -> str:
    """Name the cause by gpg's fixed words; its text itself may hold file names of the sender's."""
    if "exceeded --max-output limit" in stderr:
        return "message.content.too_large"
    if "[GNUPG:] ERROR pkdecrypt_failed" in stderr:
        return "key.passphrase.wrong"
    if "[GNUPG:] NO_SECKEY" in stderr and "[GNUPG:] DECRYPTION_KEY" not in stderr:
        return "key.secret.missing"
    return "message.content.unreadable"


def _is_ending(recipient: Recipient, today: date) -> bool:
    return recipient.expires is not None and recipient.expires - today <= timedelta(days=WARN_DAYS)


def _warn(recipient: Recipient, today: date) -> str:
    days = (recipient.expires - today).days if recipient.expires else 0
    return f"Key {recipient.fingerprint} expires on {recipient.expires}, in {days} days."


class SealerSpec(NamedTuple):
    """What a sealer is made of: two that are equal seal alike, judged on the same day."""

    keys: tuple[bytes, ...]
    fingerprints: tuple[str, ...]
    armor: bool
    compression: Literal["zip", "none"]
    today: date


class Sealers:
    """Lends out sealers that passed a trial; one that is lent out belongs to its borrower alone."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._idle: dict[SealerSpec, GpgSealer] = {}
        self._moving = Lock()

    @contextmanager
    def borrow(self, wanted: SealerSpec) -> Iterator[GpgSealer]:
        """Lend a sealer; it is kept for the next night, unless this one ended in an error or a newer one needs room."""
        sealer = self._idle.pop(wanted, None) or _tried(wanted)
        try:
            yield sealer
        except BaseException:
            sealer.close()
            raise
        for other in self._keep(wanted, sealer):
            other.close()

    def _keep(self, wanted: SealerSpec, sealer: GpgSealer) -> list[GpgSealer]:
        """Keep a sealer as the newest; return those that make room: one alike of a night beside this, the oldest."""
        with self._moving:
            others = [self._idle.pop(wanted)] if wanted in self._idle else []
            self._idle[wanted] = sealer
            return others + [self._idle.pop(oldest) for oldest in list(self._idle)[:-IDLE]]

    def close(self) -> None:
        """End all that are idle; a forked child leaves its parent's alone."""
        while self._idle and os.getpid() == self._process:
            self._idle.popitem()[1].close()


def _tried(wanted: SealerSpec) -> GpgSealer:
    sealer = GpgSealer(
        wanted.keys, wanted.fingerprints, armor=wanted.armor, compression=wanted.compression, today=wanted.today
    )
    try:
        trial_seal(sealer)
    except BaseException:
        sealer.close()
        raise
    return sealer
