"""What can be wrong with a key, a seal or gpg itself: each error names the fingerprint, the cause and the next step."""

from __future__ import annotations

from flows.core.errors import OperatorError, TryAgainError


class GpgMissingError(OperatorError):
    """gpg is not installed or does not start."""

    says = "gpg could not be run ({0})."
    then = "Install GnuPG 2.2 or later (Debian: apt-get install gnupg, macOS: brew install gnupg) and run again."

    def __init__(self, why: str) -> None:
        super().__init__(why)


class GpgHungError(TryAgainError):
    """gpg did not end in time, or was killed from outside."""

    says = "gpg did not finish within {0:g} s, or was killed from outside."
    then = "Nothing was committed; run the same command again. Look for a full disk or too little memory if it stays."

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)


class KeyUnreadableError(OperatorError):
    """A key file holds no OpenPGP key gpg can take up."""

    says = "Key file {0} of {1} holds no readable OpenPGP public key ({2})."
    then = "Download the public key from the portal again, as text or binary, and save it unchanged."

    def __init__(self, number: int, of: int, why: str) -> None:
        super().__init__(number, of, why)


class SecretKeyGivenError(OperatorError):
    """A key file holds a secret key where the public one belongs."""

    says = "Key file {0} of {1} holds a secret key; expected the public key of {2}."
    then = "Take the file away from this machine, treat that key as exposed, and put the public key in its place."

    def __init__(self, number: int, of: int, pinned: str) -> None:
        super().__init__(number, of, pinned)


class SecretKeyUnreadableError(OperatorError):
    """A file that should hold our secret key does not."""

    says = "Secret key file {0} of {1} holds no secret key gpg can take up."
    then = "Give the file exported with `gpg --export-secret-keys`, whole and unchanged."

    def __init__(self, number: int, of: int) -> None:
        super().__init__(number, of)


class ManyKeysError(OperatorError):
    """A key file holds more than one key."""

    says = "Key file {0} of {1} holds {2} keys; one file holds one key."
    then = "Split the file, so that nobody has to guess which key is meant."

    def __init__(self, number: int, of: int, found: int) -> None:
        super().__init__(number, of, found)


class KeyUnknownError(OperatorError):
    """A pinned fingerprint has no key."""

    says = "No key file holds the pinned key {0}."
    then = "Add the file of that key, or take the fingerprint out of `fingerprints`."

    def __init__(self, fingerprint: str) -> None:
        super().__init__(fingerprint)


class KeyNotPinnedError(OperatorError):
    """The key files hold another key than the pinned one."""

    says = "The key files hold {1}, not the pinned key {0}."
    then = "Ask the partner by another channel whether the key changed; only then change `fingerprints`."

    def __init__(self, fingerprint: str, found: str) -> None:
        super().__init__(fingerprint, found)


class KeyExpiredError(OperatorError):
    """A pinned key, or its last encryption subkey, has expired."""

    says = "Key {0} expired on {1}."
    then = "Make a new key in the portal, put its public key in place and pin its fingerprint."

    def __init__(self, fingerprint: str, day: str) -> None:
        super().__init__(fingerprint, day)


class KeyRevokedError(OperatorError):
    """A pinned key, or its last encryption subkey, was revoked by its owner."""

    says = "Key {0} was revoked by its owner."
    then = "Ask the partner why; put the new public key in place and pin its fingerprint."

    def __init__(self, fingerprint: str) -> None:
        super().__init__(fingerprint)


class KeyCannotEncryptError(OperatorError):
    """A pinned key can sign but not encrypt."""

    says = "Key {0} has no part that may encrypt."
    then = "Ask the partner for a key made for encryption."

    def __init__(self, fingerprint: str) -> None:
        super().__init__(fingerprint)


class SealBrokenError(OperatorError):
    """A message sealed as a trial is not what was asked for."""

    says = "gpg sealed a trial message wrongly ({0}); wanted exactly the keys {1}."
    then = "Do not publish with this gpg; check its version and the key files."

    def __init__(self, why: str, wanted: str) -> None:
        super().__init__(why, wanted)


class SealedUnreadableError(OperatorError):
    """A sealed message could not be opened whole and unaltered."""

    says = "The sealed message could not be opened ({0})."
    then = "Check that it was sealed to our key and arrived whole; ask its sender for it again otherwise."

    def __init__(self, why: str) -> None:
        super().__init__(why)


class MalformedMessageError(OperatorError):
    """Bytes that should be one OpenPGP message are not; `{0}` is a code, never content."""

    says = "Not a whole OpenPGP message ({0})."
    then = "The file was cut, changed or is of another kind: have it made again."

    def __init__(self, why: str) -> None:
        super().__init__(why)
