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

    message = "There is no {key}."
    next_step = "Check the name, and the store and prefix in the configuration."


class KeyRefusedError(OperatorError):
    """A key that could leave the store's root, or that not every store can hold."""

    message = "{key} is not a valid key: {reason}."
    next_step = "Rename the object; keys are relative, with no empty, hidden or dotted parts and no control characters."


class StoreMissingError(OperatorError):
    """No such bucket or root directory."""

    message = "The store {place} does not exist ({code})."
    next_step = "Create it, or correct the root in the configuration; cardlink never creates a bucket or a root."


class StoreDeniedError(OperatorError):
    """The policy, the owner or a read-only mount forbids it."""

    message = "Access to {place} is denied ({code})."
    next_step = (
        "Compare the policy of the credentials (deploy/), or the directory's owner, mode and mount; then run again."
    )


class StoreCredentialsError(OperatorError):
    """Credentials are missing, wrong or expired."""

    message = "The store rejected the credentials for {place} ({code})."
    next_step = "Renew them in the environment or the profile, then run the same command again."


class StoreClockError(OperatorError):
    """The machine's clock is too far off to sign requests."""

    message = "The store refuses {place} because this machine's clock is off ({code})."
    next_step = "Set the clock (NTP), then run the same command again."


class StoreFullError(OperatorError):
    """Disk or quota is full."""

    message = "There is no room left for {place} ({code})."
    next_step = "Make room, then run the same command again; the partial work is not counted."


class StoreRefusedError(OperatorError):
    """The store says no for a reason not known here."""

    message = "The store refused {place} ({code})."
    next_step = (
        "Look up the code in the store's documentation; endpoint, region and bucket settings are the usual cause."
    )


class StoreUnsafeError(OperatorError):
    """The store does not keep a promise the commit rests on."""

    message = "The store at {place} cannot be trusted: {problem}."
    next_step = (
        "Nothing may be published there. Use a store with atomic conditional writes; `cardlink check` probes it."
    )


class ObjectChangedError(TryAgainError):
    """The object is not, or no longer, the one that was meant."""

    message = "{key} changed while it was in use."
    next_step = "Nothing was committed. Wait until its writer is done, then run the same command again."


class ObjectDamagedError(TryAgainError):
    """The bytes that arrived are not the bytes that were stored."""

    message = "{key} arrived damaged: its checksum does not match."
    next_step = "Nothing read from it was used. Run the same command again; if it persists, restore the object."


class StoreBusyError(TryAgainError):
    """Throttled, unreachable or broken off, and still so after all retries."""

    message = "The store did not respond for {place} ({code}), even after retries."
    next_step = "Run the same command again when the store or the network has recovered."
