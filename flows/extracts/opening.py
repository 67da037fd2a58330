"""Reading an extract of the store again: pinned, decrypted, and proven by its digest."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from io import BytesIO
from typing import BinaryIO

from flows.errors import OperatorError
from flows.extracts.decode import Readable
from flows.extracts.errors import TruncatedError
from flows.runs.context import IssuerContext
from flows.runs.openpgp import is_cut_off, looks_like_message, recipients
from flows.runs.sealing import OTHER_KEYS, Opener, SealedUnreadableError
from flows.runs.store import Entry, ObjectChangedError, Store
from schemas.manifest import SourceIdentity

HEAD = 64  # bytes that show whether an extract is PGP-encrypted
LARGEST_SEALED = 2 << 30  # bytes of a decrypted extract: it is decrypted in memory


GIVE_KEY = (
    "Set CARDLINK_PRIVATE_KEY_FILE to the file of that private key (`gpg --export-secret-keys`), "
    "and CARDLINK_PASSPHRASE_FILE to that of its passphrase if it has one; "
    "or ask the issuer to encrypt it to your key."
)

OpenerOf = Callable[[], AbstractContextManager[Opener | None]]


class NoKeyForExtractError(OperatorError):
    """The extract is PGP-encrypted, and no private key is configured."""

    message = "{extract} is PGP-encrypted to {keys}, and no private key is configured."
    next_step = GIVE_KEY


class WrongKeyForExtractError(OperatorError):
    """The extract is PGP-encrypted to another key than the private key that is configured."""

    message = (
        "{extract} is PGP-encrypted to {keys}, "
        "which is not the private key of CARDLINK_PRIVATE_KEY_FILE."
    )
    next_step = GIVE_KEY


def together(entries: Sequence[Entry]) -> Entry:
    """Return an extract and its second file as one; both are pinned."""
    return Entry(
        key=entries[0].key,
        size=sum(entry.size for entry in entries),
        modified=max(entry.modified for entry in entries),
        version=" ".join(entry.version for entry in entries),
        files=tuple(entries),
    )


def combined_digest(digests: Sequence[str]) -> str:
    """Return what identifies files together: the SHA-256 of their digests, a line each."""
    return hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()


def stored_entry(store: Store, source: SourceIdentity) -> Entry:
    """Return an extract as it is stored now, with its second file where its run had one."""
    entries = []
    for key in [file.key for file in source.files] or [source.key]:
        with store.open(key) as stream:
            entries.append(stream.entry)
    return entries[0] if len(entries) == 1 else together(entries)


class Pair:
    """An extract and its second file, both open; what reads only the extract, reads it as it is."""

    def __init__(self, first: "Opened", second: "Opened", name: str) -> None:
        self.first = first
        self.second = second
        self.name = name  # of the second file

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes of the extract itself."""
        return self.first.read(size)

    def tell(self) -> int:
        """Return how many bytes of both were read."""
        return self.first.tell() + self.second.tell()


@contextmanager
def open_extract(
    context: IssuerContext, entry: Entry, source: SourceIdentity
) -> Iterator["Opened | Pair"]:
    """Open the extract again, pinned, with its second file where it has one.

    Raises ObjectChangedError at its end if it has not the digest of the first reading.
    """
    if not entry.files:
        with _open_file(context, entry) as (stream, digesting):
            yield stream
            actual = digesting.hexdigest()
    else:
        first, second = entry.files
        with _open_file(context, first) as own, _open_file(context, second) as other:
            yield Pair(own[0], other[0], second.key)
            actual = combined_digest([own[1].hexdigest(), other[1].hexdigest()])
    if actual != source.sha256:
        raise ObjectChangedError(key=entry.key)


@contextmanager
def _open_file(context: IssuerContext, entry: Entry) -> Iterator["tuple[Opened, Digesting]"]:
    """Open one file, pinned: what it holds, decrypted where it is sealed, and what digests it."""
    with context.adapters.store.open(entry.key, entry) as stored:
        digesting = Digesting(stored)
        if looks_like_message(digesting.head):
            message = digesting.read()
            yield BytesIO(_decrypted(context.opener, entry.key, message)), digesting
        else:
            yield digesting, digesting


def opened_file(stream: BinaryIO, name: str, opener_of: OpenerOf) -> BinaryIO:
    """Return a file as it is; the content of one that is PGP-encrypted to the private key.

    Raises NoKeyForExtractError, WrongKeyForExtractError and TruncatedError.
    """
    is_sealed = looks_like_message(stream.read(HEAD))
    stream.seek(0)
    return BytesIO(_decrypted(opener_of, name, stream.read())) if is_sealed else stream


def _decrypted(opener_of: OpenerOf, name: str, message: bytes) -> bytes:
    if is_cut_off(message):
        problem = f"its PGP message has no end after {len(message)} bytes"
        raise TruncatedError(name=name, problem=problem)
    with opener_of() as opener:
        if opener is None:
            raise NoKeyForExtractError(extract=name, keys=_named_keys(message))
        try:
            return opener.open(message, LARGEST_SEALED)
        except SealedUnreadableError as error:
            if error.fields["reason"] != OTHER_KEYS:
                raise
    raise WrongKeyForExtractError(extract=name, keys=_named_keys(message))


def _named_keys(message: bytes) -> str:
    """Return the ids of the keys that a message is sealed to; some senders leave them out."""
    ids = [key for key in recipients(message) if key.strip("0")]
    if not ids:
        return "a key that it does not name"
    return f"the key{'s' if len(ids) > 1 else ''} {' and '.join(ids)}"


class Digesting:
    """A stream that hashes what is read of it.

    `head`: its first bytes, which are still to be read.
    """

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._sha256 = hashlib.sha256()
        self._size = 0
        self._unread = b""
        self.head = self.read(HEAD)
        self._unread = self.head

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._size

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, as many as requested unless it ends."""
        if self._unread:
            return self._read_head(size)
        data = self._source.read(size)
        while 0 < len(data) < size and (more := self._source.read(size - len(data))):
            # always full reads, so that the same extract gives the same blocks each time
            data += more
        self._sha256.update(data)
        self._size += len(data)
        return data

    def _read_head(self, size: int) -> bytes:
        """Return what is left of the head, up to `size` bytes; with a negative size, everything."""
        head = self._unread
        if size < 0:
            self._unread = b""
            return head + self.read()
        self._unread = head[size:]
        return head[:size]

    def hexdigest(self) -> str:
        """Return the SHA-256 of all bytes.

        Those that the reader did not need, such as bytes after a gzip member, are read first.
        """
        while self.read(1 << 20):
            pass
        return self._sha256.hexdigest()


Opened = Digesting | BytesIO
