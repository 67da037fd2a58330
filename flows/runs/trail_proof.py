"""The keyed proof of an entry of the journal: that a worker made it, not who can write there.

The key is a secret of the workers (`CARDLINK_AUDIT_KEY` or `CARDLINK_AUDIT_KEY_FILE`), or one of
AWS KMS that never leaves it (`[audit] kms_key`). Old keys stay known for verifying.
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from flows.errors import OperatorError

SHORTEST = 32  # characters of a key


class ShortKeyError(OperatorError):
    """A key of the journal that could be guessed."""

    message = "A key of the journal has {length} characters; it needs at least 32."
    next_step = "Make one, for example with `openssl rand -hex 32`, and give it to all workers."


class Prover(Protocol):
    """What proves entries of the journal: with one key it makes proofs, with several it checks."""

    @property
    def key(self) -> str:
        """What the key that makes proofs is known by, "" where there is none."""

    def proof(self, content: bytes) -> str:
        """Return the proof of a content, "" without a key."""

    def is_proof(self, proof: str, content: bytes, key: str) -> bool | None:
        """Return whether it is the proof of a content by the key known by `key`.

        None where that key is not at hand.
        """


class NoKey:
    """Proves nothing: the process has no key of the journal."""

    key = ""

    def proof(self, content: bytes) -> str:
        """Return nothing."""
        del content
        return ""

    def is_proof(self, proof: str, content: bytes, key: str) -> bool | None:
        """Return None: it cannot be told."""
        del proof, content, key
        return None


NOT_PROVED = NoKey()


@dataclass(frozen=True)
class HmacProver:
    """Proofs by HMAC-SHA256 with the first of these secrets; the others are old ones."""

    secrets: tuple[bytes, ...]

    @classmethod
    def of(cls, text: str) -> "HmacProver | NoKey":
        """Return what the secrets in a text prove, one a line, the current one first."""
        secrets = _secrets(text.split())
        return cls(secrets) if secrets else NOT_PROVED

    @property
    def key(self) -> str:
        """What the current secret is known by; the secret does not follow from it."""
        return _known_by(self.secrets[0])

    def proof(self, content: bytes) -> str:
        """Return the HMAC of a content, 64 hexadecimal digits."""
        return _hmac(self.secrets[0], content)

    def is_proof(self, proof: str, content: bytes, key: str) -> bool | None:
        """Return whether it is the proof of a content; None where no secret is known by `key`."""
        for secret in self.secrets:
            if _known_by(secret) == key:
                return hmac.compare_digest(_hmac(secret, content), proof)
        return None


def _secrets(texts: Iterable[str]) -> tuple[bytes, ...]:
    secrets = tuple(text.encode() for text in texts)
    for secret in secrets:
        if len(secret) < SHORTEST:
            raise ShortKeyError(length=len(secret))
    return secrets


def _known_by(secret: bytes) -> str:
    return _hmac(secret, b"cardlink journal")[:16]


def _hmac(secret: bytes, content: bytes) -> str:
    return hmac.digest(secret, content, "sha256").hex()
