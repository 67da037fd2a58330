"""A local directory as a store.

Hard links make `create` atomic, renames `replace`; fsync makes both durable.

Temporary errors (EIO, EAGAIN, EBUSY, ESTALE, time-outs, limits of the process) are retried for a
few seconds. A full disk is not temporary. A failed fsync is never repeated on the same file,
because the second one may report success for data that was dropped: the whole file is written anew.
Symbolic links below the root are refused, since whoever drops files must not choose what is read.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from io import FileIO
from itertools import chain, count, islice
from pathlib import Path
from typing import TypeVar

from flows.errors import CardlinkError, LimitError, reason_of
from flows.runs import store
from flows.runs.identity import lettered
from flows.runs.keys import FOLDER_TIME, TEMPORARY, checked, checked_prefix, shown
from flows.runs.retry import Retry
from flows.runs.store import Entry, ObjectMissingError, StoreBusyError

T = TypeVar("T")

_BY_NUMBER: dict[int, type[CardlinkError]] = {
    errno.ENOENT: ObjectMissingError,
    errno.ENOTDIR: ObjectMissingError,
    errno.EISDIR: ObjectMissingError,
    errno.EACCES: store.StoreDeniedError,
    errno.EPERM: store.StoreDeniedError,
    errno.EROFS: store.StoreDeniedError,
    errno.ENOSPC: store.StoreFullError,
    errno.EDQUOT: store.StoreFullError,
    # a network file system that is away for a moment
    errno.EIO: StoreBusyError,
    errno.EAGAIN: StoreBusyError,
    errno.EBUSY: StoreBusyError,
    errno.ESTALE: StoreBusyError,
    errno.ETIMEDOUT: StoreBusyError,
    errno.EHOSTDOWN: StoreBusyError,
    errno.ENOTCONN: StoreBusyError,
    # a limit of the machine or of this process
    errno.EFBIG: LimitError,
    errno.EMFILE: LimitError,
    errno.ENFILE: LimitError,
    errno.ENOMEM: LimitError,
}
_PATIENT = Retry(attempts=6)  # three seconds at most
# parts of a report that are held to be written again; one of more parts is not retried
_HELD = 4
# O_NONBLOCK: a pipe in a drop folder must not block the run; it is refused
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class LocalStore:
    """Objects as files below `root`, which must exist.

    Files are 0600 and directories 0700, whatever the umask. Implements Store and Cleaner. Files
    named `.tmp-...` are not objects yet and are never listed. Symbolic links are not objects
    either: people who may drop files must not be able to choose which files of the machine are
    read.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def __repr__(self) -> str:
        return f"LocalStore({str(self._root)!r})"

    def create(self, key: str, data: bytes) -> bool:
        """Write `key` unless it exists; False if it does.

        True also where an earlier attempt failed and the object has the same content.
        """
        path = self._path(key)
        attempts = count()

        def link() -> bool:
            is_retry = next(attempts) > 0
            temporary = self._write_temporary(path, [data])
            try:
                os.link(temporary, path)
            except FileExistsError:
                if path.is_dir():  # `a` beside `a/b`: a directory cannot hold both
                    raise IsADirectoryError(errno.EISDIR, "") from None
                if not (is_retry and path.read_bytes() == data):
                    return False
            finally:
                temporary.unlink()
            _sync(path.parent)
            return True

        return _with_our_errors(key, link, self._root)

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        """Write `key` atomically over any earlier content, which stays if `parts` raises."""
        path = self._path(key)
        pieces = iter(parts)
        held = list(islice(pieces, _HELD + 1))
        retry = _PATIENT if len(held) <= _HELD else replace(_PATIENT, attempts=1)

        def rename() -> None:
            temporary = self._write_temporary(path, chain(held, pieces))
            try:
                temporary.replace(path)
            except OSError:
                temporary.unlink()
                raise
            _sync(path.parent)

        _with_our_errors(key, rename, self._root, retry)

    def open(self, key: str, pin: Entry | None = None) -> LocalSource:
        """Open `key`, pinned to inode, size and change time.

        Raises ObjectMissingError and ObjectChangedError.
        """
        place = f"{self._root}/{checked(key)}"
        try:
            file, status = _with_our_errors(key, lambda: _opened(place))
        except CardlinkError:
            self._place(key)  # says so where it leads through a symbolic link
            raise
        entry = _entry(key, status)
        try:
            if not _is_at(file, place):
                self._place(key)
            if not stat.S_ISREG(status.st_mode):
                raise ObjectMissingError(key=key)
            if pin is not None and pin.version != entry.version:
                raise store.ObjectChangedError(key=key)
        except BaseException:
            os.close(file)
            raise
        return LocalSource(file, entry)

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        """List objects whose key begins with `prefix`, in key order.

        `shallow`: one level; folders end in '/' with size 0.
        """
        folder, _, start = checked_prefix(prefix).rpartition("/")
        yield from self._list(f"{folder}/" if folder else "", start, shallow)

    def delete(self, key: str) -> None:
        """Remove `key`, if it exists."""
        path = self._path(key)
        _with_our_errors(key, lambda: path.unlink(missing_ok=True))

    def leftovers(self, prefix: str, before: datetime) -> list[Entry]:
        """List the temporary files under `prefix` that killed writers left before `before`."""
        abandoned: list[Entry] = []
        for folder, _, names in os.walk(self._root / checked_prefix(prefix)):
            for name in names:
                if name.startswith(TEMPORARY):
                    place = Path(folder).relative_to(self._root)
                    entry = _look(str(place / name), self._root / place / name)
                    # None: its writer was alive and done
                    if entry and entry.modified < before:
                        abandoned.append(entry)
        return abandoned

    def discard(self, leftover: Entry) -> None:
        """Remove a temporary file that `leftovers` listed."""
        _with_our_errors(leftover.key, partial((self._root / leftover.key).unlink, missing_ok=True))

    def hides(self) -> bool:
        """Return False: a removed file is gone."""
        return False

    def _path(self, key: str) -> Path:
        return Path(self._place(key))

    def _place(self, key: str) -> str:
        """Return the path of a key, without a symbolic link below the root; KeyRefusedError."""
        place = str(self._root)
        # part by part: resolving the whole path takes five times as long
        for part in checked(key).split("/"):
            place = f"{place}/{part}"
            # making a Path for each part takes longer than the check
            if os.path.islink(place):  # noqa: PTH114  as it says above
                raise store.KeyRefusedError(key=key, reason="a symbolic link leads elsewhere")
        return place

    def _list(self, folder: str, start: str, shallow: bool) -> Iterator[Entry]:
        """Walk in the order in which S3 lists keys.

        That is by UTF-8 bytes, a folder counting as `name/`.
        """
        members = _members(self._root, folder, start)
        for name in sorted(members, key=os.fsencode):
            if not name.endswith("/"):
                entry = _look(folder + name, members[name])
                if entry:
                    yield entry
            elif not shallow:
                yield from self._list(folder + name, "", shallow)
            elif _has_any(self._root, folder + name):
                yield Entry(folder + name, 0, FOLDER_TIME, "")

    def _write_temporary(self, path: Path, parts: Iterable[bytes]) -> Path:
        temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
        if not path.parent.is_dir() and not self._root.is_dir():
            raise store.StoreMissingError(place=str(self._root), code="ENOENT")
        _make_folder(path.parent)
        file = os.open(temporary, _NEW, 0o600)
        try:
            with os.fdopen(file, "wb", buffering=0) as stream:
                os.fchmod(file, 0o600)
                for part in parts:
                    left = memoryview(part)
                    while left:  # the kernel may take less at a time
                        left = left[stream.write(left) :]
                os.fsync(file)
        except BaseException:  # whatever ended it, even a signal: no partial file stays
            temporary.unlink()
            raise
        return temporary


class LocalSource(AbstractContextManager["LocalSource", None]):
    """A pinned stream over one file.

    Raises ObjectChangedError as soon as the file is no longer the one opened.
    """

    def __init__(self, file: int, entry: Entry) -> None:
        self._stream = FileIO(file)
        self.entry = entry
        self._position = 0

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` more bytes, the rest for -1, b'' at the end."""
        missing = self.entry.size - self._position
        if size >= 0:
            missing = min(size, missing)
        file = self._stream.fileno()
        place = self._position
        data, status = _with_our_errors(
            self.entry.key, lambda: (os.pread(file, missing, place), os.fstat(file))
        )
        self._position += len(data)
        # Checked with every read, so that a file still being written is noticed early
        if _version(status) != self.entry.version or (missing and not data):
            raise store.ObjectChangedError(key=self.entry.key)
        if len(data) < missing and size < 0:
            return data + self.read()
        return data

    def __exit__(self, *_: object) -> None:
        self._stream.close()


def _opened(place: str) -> tuple[int, os.stat_result]:
    """Return a file that was opened for reading, and its status."""
    file = os.open(place, _READ)
    try:
        return file, os.fstat(file)
    except OSError:
        os.close(file)
        raise


def _is_at(file: int, place: str) -> bool:
    """Return whether an open file is at a path without symbolic links, as far as Linux says so."""
    with suppress(OSError):  # no /proc
        return os.readlink(f"/proc/self/fd/{file}") == place  # noqa: PTH115  twice as fast
    return False


def _members(root: Path, folder: str, start: str) -> dict[str, os.DirEntry[str]]:
    """Return what is in a folder and begins with `start`, by name, folders ending in '/'.

    Nothing is returned where there is no such folder.
    """

    def scan() -> dict[str, os.DirEntry[str]]:
        with os.scandir(f"{root}/{folder}") as members:  # making a Path takes longer
            return {
                f"{member.name}/" if member.is_dir(follow_symlinks=False) else member.name: member
                for member in members
                if member.name.startswith(start) and not member.name.startswith(TEMPORARY)
            }

    named: dict[str, os.DirEntry[str]] = {}
    with suppress(ObjectMissingError):
        named = _with_our_errors(folder or str(root), scan)
    if not named and not root.is_dir():
        raise store.StoreMissingError(place=str(root), code="ENOENT")
    return named


def _has_any(root: Path, folder: str) -> bool:
    """Return whether there is an object in a folder, however deep.

    Read no further than to the first one: all runs are listed like this.
    """

    def look() -> list[str] | None:
        folders = list[str]()
        with os.scandir(f"{root}/{folder}") as members:
            for member in members:
                if member.is_dir(follow_symlinks=False):
                    folders.append(f"{folder}{member.name}/")
                elif _is_object(member):
                    return None
        return folders

    try:
        folders = _with_our_errors(folder, look)
    except ObjectMissingError:
        return False
    return folders is None or any(_has_any(root, name) for name in folders)


def _is_object(member: os.DirEntry[str]) -> bool:
    return not member.name.startswith(TEMPORARY) and member.is_file(follow_symlinks=False)


def _look(key: str, file: Path | os.DirEntry[str]) -> Entry | None:
    """Return the entry of a file, None if it is gone by now or not a regular file."""
    try:
        status = file.stat(follow_symlinks=False)
    except OSError:
        look_again = partial(file.stat, follow_symlinks=False)
        try:
            status = _with_our_errors(key, look_again)
        except ObjectMissingError:
            return None
    return _entry(shown(key), status) if stat.S_ISREG(status.st_mode) else None


def _entry(key: str, status: os.stat_result) -> Entry:
    return Entry(
        key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC), _version(status)
    )


def _version(status: os.stat_result) -> str:
    return lettered(f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}")


def _make_folder(folder: Path) -> None:
    """Make the missing folders, 0700 whatever the umask, and sync them.

    So their names survive a power failure.
    """
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    try:
        folder.mkdir(0o700)
    except FileExistsError:
        return
    folder.chmod(0o700)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _with_our_errors(
    key: str, act: Callable[[], T], disk: Path | None = None, retry: Retry = _PATIENT
) -> T:
    """Return what `act` returns, retried after a temporary failure.

    An OSError becomes one of ours, without a chain.
    """

    def attempt() -> T:
        try:
            return act()
        except OSError as error:
            number = error.errno or 0
        kind = _BY_NUMBER.get(number, store.DiskRefusedError)
        code = errno.errorcode.get(number, str(number))
        place = f"{key} on the disk of {disk}" if disk and kind is store.StoreFullError else key
        if kind is LimitError:
            place = f"work on {key}"
        fields = {"key": key, "place": place, "code": code, "reason": reason_of(number)}
        # not kept in a variable: error and frame would keep each other alive, and the callers' rows
        raise store.error_of(kind, **fields)

    return retry(attempt, store.TEMPORARY)
