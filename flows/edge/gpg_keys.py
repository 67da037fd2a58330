"""Takes public key files into a ring and judges them: pinned by full fingerprint, alive, able to encrypt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from flows.core.sealing.key_errors import (
    KeyCannotEncryptError,
    KeyExpiredError,
    KeyNotPinnedError,
    KeyRevokedError,
    KeyUnknownError,
    KeyUnreadableError,
    MalformedMessageError,
    ManyKeysError,
    SecretKeyGivenError,
)
from flows.core.sealing.openpgp import KeyCount, blocks, count_keys
from flows.edge.gpg import Keyring


class Part(NamedTuple):
    """A primary key or a subkey as gpg lists it: `state` is r, e or another letter, `created` in epoch seconds."""

    key_id: str
    capabilities: str
    state: str
    created: int
    expires: date | None

    def alive(self, today: date) -> bool:
        """Tell whether the key works all of `today`: on the day it expires a night may outlive it."""
        return self.state != "e" and (self.expires is None or today < self.expires)


class Recipient(NamedTuple):
    """A pinned key that may be sealed to: its fingerprint, the key id messages will name, its last day."""

    fingerprint: str
    key_id: str
    expires: date | None


def take_up(ring: Keyring, keys: Sequence[bytes], pinned: Sequence[str], today: date) -> tuple[Recipient, ...]:
    """Import one public key per file and return the pinned ones in the order of their fingerprints.

    Raises the error of `key_errors` that names the key and its flaw; nothing unsound is left to gpg to notice.
    """
    wanted = ", ".join(pinned)
    public = [_one_public_key(key, number, len(keys), wanted) for number, key in enumerate(keys, start=1)]
    for number, key in enumerate(public, start=1):
        _import(ring, key, number, len(keys))
    found = {entry["fingerprint"]: entry for entry in ring.ask(lambda gpg: gpg.list_keys()) or ()}
    return tuple(_recipient(_pinned(found, fingerprint, pinned), fingerprint, today) for fingerprint in pinned)


def _one_public_key(key: bytes, number: int, of: int, pinned: str) -> bytes:
    """Return the key in binary, so that gpg sees what was counted here and no more."""
    found, why = [], "key.packet.missing"
    try:
        found = blocks(key)
        holds = count_keys(found)
    except MalformedMessageError as error:
        holds, why = KeyCount(0, 0), str(error.fields["reason"])
    if holds.secret:
        raise SecretKeyGivenError(number=number, total=of, pinned=pinned)
    if not holds.public:
        raise KeyUnreadableError(number=number, total=of, reason=why)
    if holds.public > 1:
        raise ManyKeysError(number=number, total=of, count=holds.public)
    return b"".join(found)


def _import(ring: Keyring, key: bytes, number: int, of: int) -> None:
    result = ring.ask(lambda gpg: gpg.import_keys(key))
    if result is None or len(set(result.fingerprints)) != 1:
        raise KeyUnreadableError(number=number, total=of, reason="key.import.refused")


def _pinned(found: Mapping[str, Any], fingerprint: str, pinned: Sequence[str]) -> Any:
    if fingerprint in found:
        return found[fingerprint]
    others = sorted(set(found) - set(pinned))
    if others:
        raise KeyNotPinnedError(fingerprint=fingerprint, found=", ".join(others))
    raise KeyUnknownError(fingerprint=fingerprint)


def _recipient(listed: Any, fingerprint: str, today: date) -> Recipient:
    """Choose the subkey gpg will choose (the newest that is sound), or say why there is none."""
    key = _part(listed, listed["cap"])
    subkeys = [_part(info, info["capability"]) for info in listed.get("subkey_info", {}).values()]
    able = [part for part in (key, *subkeys) if "e" in part.capabilities]  # lower case: the part's own ability
    if key.state == "r":
        raise KeyRevokedError(fingerprint=fingerprint)
    if not key.alive(today):
        raise KeyExpiredError(fingerprint=fingerprint, date=str(key.expires))
    if not able:
        raise KeyCannotEncryptError(fingerprint=fingerprint)
    chosen = _newest_alive(able, fingerprint, today)
    days = [part.expires for part in (key, chosen) if part.expires is not None]
    return Recipient(fingerprint, chosen.key_id, min(days, default=None))


def _newest_alive(able: Sequence[Part], fingerprint: str, today: date) -> Part:
    standing = [part for part in able if part.state != "r"]
    if not standing:
        raise KeyRevokedError(fingerprint=fingerprint)
    alive = [part for part in standing if part.alive(today)]
    if not alive:
        raise KeyExpiredError(fingerprint=fingerprint, date=max(str(part.expires) for part in standing))
    return max(alive, key=lambda part: part.created)


def _part(fields: Any, capabilities: str) -> Part:
    expires = fields["expires"]
    return Part(
        key_id=fields["keyid"],
        capabilities=capabilities,
        state=fields["trust"],
        created=int(fields["date"]),
        expires=datetime.fromtimestamp(int(expires), UTC).date() if expires else None,
    )
