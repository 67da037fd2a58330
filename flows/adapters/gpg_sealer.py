"""Seal chunks to pinned keys, and open messages sealed to ours, with gpg; plaintext is never a file
on disk.

One pinned public key per file, each flaw refused by its own error. The subkey is chosen here as gpg
would, and gpg is then told to use it: what is judged is what is used. For trials with a test issuer
a sealer leaves chunks as they are (interface.md 2.6).
"""

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import gnupg

from flows.adapters.gpg import PATIENCE, Keyring
from flows.errors import BugError, LimitError, OperatorError
from flows.runs import sealing
from flows.runs.openpgp import Compression, blocks, content, inspect, keys_in
from flows.runs.sealing import Plain, Sealed, Sealer, Warned
from schemas.expressions import PUBLISHED

WARN_DAYS: Final = 30
GROUP: Final = 64  # chunks per gpg process: two open files each, so far below any limit
_SAFE_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
_OPTIONS: Final = (
    *("--cipher-algo", "AES256"),  # gpg 2.2 picks 3DES if the key states no preferences
    # the content is already a compressed literal packet
    *("--compress-algo", "none", "--no-literal"),
)


class GpgSealer(ExitStack):
    """Seals chunks to every pinned fingerprint; implements `Sealer`, and is closed by its context.

    Each of `keys` is the content of one public key file. An unusable key raises its error of
    `flows.runs.sealing` before anything is sealed. `today` decides about expiry and its warning;
    `curves` are accepted beside RSA.
    """

    def __init__(
        self,
        keys: Sequence[bytes],
        fingerprints: Sequence[str],
        *,
        armor: bool,
        compression: Compression,
        today: date,
        curves: Sequence[str] = ("Curve25519",),
        patience: float = PATIENCE,
        gpg: str = "gpg",
    ) -> None:
        super().__init__()
        self._armor = armor
        self._compression = compression
        self._ring = self.enter_context(Keyring(patience=patience, gpg=gpg))
        try:
            pins = list(dict.fromkeys(pin.upper() for pin in fingerprints))
            self._recipients = import_public_keys(self._ring, keys, pins, curves, today)
        except BaseException:
            self.close()
            raise
        self.fingerprints = tuple(key.fingerprint for key, _ in self._recipients)
        self.warnings = tuple(
            Warned(
                f"{part.name} expires on {part.expires}, in {(part.expires - today).days} days.",
                part.fingerprint,
            )
            for part in dict.fromkeys(part for recipient in self._recipients for part in recipient)
            if part.expires is not None and part.expires - today <= timedelta(days=WARN_DAYS)
        )

    def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
        """Seal chunks in order, one gpg process a group; thread-safe. A chunk that fails carries
        its trouble.
        """
        groups = (chunks[start : start + GROUP] for start in range(0, len(chunks), GROUP))
        return [sealed for group in groups for sealed in self._seal_group(group)]

    def _seal_group(self, chunks: Sequence[Plain]) -> list[Sealed]:
        """Seal a group with one process; if that fails, each chunk with its own, so that only a bad
        one is lost.
        """
        if len({chunk.name for chunk in chunks if _SAFE_NAME.match(chunk.name)}) != len(chunks):
            raise BugError(place="sealing", kind="chunk names")
        packed = [content(chunk, self._compression) for chunk in chunks]
        try:
            messages = self._encrypt_group(packed)
        except sealing.GpgHungError:
            return [Sealed(chunk.name, b"", "seal.process.killed") for chunk in chunks]
        if messages is None:
            return [self._seal_one(chunk) for chunk in packed]
        return [
            self._checked(chunk.name, message)
            for chunk, message in zip(chunks, messages, strict=True)
        ]

    def _encrypt_group(self, chunks: Sequence[Plain]) -> list[bytes] | None:
        """Return one message per chunk, None if there are no memory files (macOS) or gpg reported a
        failure.
        """
        if not hasattr(os, "memfd_create"):
            return None
        try:
            with ExitStack() as files:
                folder, paths = (
                    Path(files.enter_context(TemporaryDirectory(dir=self._ring.home))),
                    list[str](),
                )
                for chunk in chunks:  # each a named file that exists in memory only
                    file = files.enter_context(os.fdopen(os.memfd_create("chunk"), "wb"))
                    file.write(chunk.data)
                    file.flush()
                    (folder / chunk.name).symlink_to(f"/proc/{os.getpid()}/fd/{file.fileno()}")
                    paths.append(str(folder / chunk.name))
                result = self._encrypt(
                    "".join(f"{path}\n" for path in paths).encode(), "--multifile"
                )
                suffix = ".asc" if self._armor else ".gpg"
                return (
                    [Path(path + suffix).read_bytes() for path in paths]
                    if _clean(result, len(paths))
                    else None
                )
        except (
            OSError,
            LimitError,
        ):  # no room for files or ciphertext: sealing one by one uses pipes instead
            return None

    def _seal_one(self, chunk: Plain) -> Sealed:
        try:
            result = self._encrypt(chunk.data)
        except sealing.GpgHungError:
            return Sealed(chunk.name, b"", "seal.process.killed")
        if not _clean(result, 1):
            return Sealed(chunk.name, b"", "seal.process.refused")
        return self._checked(chunk.name, result.data)

    def _encrypt(self, data: bytes, *arguments: str) -> Any:
        return self._ring.ask(
            lambda gpg: gpg.encrypt_file(
                BytesIO(data),
                # `!`: this part of the key, no other
                [f"{chosen.fingerprint}!" for _, chosen in self._recipients],
                always_trust=True,
                armor=self._armor,
                extra_args=[*_OPTIONS, *arguments],
            )
        )

    def _checked(self, name: str, message: bytes) -> Sealed:
        """Accept a message only if its packets name exactly our recipients: gpg's own `ok` is not
        enough.
        """
        wanted = sorted(chosen.key_id for _, chosen in self._recipients)
        try:
            found = sorted(inspect(message))
        except sealing.SealedUnreadableError as error:
            return Sealed(name, b"", f"seal.{error.fields['reason']}")
        if found != wanted:
            return Sealed(name, b"", "seal.recipients.different")
        return Sealed(name, message)


class GpgOpener(ExitStack):
    """Opens messages sealed to any of our secret keys; implements `Opener`, and is closed by its
    context.
    """

    def __init__(
        self,
        secret_keys: Sequence[bytes],
        passphrase: str | None = None,
        *,
        patience: float = PATIENCE,
        gpg: str = "gpg",
    ) -> None:
        super().__init__()
        # An empty one would swallow the first line of the message; python-gnupg writes latin-1,
        # keys expect UTF-8.
        self._passphrase = passphrase.encode().decode("latin-1") if passphrase else None
        self._no_questions = [] if passphrase else ["--pinentry-mode", "error"]
        self._ring = self.enter_context(Keyring(agent=True, patience=patience, gpg=gpg))
        try:
            for number, key in enumerate(secret_keys, start=1):
                found = self._ring.ask(
                    partial(gnupg.GPG.import_keys, key_data=key, passphrase=self._passphrase)
                )
                if found is None or not found.fingerprints or not found.sec_read:
                    raise sealing.SecretKeyUnreadableError(number=number, total=len(secret_keys))
        except BaseException:
            self.close()
            raise

    def open(self, message: bytes, limit: int) -> bytes:
        """Return the content of one message, at most `limit` bytes; SealedUnreadableError
        otherwise.
        """
        binary = blocks(message)  # gpg does not recognise armor after a byte order mark
        if len(binary) != 1:
            raise sealing.SealedUnreadableError(reason="message.blocks.many")
        options, why = ["--max-output", str(limit), *self._no_questions], ""
        # gpg's agent fails now and then, with nothing wrong with the message or the key
        for _ in range(2):
            result = self._ring.ask(
                lambda gpg: gpg.decrypt_file(
                    BytesIO(binary[0]),
                    always_trust=True,
                    passphrase=self._passphrase,
                    extra_args=options,
                )
            )
            # else its data may be unauthenticated
            if result is not None and result.ok and result.returncode == 0:
                return bytes(result.data)
            why = _why_unread("" if result is None else result.stderr)
            if why in _CERTAIN:
                break
        raise sealing.SealedUnreadableError(reason=why)


def trial_seal(sealer: Sealer) -> None:
    """Seal a dummy chunk and check the message; SealBrokenError if it is not sealed to exactly our
    recipients.
    """
    (sealed,) = sealer.seal([Plain("trial.csv", b"trial\n")])
    if sealed.trouble:
        raise sealing.SealBrokenError(
            reason=sealed.trouble, expected=", ".join(sealer.fingerprints)
        )


def _clean(result: Any, count: int) -> bool:
    """Return whether gpg sealed `count` inputs; `ok` is also true with return code 2 and on a full
    disk.
    """
    if result is None or not result.ok or result.returncode != 0:
        return False
    return bool(result.stderr.count("[GNUPG:] END_ENCRYPTION") == count)


_CERTAIN = ("message.content.too_large", "key.secret.missing")  # gpg would say the same again


def _why_unread(stderr: str) -> str:
    """Return the cause by gpg's status words; its text is never shown, it may contain the sender's
    file names.
    """
    if "exceeded --max-output limit" in stderr:
        return "message.content.too_large"
    if "[GNUPG:] ERROR pkdecrypt_failed" in stderr:
        return "key.passphrase.wrong"
    if "[GNUPG:] NO_SECKEY" in stderr and "[GNUPG:] DECRYPTION_KEY" not in stderr:
        return "key.secret.missing"
    return "message.content.unreadable"


LEAST: Final = 2048  # bits of RSA
FUTURE: Final = "was made on {}, which is in the future for this machine"
# RFC 4880 9.1
_FAMILIES: Final = {
    "1": "RSA",
    "2": "RSA",
    "3": "RSA",
    "16": "ElGamal",
    "17": "DSA",
    "20": "ElGamal",
}
_CURVES: Final = {"ed25519": "Curve25519", "cv25519": "Curve25519"} | {
    f"nistp{bits}": f"P-{bits}" for bits in (256, 384, 521)
}


class Part(NamedTuple):
    """A primary key or a subkey as gpg lists it: `state` is r, e or another letter, `created` in
    epoch seconds.
    """

    name: str  # as messages call it
    fingerprint: str
    key_id: str
    algorithm: str  # RSA 2048, Curve25519
    capabilities: str
    state: str
    created: int
    expires: date | None

    def flaw(self, today: date, now: float) -> str:
        """Return why the key cannot be used for all of `today`, "" where it can: on its last day it
        could expire.
        """
        if self.state == "r":
            return "was revoked by its owner"
        if self.created > now:
            return FUTURE.format(_day(self.created))
        ended = self.state == "e" or (self.expires is not None and self.expires <= today)
        return f"expired on {self.expires}" if ended else ""


# a pinned key, and the part of it that messages will name: a subkey, or the key itself
Recipient = tuple[Part, Part]


def import_public_keys(
    ring: Keyring, keys: Sequence[bytes], pinned: Sequence[str], curves: Sequence[str], today: date
) -> tuple[Recipient, ...]:
    """Import one public key per file and return the pinned ones, in the order of `pinned`; each
    flaw has its error.
    """
    now = time.time()  # not `today`: gpg judges what was made in the future by the machine's clock
    for file, key in (
        (f"{number} of {len(keys)}", key) for number, key in enumerate(keys, start=1)
    ):
        public = _one_public_key(key, file, ", ".join(pinned), now)
        result = ring.ask(partial(gnupg.GPG.import_keys, key_data=public))
        if result is None or len(set(result.fingerprints)) != 1:
            raise sealing.KeyUnreadableError(file=file, reason="key.import.refused")
    found = {entry["fingerprint"]: entry for entry in ring.ask(lambda gpg: gpg.list_keys()) or ()}
    recipients = [
        _recipient(_pinned(found, fingerprint, pinned), fingerprint, today, now)
        for fingerprint in pinned
    ]
    for part in (part for recipient in recipients for part in recipient):
        family, _, bits = part.algorithm.partition(" ")
        if part.algorithm not in curves and (family != "RSA" or int(bits) < LEAST):
            accepted = ", ".join((f"RSA of {LEAST} bits or more", *curves))
            raise sealing.KeyAlgorithmError(
                part=part.name, algorithm=part.algorithm, accepted=accepted
            )
    return tuple(recipients)


def _one_public_key(key: bytes, file: str, pinned: str, now: float) -> bytes:
    """Return the key in binary, so that gpg sees exactly what was counted here."""
    found, made, secret, why = list[bytes](), list[int](), 0, ""
    try:
        found = blocks(key)
        made, secret = keys_in(found)
    except sealing.SealedUnreadableError as error:
        why = str(error.fields["reason"])
    if secret:
        raise sealing.SecretKeyGivenError(file=file, pinned=pinned)
    if len(made) != 1:
        raise sealing.KeyUnreadableError(file=file, reason=why or f"{len(made)} keys")
    if made[0] > now:  # gpg would not import it
        raise sealing.KeyUnusableError(
            part=f"The key in file {file}", why=FUTURE.format(_day(made[0]))
        )
    return b"".join(found)


def _pinned(found: Mapping[str, Any], fingerprint: str, pinned: Sequence[str]) -> Any:
    if fingerprint in found:
        return found[fingerprint]
    for key, listed in found.items():
        if any(fingerprint in subkey for subkey in listed["subkeys"]):
            raise sealing.KeyNotPinnedError(
                fingerprint=fingerprint, found=f"key {key}, whose subkey that is"
            )
    others = ", ".join(sorted(set(found) - set(pinned)))
    raise sealing.KeyNotPinnedError(fingerprint=fingerprint, found=others or "other pinned keys")


def _recipient(listed: Any, fingerprint: str, today: date, now: float) -> Recipient:
    """Return the recipient with the part gpg would choose: the newest valid subkey, else the key
    itself.
    """
    key = _part(listed, listed["cap"], f"Primary key {fingerprint}")
    if why := key.flaw(today, now):
        raise sealing.KeyUnusableError(part=key.name, why=why)
    subkeys = [
        _part(info, info["capability"], f"Encryption subkey {info['keyid']} of key {fingerprint}")
        for info in listed.get("subkey_info", {}).values()
        if "e" in info["capability"]
    ]
    if valid := [part for part in subkeys if not part.flaw(today, now)]:
        return key, max(valid, key=lambda part: part.created)
    if "e" in key.capabilities:  # lower case: its own capability
        return key, key
    if not subkeys:
        raise sealing.KeyUnusableError(part=key.name, why="cannot encrypt")
    newest = max(subkeys, key=lambda part: part.created)
    raise sealing.KeyUnusableError(
        part=newest.name, why=f"{newest.flaw(today, now)}; the key itself is valid"
    )


def _part(fields: Any, capabilities: str, name: str) -> Part:
    family, curve = _FAMILIES.get(fields["algo"], f"algorithm-{fields['algo']}"), fields["curve"]
    return Part(
        name=name,
        fingerprint=fields["fingerprint"],
        key_id=fields["keyid"],
        algorithm=_CURVES.get(curve, curve) if curve else f"{family} {fields['length']}",
        capabilities=capabilities,
        state=fields["trust"],
        created=int(fields["date"]),
        expires=_day(int(fields["expires"])) if fields["expires"] else None,
    )


def _day(moment: int) -> date:
    return datetime.fromtimestamp(moment, UTC).date()


_LONG_NUMBER: Final = re.compile(rb"[0-9]{13,}")
_PUBLISHED: Final = frozenset(card.encode() for card in PUBLISHED)


class UnsealedCardError(OperatorError):
    """An unsealed chunk would contain a number that is not a published test card."""

    message = (
        "{chunk} contains {count} numbers that are not published test cards, and [portal] sealed = false. It was "
        "not written."
    )
    next_step = "Remove `sealed = false` from the TOML, or use test cards: `cardlink sample FILE --published`."


class PlainSealer:
    """Returns chunks unchanged, for `[portal] sealed = false`; UnsealedCardError where a number is
    no test card.
    """

    fingerprints: tuple[str, ...] = ()
    warnings = (
        Warned("Chunks are not sealed ([portal] sealed = false): published test cards only."),
    )

    def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
        """Return the chunks unsealed, under their upload names; UnsealedCardError for any other
        card.
        """
        for chunk in chunks:
            others = [
                number for number in _LONG_NUMBER.findall(chunk.data) if number not in _PUBLISHED
            ]
            if others:
                raise UnsealedCardError(chunk=chunk.name, count=len(others))
        return [Sealed(chunk.name, chunk.data) for chunk in chunks]
