"""Seal chunks to pinned keys with gpg; plaintext is never a file on disk.

gpg is told which part of each key to use (`gpg_keys.py`), and a group of chunks is one process.

We build the compressed packet inside a message and gpg only seals it (`--no-literal`), because
gpg's zlib took two thirds of the sealing time. gpg's "ok" is not enough: each message is walked,
and must be for exactly the pinned part of the pinned key. A group that fails is sealed again one by
one, so that only the culprit is affected.
"""

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import date, timedelta
from io import BytesIO
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from flows.adapters.gpg import PATIENCE, Keyring
from flows.adapters.gpg_keys import import_public_keys
from flows.errors import BugError, LimitError
from flows.runs import sealing
from flows.runs.openpgp import Compression, content, inspect
from flows.runs.sealing import Plain, Sealed, Warned

WARN_DAYS: Final = 30
GROUP: Final = 64  # chunks per gpg process: two open files each, so far below any limit
_SAFE_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
# the troubles of a chunk that gpg did not seal at all
_KILLED: Final = "seal.process.killed"
_REFUSED: Final = "seal.process.refused"
_NOT_SEALED: Final = {
    _KILLED: "a trial message took too long, or the process was killed",
    _REFUSED: "it reported that a trial message could not be sealed",
}
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
        self.ring = self.enter_context(Keyring(patience=patience, gpg=gpg))
        try:
            pins = list(dict.fromkeys(pin.upper() for pin in fingerprints))
            with self.ring.briefly():
                self._recipients = import_public_keys(self.ring, keys, pins, curves, today)
        except BaseException:
            self.close()
            raise
        self.fingerprints = tuple(key.fingerprint for key, _ in self._recipients)
        parts = dict.fromkeys(chain.from_iterable(self._recipients))
        self.warnings = tuple(
            Warned(
                f"{part.name} expires on {part.expires}, in {(part.expires - today).days} days.",
                part.fingerprint,
                (part.expires - today).days,
            )
            for part in parts
            if part.expires is not None and part.expires - today <= timedelta(days=WARN_DAYS)
        )

    def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
        """Seal chunks in order, one gpg process a group; thread-safe.

        A chunk that fails carries its trouble.
        """
        groups = (chunks[start : start + GROUP] for start in range(0, len(chunks), GROUP))
        return list(chain.from_iterable(map(self._seal_group, groups)))

    def _seal_group(self, chunks: Sequence[Plain]) -> list[Sealed]:
        """Seal a group with one process.

        If that fails, each chunk has its own, so that only a bad one is lost.
        """
        safe_names = {chunk.name for chunk in chunks if _SAFE_NAME.match(chunk.name)}
        if len(safe_names) != len(chunks):
            raise BugError(place="sealing", kind="chunk names")
        packed = [content(chunk, self._compression) for chunk in chunks]
        try:
            messages = self._encrypt_group(packed)
        except sealing.GpgHungError:
            return [Sealed(chunk.name, b"", _KILLED) for chunk in chunks]
        if messages is None:
            return [self._seal_one(chunk) for chunk in packed]
        return [
            self._checked(chunk.name, message)
            for chunk, message in zip(chunks, messages, strict=True)
        ]

    def _encrypt_group(self, chunks: Sequence[Plain]) -> list[bytes] | None:
        """Return one message per chunk.

        None if there are no memory files (macOS) or gpg reported a failure.
        """
        if not hasattr(os, "memfd_create"):
            return None
        try:
            with ExitStack() as files:
                folder = Path(files.enter_context(TemporaryDirectory(dir=self.ring.home)))
                paths: list[str] = []
                for chunk in chunks:  # each a named file that exists in memory only
                    file = files.enter_context(os.fdopen(os.memfd_create("chunk"), "wb"))
                    file.write(chunk.data)
                    file.flush()
                    (folder / chunk.name).symlink_to(f"/proc/{os.getpid()}/fd/{file.fileno()}")
                    paths.append(str(folder / chunk.name))
                listed = "".join(f"{path}\n" for path in paths)
                result = self._encrypt(listed.encode(), "--multifile")
                if not _clean(result, len(paths)):
                    return None
                suffix = ".asc" if self._armor else ".gpg"
                return [Path(path + suffix).read_bytes() for path in paths]
        except (OSError, LimitError):
            # no room for files or ciphertext: sealing one by one uses pipes instead
            return None

    def _seal_one(self, chunk: Plain) -> Sealed:
        try:
            result = self._encrypt(chunk.data)
        except sealing.GpgHungError:
            return Sealed(chunk.name, b"", _KILLED)
        if not _clean(result, 1):
            return Sealed(chunk.name, b"", _REFUSED)
        return self._checked(chunk.name, result.data)

    def _encrypt(self, data: bytes, *arguments: str) -> Any:
        return self.ring.ask(
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
        """Accept a message only if its packets name exactly our recipients.

        gpg's own `ok` is not enough.
        """
        pinned = sorted(chosen.key_id for _, chosen in self._recipients)
        try:
            named = sorted(inspect(message))
        except sealing.SealedUnreadableError as error:
            return Sealed(name, b"", f"seal.{error.fields['reason']}")
        if named != pinned:
            return Sealed(name, b"", "seal.recipients.different")
        return Sealed(name, message)


def trial_seal(sealer: GpgSealer) -> None:
    """Seal a dummy chunk and check the message.

    Raises GpgHungError where gpg sealed nothing, for want of time, memory or room, and
    SealBrokenError if the message is not sealed to exactly our recipients.
    """
    with sealer.ring.briefly():
        (sealed,) = sealer.seal([Plain("trial.csv", b"trial\n")])
    if sealed.trouble in _NOT_SEALED:
        raise sealing.GpgHungError(reason=_NOT_SEALED[sealed.trouble])
    if sealed.trouble:
        raise sealing.SealBrokenError(
            reason=sealed.trouble, expected=", ".join(sealer.fingerprints)
        )


def _clean(result: Any, count: int) -> bool:
    """Return whether gpg sealed `count` inputs.

    `ok` is also true with return code 2 and on a full disk.
    """
    if result is None or not result.ok or result.returncode != 0:
        return False
    return bool(result.stderr.count("[GNUPG:] END_ENCRYPTION") == count)
