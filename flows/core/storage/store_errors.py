"""What can go wrong with a store, each with what to do; edges raise these and nothing else.

OperatorError
├── ObjectMissingError       nothing lies under the key
├── KeyRefusedError          a key that is no key of ours (`..`, a leading slash, a control character)
├── StoreMissingError        no such bucket or root directory
├── StoreDeniedError         the policy, the owner or a read-only mount forbids it
├── StoreCredentialsError    credentials are missing, wrong or expired
├── StoreClockError          this machine's clock is too far off to sign requests
├── StoreFullError           disk or quota is full
├── StoreRefusedError        the store says no for a reason not known here
└── StoreUnsafeError         the store does not keep a promise the commit rests on
TryAgainError
├── ObjectChangedError       the object is not, or no longer, the one that was meant
├── ObjectDamagedError       the bytes that arrived are not the bytes that were stored
└── StoreBusyError           throttled, unreachable or broken off, and still so after all retries
"""

from __future__ import annotations

from flows.core.errors import OperatorError, TryAgainError


class ObjectMissingError(OperatorError):
    """Nothing lies under the key."""

    says = "There is no {0}."
    then = "Check the name, and the store and prefix in the configuration."

    def __init__(self, key: str) -> None:
        super().__init__(key)


class KeyRefusedError(OperatorError):
    """A key that could leave the store's root, or that not every store can hold."""

    says = "{0} is not a key this store takes: {1}."
    then = "Rename the object; keys are relative, with no empty, hidden or dotted parts and no control characters."

    def __init__(self, key: str, why: str) -> None:
        super().__init__(key, why)


class StoreMissingError(OperatorError):
    """No such bucket or root directory."""

    says = "The store {0} does not exist ({1})."
    then = "Create it, or correct the root in the configuration; cardlink never creates a bucket or a root."

    def __init__(self, place: str, code: str) -> None:
        super().__init__(place, code)


class StoreDeniedError(OperatorError):
    """The policy, the owner or a read-only mount forbids it."""

    says = "Access to {0} is denied ({1})."
    then = "Compare the policy of the credentials (deploy/), or the directory's owner, mode and mount; then run again."

    def __init__(self, place: str, code: str) -> None:
        super().__init__(place, code)


class StoreCredentialsError(OperatorError):
    """Credentials are missing, wrong or expired."""

    says = "The store does not accept the credentials for {0} ({1})."
    then = "Renew them in the environment or the profile, then run the same command again."

    def __init__(self, place: str, code: str) -> None:
        super().__init__(place, code)


class StoreClockError(OperatorError):
    """The machine's clock is too far off to sign requests."""

    says = "The store refuses {0} because this machine's clock is off ({1})."
    then = "Set the clock (NTP), then run the same command again."

    def __init__(self, place: str, code: str) -> None:
        super().__init__(place, code)


class StoreFullError(OperatorError):
    """Disk or quota is full."""

    says = "There is no room left for {0} ({1})."
    then = "Make room, then run the same command again; what was begun is not counted."

    def __init__(self, place: str, code: str) -> None:
        super().__init__(place, code)


class StoreRefusedError(OperatorError):
    """The store says no for a reason not known here."""

    says = "The store refused {0} ({1})."
    then = "Look the code up in the store's documentation; endpoint, region and bucket settings are the usual cause."

    def __init__(self, place: str, code: str) -> None:
        super().__init__(place, code)


class StoreUnsafeError(OperatorError):
    """The store does not keep a promise the commit rests on."""

    says = "The store at {0} cannot be trusted: {1}."
    then = "Nothing may be published there. Use a store with atomic conditional writes; `cardlink check` tells."

    def __init__(self, place: str, what: str) -> None:
        super().__init__(place, what)


class ObjectChangedError(TryAgainError):
    """The object is not, or no longer, the one that was meant."""

    says = "{0} changed while it was in use."
    then = "Wait until whoever writes it is done, then run the same command again."

    def __init__(self, key: str) -> None:
        super().__init__(key)


class ObjectDamagedError(TryAgainError):
    """The bytes that arrived are not the bytes that were stored."""

    says = "{0} arrived damaged: its checksum does not fit."
    then = "Nothing read from it counts. Run the same command again; if it stays so, restore the object."

    def __init__(self, key: str) -> None:
        super().__init__(key)


class StoreBusyError(TryAgainError):
    """Throttled, unreachable or broken off, and still so after all retries."""

    says = "The store did not answer for {0} ({1}), also when asked repeatedly."
    then = "Run the same command again when the store or the network is well."

    def __init__(self, place: str, code: str) -> None:
        super().__init__(place, code)
