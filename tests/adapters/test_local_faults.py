"""What a directory does when its file system fails once, gives little, or has other things in it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest

from flows.adapters import local
from flows.adapters.local import LocalStore
from flows.errors import CardlinkError
from flows.runs.identity import lettered
from flows.runs.keys import FOLDER_TIME, TEMPORARY, shown
from flows.runs.retry import Retry
from flows.runs.store import (
    Entry,
    KeyRefusedError,
    ObjectChangedError,
    ObjectMissingError,
    StoreBusyError,
    StoreDeniedError,
    StoreFullError,
    StoreMissingError,
    StoreRefusedError,
)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    (tmp_path / "store").mkdir()
    return LocalStore(tmp_path / "store")


def content(store: LocalStore, key: str) -> bytes:
    with store.open(key) as source:
        return source.read()


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(f"{TEMPORARY}*")]


class Once:
    """Fails at its first calls with a number, before or after doing what it stands for."""

    def __init__(self, do: Callable[..., Any], number: int, *, late: bool, times: int = 1) -> None:
        self.do, self.number, self.late, self.times = do, number, late, times
        self.calls = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        fails = self.calls <= self.times
        if fails and not self.late:
            raise OSError(self.number, "")
        result = self.do(*arguments, **named)
        if fails:
            raise OSError(self.number, "")
        return result


@pytest.mark.parametrize(
    ("late", "stored", "created"),
    [(True, None, True), (False, None, True), (False, b"other", False), (False, b"same", True)],
)
def test_an_object_whose_first_attempt_failed_is_ours_where_it_has_our_content(
    store: LocalStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    late: bool,
    stored: bytes | None,
    created: bool,
) -> None:
    if stored is not None:
        store.create("a/b", stored)
    monkeypatch.setattr(os, "link", Once(os.link, errno.EIO, late=late))

    assert created == store.create("a/b", b"same")
    assert (stored or b"same") == content(store, "a/b")
    assert [] == left(tmp_path)


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENXIO, "The file system refused a/b (ENXIO)."),
        (errno.ENODEV, "The file system refused a/b (ENODEV)."),
        (errno.ENOLINK, "The file system refused a/b (ENOLINK)."),
        (errno.EMFILE, "work on a/b could not go on: too many open files."),
        (errno.ENOMEM, "work on a/b could not go on: cannot allocate memory."),
        (errno.ENOSPC, "There is no room left for a/b ({}ENOSPC)."),
        (errno.EIO, "The store did not respond for a/b (EIO), even after retries."),
    ],
)
def test_what_a_directory_does_not_do_is_said_in_its_own_words(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, number: int, sentence: str
) -> None:
    store.create("a/b", b"")
    once = Retry(attempts=1)
    monkeypatch.setattr(local._with_our_errors, "__defaults__", (None, once))
    monkeypatch.setattr(Path, "unlink", Once(Path.unlink, number, late=False))
    monkeypatch.setattr(os, "open", Once(os.open, number, late=False))

    told = []
    for act in (lambda: store.open("a/b"), lambda: store.delete("a/b")):
        with pytest.raises(CardlinkError) as refused:
            act()
        told.append(refused.value.what_happened)

    assert [sentence.format("")] * 2 == told


def test_an_object_that_is_there_at_the_first_attempt_is_another_ones_whatever_it_has(
    store: LocalStore,
) -> None:
    assert [True, False] == [store.create("a/b", b"same") for _ in range(2)]


def test_an_object_beside_a_folder_of_its_name_is_refused(store: LocalStore) -> None:
    store.create("a/b", b"")

    with pytest.raises(ObjectMissingError) as refused:
        store.create("a", b"")

    assert "a" == refused.value.fields["key"]


@pytest.mark.parametrize(
    ("parts", "is_tried_again"), [(1, True), (4, True), (5, False), (9, False)]
)
def test_only_what_is_held_whole_is_written_again_after_a_failure(
    store: LocalStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parts: int,
    is_tried_again: bool,
) -> None:
    store.replace("a/b", [b"before"])
    rename = Once(Path.replace, errno.EIO, late=False)
    monkeypatch.setattr(Path, "replace", lambda path, target: rename(path, target))

    pieces = [b"%d" % number for number in range(parts)]
    try:
        store.replace("a/b", iter(pieces))
    except StoreBusyError:
        assert not is_tried_again

    assert 1 + is_tried_again == rename.calls
    assert (b"".join(pieces) if is_tried_again else b"before") == content(store, "a/b")
    assert [] == left(tmp_path)


def test_parts_are_written_as_they_come_once_more_than_four_are_known(
    store: LocalStore, tmp_path: Path
) -> None:
    seen: list[bool] = []

    def parts() -> Iterator[bytes]:
        for number in range(8):
            seen.append(bool(left(tmp_path)))
            yield b"%d" % number

    store.replace("a/b", parts())

    assert [False] * 5 + [True] * 3 == seen
    assert b"01234567" == content(store, "a/b")


def test_files_and_folders_are_private_from_the_start_and_files_synced_when_it_is_whole(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    folders: list[int] = []
    sizes: list[int] = []
    chmod, sync = os.fchmod, os.fsync
    chmod_of_folder = Path.chmod

    def noting_mode(file: int, mode: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(file).st_mode))
        chmod(file, mode)

    def noting_folder(folder: Path, mode: int) -> None:
        folders.append(stat.S_IMODE(folder.stat().st_mode))
        chmod_of_folder(folder, mode)

    def noting_size(file: int) -> None:
        if stat.S_ISREG(os.fstat(file).st_mode):
            sizes.append(os.fstat(file).st_size)
        sync(file)

    monkeypatch.setattr(os, "fchmod", noting_mode)
    monkeypatch.setattr(Path, "chmod", noting_folder)
    monkeypatch.setattr(os, "fsync", noting_size)
    before = os.umask(0)
    try:
        store.create("a/b", b"whole")
        store.replace("a/c", [b"who", b"le"])
    finally:
        os.umask(before)

    assert ([0o600, 0o600], [0o700], [5, 5]) == (modes, folders, sizes)


def test_a_full_disk_is_named_by_the_root_and_is_not_tried_again(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Once(os.link, errno.ENOSPC, late=False, times=9)
    monkeypatch.setattr(os, "link", link)

    with pytest.raises(StoreFullError) as full:
        store.create("a/b", b"")

    place = f"a/b on the disk of {tmp_path / 'store'}"
    assert (place, "ENOSPC", 1) == (
        full.value.fields["place"],
        full.value.fields["code"],
        link.calls,
    )


def test_an_error_names_the_key(store: LocalStore, tmp_path: Path) -> None:
    root = tmp_path / "store"
    store.create("a/b", b"before")
    [pin] = store.keys("a/b")
    os.mkfifo(root / "a" / "pipe")
    (root / "a" / "link").symlink_to(root / "a" / "b")
    store.replace("a/b", [b"after it"])

    with pytest.raises(ObjectMissingError) as missing:
        store.open("a/none")
    with pytest.raises(ObjectMissingError) as pipe:
        store.open("a/pipe")
    with pytest.raises(ObjectChangedError) as changed:
        store.open("a/b", pin)
    with pytest.raises(KeyRefusedError) as refused:
        store.open("a/link")
    with store.open("a/b") as source:
        os.truncate(root / "a" / "b", 3)
        with pytest.raises(ObjectChangedError) as shrunk:
            source.read()

    errors = (missing, pipe, changed, refused, shrunk)
    assert ["a/none", "a/pipe", "a/b", "a/link", "a/b"] == [
        error.value.fields["key"] for error in errors
    ]
    assert "a symbolic link leads elsewhere" == refused.value.fields["reason"]


def test_a_directory_says_which_it_is_and_keeps_nothing_that_was_removed(
    store: LocalStore, tmp_path: Path
) -> None:
    assert f"LocalStore('{tmp_path / 'store'}')" == repr(store)
    assert not store.hides()


def test_a_root_that_is_gone_is_named(tmp_path: Path) -> None:
    gone = LocalStore(tmp_path / "gone")

    with pytest.raises(StoreMissingError) as write:
        gone.create("a/b", b"")
    with pytest.raises(StoreMissingError) as listing:
        list(gone.keys("a/"))

    facts = {"place": str(tmp_path / "gone"), "code": "ENOENT"}
    assert facts == write.value.fields == listing.value.fields


def test_an_entry_says_what_is_pinned(store: LocalStore, tmp_path: Path) -> None:
    store.create("a/b", b"12345")
    path = tmp_path / "store" / "a" / "b"
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    status = path.stat()

    [listed] = store.keys("")
    with store.open("a/b", listed) as source:
        opened = source.entry

    moment = datetime(2023, 11, 14, 22, 13, 20, 123457, UTC)
    version = lettered(f"{status.st_ino:x}-5-{1_700_000_000_123_456_789:x}")
    assert Entry("a/b", 5, moment, version) == listed == opened


def test_one_level_has_folders_that_hold_something_and_names_in_the_order_of_their_bytes(
    store: LocalStore, tmp_path: Path
) -> None:
    for key in ("a/b/c/d", "a/bb", "a/b.x", "a/é"):
        store.create(key, b"")
    (tmp_path / "store" / "a" / "empty" / "deep").mkdir(parents=True)
    (tmp_path / "store" / "a" / "only").mkdir()
    (tmp_path / "store" / "a" / "only" / f"{TEMPORARY}1").write_bytes(b"")
    for name in ("b", "bb"):  # a link is neither an object nor a folder
        (tmp_path / "store" / "a" / "only" / name).symlink_to(tmp_path / "store" / "a" / name)
    odd = os.fsdecode(b"\x80")
    (tmp_path / "store" / "a" / odd).write_bytes(b"")

    one_level = list(store.keys("a/", shallow=True))
    below = [entry.key for entry in store.keys("a/b")]

    keys = ["a/b.x", "a/b/", "a/bb", shown(f"a/{odd}"), "a/é"]
    assert keys == [entry.key for entry in one_level]
    assert Entry("a/b/", 0, FOLDER_TIME, "") == one_level[1]
    assert ["a/b.x", "a/b/c/d", "a/bb"] == below
    assert ["a/b/c/d"] == [entry.key for entry in store.keys("a/b/")]


def test_a_leftover_of_the_moment_that_is_asked_for_is_not_yet_one(
    store: LocalStore, tmp_path: Path
) -> None:
    path = tmp_path / "store" / f"{TEMPORARY}1"
    path.write_bytes(b"")
    moment = datetime(2026, 11, 20, tzinfo=UTC)
    os.utime(path, (moment.timestamp(), moment.timestamp()))

    assert [] == store.leftovers("", moment)
    [leftover] = store.leftovers("", moment + timedelta(microseconds=1))
    for _ in range(2):
        store.discard(leftover)
    assert [] == left(tmp_path)


def test_a_file_system_that_gives_a_byte_at_a_time_gives_the_whole_object(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("a/b", b"12345")
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, place: read(file, min(size, 1), place))

    with store.open("a/b") as source:
        assert (b"1", b"", b"2345", b"") == (
            source.read(3),
            source.read(0),
            source.read(),
            source.read(),
        )


def refusing(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.EACCES, "")


@pytest.mark.parametrize(
    ("where", "call", "act", "place"),
    [
        (os, "fstat", lambda store: store.open("a/b"), "a/b"),
        (os, "scandir", lambda store: list(store.keys("a/b")), "a/"),
        (os, "scandir", lambda store: list(store.keys("a")), "{root}"),
        (Path, "unlink", lambda store: store.delete("a/b"), "a/b"),
        (Path, "unlink", lambda store: store.discard(next(store.keys("a/b"))), "a/b"),
    ],
)
def test_what_a_system_call_refuses_is_denied_by_the_name_of_its_place(
    store: LocalStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    call: str,
    act: Callable[[LocalStore], object],
    place: str,
) -> None:
    store.create("a/b", b"")

    with monkeypatch.context() as changed:
        changed.setattr(where, call, refusing)
        with pytest.raises(StoreDeniedError) as denied:
            act(store)

    expected = {"place": place.format(root=tmp_path / "store"), "code": "EACCES"}
    assert expected == denied.value.fields


def test_a_file_that_may_not_be_read_on_is_named(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("a/b", b"12345")

    with store.open("a/b") as source:
        monkeypatch.setattr(os, "pread", refusing)
        with pytest.raises(StoreDeniedError) as denied:
            source.read()

    assert "a/b" == denied.value.fields["place"]


def test_a_link_is_refused_also_where_the_system_does_not_say_what_a_file_is(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("a/b", b"content")
    (tmp_path / "store" / "link").symlink_to(tmp_path / "store" / "a")
    monkeypatch.setattr(os, "readlink", refusing)

    assert b"content" == content(store, "a/b")
    with pytest.raises(KeyRefusedError) as refused:
        store.open("link/b")

    assert "link/b" == refused.value.fields["key"]


@pytest.mark.parametrize(
    ("error", "code"), [(OSError("without a number"), "0"), (OSError(9999, ""), "9999")]
)
def test_an_error_that_is_not_known_is_refused_by_its_number(error: OSError, code: str) -> None:
    def act() -> NoReturn:
        raise error

    with pytest.raises(StoreRefusedError) as refused:
        local._with_our_errors("a/b", act)

    assert {"place": "a/b", "code": code} == refused.value.fields


def scanning(folder: str, number: int) -> Callable[[str], Any]:
    """Return the function that lists folders, for which one of them cannot be listed."""
    scan = os.scandir

    def scandir(place: str) -> Any:
        if place.endswith(folder):
            raise OSError(number, "")
        return scan(place)

    return scandir


def test_a_folder_that_is_gone_when_it_is_looked_into_is_not_shown(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("a/b", b"")
    store.create("c/d", b"")
    monkeypatch.setattr(os, "scandir", scanning("/a/", errno.ENOENT))

    assert ["c/"] == [entry.key for entry in store.keys("", shallow=True)]


def test_a_folder_that_may_not_be_looked_into_is_named(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("a/b", b"")
    monkeypatch.setattr(os, "scandir", scanning("/a/", errno.EACCES))

    with pytest.raises(StoreDeniedError) as denied:
        list(store.keys("", shallow=True))

    assert "a/" == denied.value.fields["place"]


class File:
    """A listed file whose status cannot be had at the first looks."""

    def __init__(self, path: Path, number: int, times: int) -> None:
        self.stat = Once(path.stat, number, late=False, times=times)


def test_a_listed_file_whose_status_failed_once_is_looked_at_again(tmp_path: Path) -> None:
    path, link = tmp_path / "b", tmp_path / "link"
    path.write_bytes(b"12345")
    link.symlink_to(path)
    once: Any = File(path, errno.EIO, 1)
    of_link: Any = File(link, errno.EIO, 1)
    gone: Any = File(path, errno.ENOENT, 2)
    denied: Any = File(path, errno.EACCES, 2)

    assert local._look("a/b", path) == local._look("a/b", once)
    assert local._look("a/b", of_link) is None
    assert local._look("a/b", gone) is None
    with pytest.raises(StoreDeniedError) as refused:
        local._look("a/b", denied)
    assert "a/b" == refused.value.fields["place"]
