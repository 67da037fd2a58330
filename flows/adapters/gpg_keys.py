"""The pinned public keys: one per file, each flaw refused by its own error.

The subkey is chosen here as gpg would, and gpg is then told to use it: what is judged is what is
used.
"""

import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import chain
from typing import Any, Final, NamedTuple

from flows.adapters.gpg import Keyring
from flows.runs import sealing
from flows.runs.openpgp import Signature, blocks, keys_in, signatures_in

LEAST: Final = 2048  # bits of RSA
FUTURE: Final = "was made on {}, which is in the future for this machine"
# RFC 4880 9.4: MD5, SHA-1 and RIPEMD-160, of which somebody can make two keys with one signature
_BROKEN: Final = {1, 2, 3}
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9@._-]")
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
    """A primary key or a subkey as gpg lists it.

    `state` is r, e or another letter; `created` is in epoch seconds.
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
        """Return why the key cannot be used for all of `today`, "" where it can.

        On its last day it could expire.
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
    """Import one public key per file and return the pinned ones, in the order of `pinned`.

    Each flaw has its error of `flows.runs.sealing`; GpgHungError where it is gpg's own.
    """
    now = time.time()  # not `today`: gpg judges what was made in the future by the machine's clock
    for number, key in enumerate(keys, start=1):
        file = f"{number} of {len(keys)}"
        public = _one_public_key(key, file, ", ".join(pinned), now)
        result = ring.import_key(public)
        if result is None or len(set(result.fingerprints)) != 1:
            raise sealing.KeyUnreadableError(file=file, reason="key.import.refused")
    entries = ring.ask(lambda gpg: gpg.list_keys()) or ()
    if not entries:
        raise sealing.GpgHungError(reason="it reported that no key could be listed")
    imported = {entry["fingerprint"]: entry for entry in entries}
    recipients = tuple(
        _recipient(_pinned(imported, fingerprint, pinned), fingerprint, today, now)
        for fingerprint in pinned
    )
    for part in chain.from_iterable(recipients):
        _check_algorithm(part, curves)
    return recipients


def _check_algorithm(part: Part, curves: Sequence[str]) -> None:
    """Raise KeyAlgorithmError unless a key is RSA and long enough, or of an accepted curve."""
    family, _, bits = part.algorithm.partition(" ")
    if part.algorithm in curves or (family == "RSA" and int(bits) >= LEAST):
        return
    accepted = ", ".join((f"RSA of {LEAST} bits or more", *curves))
    raise sealing.KeyAlgorithmError(part=part.name, algorithm=part.algorithm, accepted=accepted)


def _one_public_key(key: bytes, file: str, pinned: str, now: float) -> bytes:
    """Return the key in binary, so that gpg sees exactly what was counted here."""
    binary: list[bytes] = []
    moments: list[int] = []  # when each public key was made
    signatures: list[Signature] = []
    secret_keys = 0
    reason = ""
    try:
        binary = blocks(key)
        moments, secret_keys = keys_in(binary)
        signatures = signatures_in(binary)
    except sealing.SealedUnreadableError as error:
        reason = str(error.fields["reason"])
    if secret_keys:
        raise sealing.SecretKeyGivenError(file=file, pinned=pinned)
    if len(moments) != 1:
        raise sealing.KeyUnreadableError(file=file, reason=reason or f"{len(moments)} keys")
    if moments[0] > now:  # gpg would not import it
        future = FUTURE.format(_day(moments[0]))
        raise sealing.KeyUnusableError(part=f"The key in file {file}", why=future)
    flaw = _flaw_of(signatures)
    if flaw:
        raise sealing.KeyUnusableError(part=f"The key in file {file}", why=flaw)
    return b"".join(binary)


def _flaw_of(signatures: Sequence[Signature]) -> str:
    """Return why the signatures of a key hold nothing, "" where they do; gpg takes the first flaw
    in silence, and says of the second that the key has no user.
    """
    notations = set[str]().union(*(signature.notations for signature in signatures))
    if notations:
        names = ", ".join(sorted(_FOREIGN.sub("?", name)[:60] for name in notations))
        return f"has a critical notation that must be understood and is not: {names}"
    hashes = {signature.hash for signature in signatures}
    if hashes and hashes <= _BROKEN:
        return "has no signature by a sound algorithm: all of them are by SHA-1, or older"
    return ""


def _pinned(imported: Mapping[str, Any], fingerprint: str, pinned: Sequence[str]) -> Any:
    """Return the imported key of that fingerprint; KeyNotPinnedError."""
    if fingerprint in imported:
        return imported[fingerprint]
    for key, listed in imported.items():
        if any(fingerprint in subkey for subkey in listed["subkeys"]):
            raise sealing.KeyNotPinnedError(
                fingerprint=fingerprint, found=f"key {key}, whose subkey that is"
            )
    others = ", ".join(sorted(set(imported) - set(pinned)))
    raise sealing.KeyNotPinnedError(fingerprint=fingerprint, found=others or "other pinned keys")


def _recipient(listed: Any, fingerprint: str, today: date, now: float) -> Recipient:
    """Return the recipient with the part gpg would choose.

    That is the newest valid subkey, else the key itself.
    """
    key = _part(listed, listed["cap"], f"Primary key {fingerprint}")
    flaw = key.flaw(today, now)
    if flaw:
        raise sealing.KeyUnusableError(part=key.name, why=flaw)
    subkeys = [
        _part(info, info["capability"], f"Encryption subkey {info['keyid']} of key {fingerprint}")
        for info in listed.get("subkey_info", {}).values()
        if "e" in info["capability"]
    ]
    valid = [part for part in subkeys if not part.flaw(today, now)]
    if valid:
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
    expires = fields["expires"]
    return Part(
        name=name,
        fingerprint=fields["fingerprint"],
        key_id=fields["keyid"],
        algorithm=_algorithm(fields),
        capabilities=capabilities,
        state=fields["trust"],
        created=int(fields["date"]),
        expires=_day(int(expires)) if expires else None,
    )


def _algorithm(fields: Any) -> str:
    """Return the curve of a key, or its family and length."""
    curve: str = fields["curve"]
    if curve:
        return _CURVES.get(curve, curve)
    family = _FAMILIES.get(fields["algo"], f"algorithm-{fields['algo']}")
    return f"{family} {fields['length']}"


def _day(moment: int) -> date:
    return datetime.fromtimestamp(moment, UTC).date()
