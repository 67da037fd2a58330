"""Open messages that were sealed to one of our secret keys, with gpg."""

import re
from collections.abc import Sequence
from contextlib import ExitStack
from io import BytesIO

from flows.adapters.gpg import PATIENCE, Keyring
from flows.runs import sealing
from flows.runs.openpgp import blocks


class GpgOpener(ExitStack):
    """Opens messages sealed to any of our secret keys.

    Implements `Opener`, and is closed by its context.
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
        self._passphrase = None
        self._no_questions = ["--pinentry-mode", "error"]
        if passphrase:
            self._passphrase = passphrase.encode().decode("latin-1")
            self._no_questions = []
        self._ring = self.enter_context(Keyring(agent=True, patience=patience, gpg=gpg))
        try:
            for number, key in enumerate(secret_keys, start=1):
                result = self._ring.import_key(key, self._passphrase)
                if result is None or not result.fingerprints or not result.sec_read:
                    raise sealing.SecretKeyUnreadableError(number=number, total=len(secret_keys))
        except BaseException:
            self.close()
            raise

    def open(self, message: bytes, limit: int) -> bytes:
        """Return the content of one message, at most `limit` bytes.

        Raises SealedUnreadableError, and GpgHungError where gpg failed by itself.
        """
        binary = blocks(message)  # gpg does not recognise armor after a byte order mark
        if len(binary) != 1:
            raise sealing.SealedUnreadableError(reason="message.blocks.many")
        options = ["--max-output", str(limit), *self._no_questions]
        reason = stderr = ""
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
            stderr = "" if result is None else result.stderr
            reason = _why_unread(stderr)
            if reason in _CERTAIN:
                break
        if stderr and _OWN_FAILURE.search(stderr):
            raise sealing.GpgHungError(reason="it reported that a message could not be opened")
        raise sealing.SealedUnreadableError(reason=reason)


# no memory, or no word about the message at all
_OWN_FAILURE = re.compile(r"out of (?:core|memory)|\A(?!.*\[GNUPG:\])", re.DOTALL)
_CERTAIN = ("message.content.too_large", sealing.OTHER_KEYS)  # gpg would say the same again


def _why_unread(stderr: str) -> str:
    """Return the cause by gpg's status words.

    Its text is never shown: it may contain the sender's file names.
    """
    if "exceeded --max-output limit" in stderr:
        return "message.content.too_large"
    if "[GNUPG:] ERROR pkdecrypt_failed" in stderr:
        return "key.passphrase.wrong"
    if "[GNUPG:] NO_SECKEY" in stderr and "[GNUPG:] DECRYPTION_KEY" not in stderr:
        return sealing.OTHER_KEYS
    return "message.content.unreadable"
