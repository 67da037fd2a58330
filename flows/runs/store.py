"""The Protocols of a store, its errors, and small objects read and written whole.

Adapters implement the Protocols and raise these errors and no others; tests hold them all to one
contract.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypeVar, runtime_checkable

from flows.errors import CardlinkError, LimitError, OperatorError, TryAgainError, fields_of
from flows.runs.identity import digest
from flows.steps import ISSUER, Sentence, Step

S = TypeVar("S")
T = TypeVar("T")


class Entry(NamedTuple):
    """One stored object as listed.

    `version` pins its bytes (VersionId or ETag, inode and times). Of an extract that has a second
    file, `files` has both, and no store opens it by this entry.
    """

    key: str
    size: int
    modified: datetime
    version: str
    files: tuple["Entry", ...] = ()


class Source(Protocol):
    """A pinned stream over one object.

    It gives the same bytes from the first read to the last, or an error.
    """

    @property
    def entry(self) -> Entry:
        """The object this stream is pinned to."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most `size` more bytes (all that is left for -1), b'' at the end."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


class Store(Protocol):
    """Immutable objects under keys (`issuer/runs/...`, no leading slash).

    S3 or a directory alike.
    """

    def create(self, key: str, data: bytes) -> bool:
        """Write `key` unless it exists; False where it does (read it and compare)."""

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        """Write a derived object (reports only) whole and atomically, over any earlier one."""

    def open(self, key: str, pin: Entry | None = None) -> Source:
        """Open `key`, at the version of `pin` if given.

        Raises ObjectMissingError and ObjectChangedError.
        """

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        """List objects under `prefix` in key order.

        `shallow`: one level; folders end in '/' with size 0.
        """


@runtime_checkable
class Cleaner(Protocol):
    """The right to delete, which only retention and cleanup use."""

    def delete(self, key: str) -> None:
        """Remove `key`; nothing happens where it does not exist."""

    def leftovers(self, prefix: str, before: datetime) -> list[Entry]:
        """List what writers that died before `before` left under `prefix`.

        Partial files, incomplete uploads.
        """

    def discard(self, leftover: Entry) -> None:
        """Remove a leftover, which never was an object."""

    def hides(self) -> bool | None:
        """Return whether the store is versioned, so that `delete` only hides.

        None where it does not say.
        """


@runtime_checkable
class Presigner(Protocol):
    """A store that makes links which a browser opens without credentials."""

    def presigned(self, key: str, hours: int) -> str:
        """Return a link to an HTML page that works for some hours, "" for none."""


@runtime_checkable
class Screened(Protocol):
    """A store whose dropped files may have to be scanned for malware before anybody reads them."""

    def ensure_clean(self, key: str) -> None:
        """Raise an error for a dropped file that was not found clean.

        VerdictAwaitedError or VerdictRefusedError.
        """


@runtime_checkable
class Lockable(Protocol):
    """A store that may have to lock what lasts, so that nobody can delete it."""

    def ensure_lockable(self) -> None:
        """Raise StoreRefusedError where it cannot."""


class ObjectMissingError(OperatorError):
    """There is no object at the key."""

    message = "There is no {key}."
    next_step = (
        "If it was listed, it has been removed since: run {same_command} again. Otherwise check "
        "the name, and the store and prefix in the configuration."
    )


class KeyRefusedError(OperatorError):
    """A key that could leave the store's root, or that some stores cannot hold."""

    message = "{key} is not a valid key: {reason}."
    next_step = (
        "Rename the object; keys are relative, "
        "with no empty, hidden or dotted parts and no control characters."
    )


class StoreMissingError(OperatorError):
    """No such bucket or root directory."""

    message = "The store {place} does not exist ({code})."
    next_step = (
        "Create it, or correct the root in the configuration; "
        "cardlink never creates a bucket or a root."
    )


class StoreDeniedError(OperatorError):
    """A policy, file permissions or a read-only mount forbid the access."""

    message = "Access to {place} is denied ({code})."
    next_step = (
        "Compare the credentials' policy (deploy/), or the directory's owner, mode and mount; "
        "then run again."
    )


class StoreCredentialsError(OperatorError):
    """Credentials are missing, wrong or expired."""

    message = "The store rejected the credentials for {place} ({code})."
    next_step = "Renew them in the environment or the profile, then run {same_command} again."


class StoreClockError(OperatorError):
    """The machine's clock is too far off to sign requests."""

    message = "The store refuses {place} because this machine's clock is off ({code})."
    next_step = "Set the clock (NTP), then run {same_command} again."


class StoreFullError(OperatorError):
    """Disk or quota is full."""

    message = "There is no room left for {place} ({code})."
    next_step = Sentence(
        "Make room there ({purge} shows what may go), then run {same_command} again.",
        purge=Step("purge", dry_run=True),
    )


class StoreRefusedError(OperatorError):
    """The store refused for a reason cardlink does not know."""

    message = "The store refused {place} ({code})."
    next_step = (
        "Look the code up in the store's manual; endpoint, region and bucket settings are the "
        "usual cause. A store that rejects the checksums of what is written takes it with "
        "AWS_REQUEST_CHECKSUM_CALCULATION=when_required."
    )


class DiskRefusedError(StoreRefusedError):
    """The file system of a store that is a directory refused for a reason cardlink does not know,
    such as a device that is gone.
    """

    message = "The file system refused {place} ({code})."
    next_step = (
        "Look at its disk and its mount: `errno` explains the code, and the system's log says what "
        "happened. Then run {same_command} again."
    )


class StoreEndpointError(OperatorError):
    """What answers is not S3, or not that of the bucket: a proxy, a sign-in page, another region;
    or it leaves out what S3 does.

    Nothing it answered was used.
    """

    message = "The endpoint that answered for {place} is not its store: {problem}."
    next_step = (
        "Correct endpoint and region (AWS_ENDPOINT_URL, AWS_REGION), or the proxy in between; "
        "then run {same_command} again."
    )


class ObjectChangedError(TryAgainError):
    """The object is not, or no longer, the one that was pinned."""

    message = "{key} changed while it was in use."
    next_step = (
        "Nothing was committed. Wait until its writer is done, then run {same_command} again."
    )


class ObjectDamagedError(TryAgainError):
    """The bytes that arrived are not the bytes that were stored."""

    message = "{key} arrived damaged: its checksum does not match."
    next_step = (
        "Nothing read from it was used. Run {same_command} again; "
        "if it persists, restore the object."
    )


class StoreBusyError(TryAgainError):
    """Throttled, unreachable or disconnected, also after all retries."""

    message = "The store did not respond for {place} ({code}), even after retries."
    next_step = "Run {same_command} again when the store or the network has recovered."


class StoreExpiredError(TryAgainError):
    """The credentials ran out, and no others were found in time."""

    message = "The credentials for {place} have expired ({code}), and there are no new ones."
    next_step = "Renew them in the environment or the profile, then run {same_command} again."


class VerdictAwaitedError(TryAgainError):
    """A dropped file has no verdict of the malware scanner yet."""

    message = "{key} has no malware verdict yet: its tag {tag} is not set. It was not read."
    next_step = (
        "Run {same_command} again once it was scanned; if no scanner sets that tag: "
        "[store] verdict_tag."
    )


class VerdictRefusedError(OperatorError):
    """A dropped file was not found clean by the malware scanner."""

    message = "{key} was not found clean: its tag {tag} is {found}, not {clean}. It was not read."
    next_step = (
        "Do not open it: tell security, and have it removed; then ask its sender for a clean one."
    )


# What may be over in a moment, so that an adapter tries again.
TEMPORARY = (StoreBusyError, LimitError)

# What may be wrong with one object while others can be read.
ABOUT_ONE_OBJECT = (
    *(ObjectChangedError, ObjectDamagedError, StoreDeniedError, StoreRefusedError),
    *(VerdictAwaitedError, VerdictRefusedError),
)


class ConflictError(OperatorError):
    """An object that is written only once exists with other content."""

    message = "{key} already exists with different content."
    next_step = Sentence(
        "Nothing was overwritten. Find out what writes below this prefix; {check} tries the store.",
        check=Step("check", ISSUER),
    )


def error_of(kind: type[CardlinkError], **fields: str) -> CardlinkError:
    """Return the error of that kind, with those of the fields that it has."""
    return kind(**{name: fields[name] for name in fields_of(kind)})


def read(store: Store, key: str) -> bytes:
    """Return the content of a small object."""
    with store.open(key) as source:
        return source.read()


def read_if_stored(store: Store, key: str, size: int = -1) -> bytes | None:
    """Return the first bytes of an object (-1: all), None where there is none."""
    with suppress(ObjectMissingError), store.open(key) as source:
        return source.read(size)
    return None


def is_stored(store: Store, key: str) -> bool:
    """Return whether there is an object; nothing of it is read."""
    with suppress(ObjectMissingError), store.open(key):
        return True
    return False


def ensure_usable(store: Store, key: str) -> None:
    """Write a derived object and read it, and ask for the locks that are set; StoreRefusedError.

    An old server that stores the checksums of a write within its content is found by that.
    """
    content = b"written by cardlink check\n"
    store.replace(key, [content])
    if read(store, key) != content:
        raise StoreRefusedError(place=key, code="it returned other bytes than were written")
    if isinstance(store, Lockable):
        store.ensure_lockable()


def write_once(store: Store, key: str, data: bytes) -> bool:
    """Create an object and read it back; False where the same bytes are there already.

    Raises ConflictError for others.
    """
    created = store.create(key, data)
    if digest(read(store, key)) != digest(data):
        raise ConflictError(key=key)
    return created
