"""The pinned public keys: one per file, each flaw refused by its own error.

The subkey is chosen here as gpg would, and gpg is then told to use it: what is judged is what is
used.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from typing import Any, Final, NamedTuple

import gnupg

from flows.adapters.gpg import Keyring
from flows.runs import sealing
from flows.runs.openpgp import blocks, keys_in

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
