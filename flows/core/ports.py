"""The Protocols through which steps know the outside world; edges implement them, tests hold them to one contract."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from schemas.card_link import CardLink, CardLinkRequest, Refusal
    from schemas.jobs import CredentialRequest, JobRecord, Messages


class Entry(NamedTuple):
    """One stored object as a listing shows it; `version` pins its bytes (VersionId or ETag, inode and times)."""

    key: str
    size: int
    modified: datetime
    version: str


class Source(Protocol):
    """A pinned stream over one object: the same bytes from the first read to the last, or an error."""

    @property
    def entry(self) -> Entry:
        """The object this stream is pinned to."""
        ...

    def read(self, size: int = -1, /) -> bytes:
        """Return the next up to `size` bytes (all that is left for -1), b'' at the end."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Store(Protocol):
    """Immutable objects under keys (`issuer/runs/...`, no leading slash), S3 or a directory alike."""

    def create(self, key: str, data: bytes) -> bool:
        """Write `key` only where nothing is; False where something already is (read it and compare)."""
        ...

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        """Write a derived object whole and atomically, over whatever was there: reports only."""
        ...

    def open(self, key: str, pin: Entry | None = None, start: int = 0) -> Source:
        """Open `key` from byte `start`, at the version of `pin` if given; ObjectMissingError or ObjectChangedError."""
        ...

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        """List objects under `prefix` in key order; shallow: one level, folders end in '/' with size 0."""
        ...


class Sweeper(Protocol):
    """The right to delete, which only retention and sweeping hold."""

    def delete(self, key: str) -> None:
        """Remove `key`; nothing happens where nothing is."""
        ...

    def leftovers(self, prefix: str, before: datetime) -> list[Entry]:
        """List what writers that died before `before` left under `prefix`: half files, uploads never completed."""
        ...

    def sweep(self, prefix: str, before: datetime) -> int:
        """Remove those leftovers and return how many they were; they are no objects and never were."""
        ...

    def hides(self) -> bool | None:
        """Tell whether the store is versioned, so that `delete` hides and does not remove; None: it does not say."""
        ...


class Plain(NamedTuple):
    """One chunk in the clear, in memory only: file name (`<run>-00001.csv`) and CSV bytes."""

    name: str
    data: bytes


class Sealed(NamedTuple):
    """One chunk as an OpenPGP message; `trouble` is a code, and `data` empty, where sealing did not work."""

    name: str
    data: bytes
    trouble: str = ""


class Sealer(Protocol):
    """Turns chunks into OpenPGP messages for pinned recipients."""

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """The 40-hex fingerprints every message is sealed to."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an operator should know of the keys, such as one that ends within 30 days."""
        ...

    def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
        """Seal a group of chunks, in order; one that does not work carries its trouble, the others stand."""
        ...


class Opener(Protocol):
    """Opens OpenPGP messages with a private key."""

    def open(self, message: bytes, limit: int) -> bytes:
        """Return the content of one message, at most `limit` bytes; SealedUnreadableError otherwise."""
        ...


class Placing(Protocol):
    """What the partner tells of links and the jobs that come of them (interface.md 4); NoSuchRecordError for none."""

    def card_link(self, link_id: str) -> CardLink:
        """Return a link's record, its card and cardholder with it."""
        ...

    def cardholder_messages(self, cardholder_id: str) -> bytes:
        """Return the body of the messages of a cardholder's jobs: the service gives each of them once."""
        ...

    def job(self, job_id: str) -> JobRecord:
        """Return a job's record: the same, however often it is read."""
        ...


class Linking(Protocol):
    """Makes single links at the partner (interface.md 2.8)."""

    def create_link(self, request: CardLinkRequest) -> CardLink | Refusal:
        """Ask for one link, once; AnswerLostError where nobody knows whether it was made."""
        ...


class Jobs(Protocol):
    """One placement job's side of the partner's service (interface.md 4): how it stands, and what it asks."""

    def job(self, job_id: str) -> JobRecord:
        """Return the job's record with its pending requests."""
        ...

    def messages(self, job_id: str) -> Messages:
        """Read the job's messages, each status message once; AnswerLostError where some may be lost."""
        ...

    def credential_requests(self, job_id: str) -> Sequence[CredentialRequest]:
        """Return the requests the job waits with."""
        ...

    def answer(self, job_id: str, envelope_id: str, answers: Mapping[str, str]) -> object:
        """Answer a request; AnswerLostError where nobody knows whether the answer arrived."""
        ...
