"""What a directory does when its file system fails once, gives little, or has other things in it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from flows.adapters.local import LocalStore
from flows.runs.keys import FOLDER_TIME, TEMPORARY, shown
from flows.runs.store import (
    Entry,
    KeyRefusedError,
    ObjectChangedError,
    ObjectMissingError,
    StoreBusyError,
    StoreFullError,
    StoreMissingError,
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


def test_a_file_is_private_from_the_start_and_synced_when_it_is_whole(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    sizes: list[int] = []
    chmod, sync = os.fchmod, os.fsync

    def noting_mode(file: int, mode: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(file).st_mode))
        chmod(file, mode)

    def noting_size(file: int) -> None:
        if stat.S_ISREG(os.fstat(file).st_mode):
            sizes.append(os.fstat(file).st_size)
        sync(file)

    monkeypatch.setattr(os, "fchmod", noting_mode)
    monkeypatch.setattr(os, "fsync", noting_size)
    before = os.umask(0)
    try:
        store.create("a/b", b"whole")
        store.replace("a/c", [b"who", b"le"])
    finally:
        os.umask(before)

    assert ([0o600, 0o600], [5, 5]) == (modes, sizes)


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
    version = f"{status.st_ino}-5-1700000000123456789"
    assert Entry("a/b", 5, moment, version) == listed == opened


def test_one_level_has_folders_that_hold_something_and_names_in_the_order_of_their_bytes(
    store: LocalStore, tmp_path: Path
) -> None:
    for key in ("a/b/c/d", "a/bb", "a/b.x", "a/é"):
        store.create(key, b"")
    (tmp_path / "store" / "a" / "empty" / "deep").mkdir(parents=True)
    (tmp_path / "store" / "a" / "only").mkdir()
    (tmp_path / "store" / "a" / "only" / f"{TEMPORARY}1").write_bytes(b"")
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
