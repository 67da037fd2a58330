"""Signed notes: a text, and signatures that stand behind it line by line (c2sp.org/signed-note).

Of the algorithms, Ed25519 alone. A key is known by a name and by four bytes of its digest; what it
is checked with is one line, NAME+HASH+KEY, that may be printed, mailed and pasted.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64Error
from hashlib import sha256
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

_ED25519 = b"\x01"
_DASH = "\N{EM DASH} "


class Verifier(NamedTuple):
    """The public half of a key: name, hash (8 hexadecimal digits) and 32 bytes."""

    name: str
    known_by: str
    key: bytes

    @classmethod
    def of(cls, line: str) -> "Verifier":
        """Return the key that a line NAME+HASH+KEY gives; ValueError where it gives none."""
        name, _, marks = line.strip().partition("+")
        known_by, _, encoded = marks.partition("+")
        key = _decoded(encoded)
        fits = key[:1] == _ED25519 and len(key) == 33 and _is_name(name)
        if not fits or known_by != _known_by(name, key[1:]):
            raise ValueError("not a key of a signed note: NAME+HASH+KEY")
        return cls(name, known_by, key[1:])

    def __str__(self) -> str:
        """Return the line that gives it."""
        return f"{self.name}+{self.known_by}+{_encoded(_ED25519 + self.key)}"

    def text_of(self, note: str) -> str | None:
        """Return the text of a note that this key has signed, None where it has not."""
        text, separator, signatures = note.rpartition("\n\n")
        if not separator:
            return None
        text += "\n"
        for line in signatures.splitlines():
            name, _, encoded = line.removeprefix(_DASH).partition(" ")
            if line.startswith(_DASH) and name == self.name and self._signed(text, encoded):
                return text
        return None

    def _signed(self, text: str, encoded: str) -> bool:
        try:
            signature = _decoded(encoded)
            known_by = signature[:4].hex()
            Ed25519PublicKey.from_public_bytes(self.key).verify(signature[4:], text.encode())
        except (ValueError, InvalidSignature):
            return False
        return known_by == self.known_by


class Signer(NamedTuple):
    """The private half of a key: its name and its 32 bytes."""

    name: str
    key: bytes

    @classmethod
    def new(cls, name: str) -> "Signer":
        """Return a new key; ValueError for a name that a note cannot hold."""
        if not _is_name(name):
            raise ValueError("the name of a key has no space and no plus sign")
        return cls(name, Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def of(cls, line: str) -> "Signer":
        """Return the key that a line PRIVATE+KEY+NAME+HASH+KEY gives; ValueError."""
        marks = line.strip().split("+", 4)
        key = _decoded(marks[-1])
        if marks[:2] != ["PRIVATE", "KEY"] or len(marks) != 5 or len(key) != 33:
            raise ValueError("not a private key of a signed note")
        signer = cls(marks[2], key[1:])
        if marks[3] != signer.verifier.known_by or key[:1] != _ED25519:
            raise ValueError("not a private key of a signed note")
        return signer

    def __str__(self) -> str:
        """Return the line that gives it: a secret."""
        key = _encoded(_ED25519 + self.key)
        return f"PRIVATE+KEY+{self.name}+{self.verifier.known_by}+{key}"

    def __repr__(self) -> str:
        """Return its name alone."""
        return f"Signer({self.name!r})"

    @property
    def verifier(self) -> Verifier:
        """The public half."""
        key = Ed25519PrivateKey.from_private_bytes(self.key).public_key().public_bytes_raw()
        return Verifier(self.name, _known_by(self.name, key), key)

    def signed(self, text: str) -> str:
        """Return the note: the text, which ends with a newline, and the signature behind it."""
        signature = Ed25519PrivateKey.from_private_bytes(self.key).sign(text.encode())
        known_by = bytes.fromhex(self.verifier.known_by)
        return f"{text}\n{_DASH}{self.name} {_encoded(known_by + signature)}\n"


def _is_name(name: str) -> bool:
    return bool(name) and "+" not in name and not any(char.isspace() for char in name)


def _known_by(name: str, key: bytes) -> str:
    return sha256(name.encode() + b"\n" + _ED25519 + key).digest()[:4].hex()


def _encoded(content: bytes) -> str:
    return b64encode(content).decode()


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except NotBase64Error as error:
        raise ValueError("not Base64") from error
