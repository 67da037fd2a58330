"""Sealed messages: the Protocols of sealer and opener, and what can be wrong with a key.

The format of messages is in `openpgp.py`. Keep out: gpg itself.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from flows.errors import OperatorError, TryAgainError

OTHER_KEYS = "key.secret.missing"  # the reason where a message is sealed to other keys


class Plain(NamedTuple):
    """One chunk in the clear, in memory only: file name (`<run>-00001.csv`) and CSV bytes."""

    name: str
    data: bytes


class Sealed(NamedTuple):
    """One chunk as an OpenPGP message.

    Where sealing failed, `trouble` is a code and `data` is empty.
    """

    name: str
    data: bytes
    trouble: str = ""


class Warned(NamedTuple):
    """What an operator should know about a key.

    `ending` is the fingerprint of the key or subkey that expires soon, if one does, in `days`.
    """

    text: str
    ending: str = ""
    days: int | None = None


class Sealer(Protocol):
    """Turns chunks into OpenPGP messages for pinned keys."""

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """The 40-hex fingerprints every message is sealed to."""

    @property
    def warnings(self) -> tuple[Warned, ...]:
        """What an operator should know about the keys, such as one that expires within 30 days."""

    def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
        """Seal a group of chunks, in order.

        One that fails has its trouble; the others are sealed.
        """


class Opener(Protocol):
    """Opens OpenPGP messages with a private key."""

    def open(self, message: bytes, limit: int) -> bytes:
        """Return the content of one message, at most `limit` bytes.

        Raises SealedUnreadableError.
        """


class GpgMissingError(OperatorError):
    """gpg is not installed or does not start."""

    message = "gpg could not be run ({reason})."
    next_step = (
        "Install GnuPG 2.2 or later "
        "(Debian: apt-get install gnupg, macOS: brew install gnupg) and run again."
    )


class GpgHungError(TryAgainError):
    """gpg did not finish in time, was killed, or failed by itself."""

    message = "gpg did not finish: {reason}."
    next_step = (
        "Nothing was committed; run {same_command} again. "
        "If it persists, look for a full disk or too little memory."
    )


class GpgTooOldError(OperatorError):
    """gpg is older than what we know how to use."""

    message = "gpg says that it is version {version}; 2.2 is the oldest that can be used."
    next_step = GpgMissingError.next_step


class KeyUnreadableError(OperatorError):
    """A key file does not hold exactly one OpenPGP key that gpg can import."""

    message = "Key file {file} holds no readable OpenPGP public key, or several ({reason})."
    next_step = (
        "Download the public key from the portal again, and save it unchanged; one key per file."
    )


class SecretKeyGivenError(OperatorError):
    """A key file holds a secret key where the public one belongs."""

    message = "Key file {file} holds a secret key; expected the public key of {pinned}."
    next_step = (
        "Remove the file from this machine, treat that key as exposed, "
        "and put the public key in its place."
    )


class SecretKeyUnreadableError(OperatorError):
    """A file for our secret key does not hold one."""

    message = "Secret key file {number} of {total} holds no secret key that gpg can import."
    next_step = "Give the file exported with `gpg --export-secret-keys`, whole and unchanged."


class KeyNotPinnedError(OperatorError):
    """No key file holds a pinned key; another one may be there, or the pin is that of a subkey."""

    message = "The key files hold {found}, not the pinned key {fingerprint}."
    next_step = (
        "Add its file; or ask the partner by another channel whether the key changed, "
        "then change the pin."
    )


class KeyUnusableError(OperatorError):
    """A pinned key cannot be used, or its newest encryption subkey.

    It is expired, revoked, not valid yet, cannot encrypt, or its signatures hold nothing.
    """

    message = "{part} {why}."
    next_step = (
        "If this machine's clock is right, get a new key from the partner and pin it; "
        "for a subkey, the same key with a new one: the pin stays."
    )


class KeyAlgorithmError(OperatorError):
    """The key or subkey is too short, or of an algorithm that is not accepted."""

    message = "{part} is {algorithm}; accepted: {accepted}."
    next_step = (
        "Ask the partner for a key of RSA 3072 or Curve25519; "
        "NIST curves need `[portal] key_curves`."
    )


class SealBrokenError(OperatorError):
    """A trial message is not sealed as asked."""

    message = "gpg sealed a trial message wrongly ({reason}); expected exactly the keys {expected}."
    next_step = "Do not publish with this gpg; check its version and the key files."


class SealedUnreadableError(OperatorError):
    """Bytes are not one complete OpenPGP message that we can open unaltered.

    `reason` is a code, never content.
    """

    message = "The sealed message could not be opened ({reason})."
    next_step = (
        "Check that it was sealed to our key and arrived complete; "
        "otherwise ask its sender for it again."
    )
