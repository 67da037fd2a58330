"""One contract for every store: a directory, and S3 on two servers that are real processes."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest

from flows.adapters.local import LocalStore
from flows.adapters.s3 import PART
from flows.errors import CardlinkError
from flows.runs.overlay import Overlay
from flows.runs.store import (
    KeyRefusedError,
    ObjectChangedError,
    ObjectMissingError,
    Source,
    Store,
)
from tests import servers
from tests.stores import KINDS, CleanableStore, Place

STORES = [*KINDS, "moto", "overlay"]  # moto is not tortured: it lets two writers win


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Serve each kind of store once; the address of a kind."""
    with ExitStack() as running:

        @cache
        def address(kind: str) -> str:
            return running.enter_context(KINDS[kind].serve(tmp_path_factory.mktemp(kind)))

        yield address


@pytest.fixture(params=STORES)
def store(
    request: pytest.FixtureRequest, tmp_path: Path, served: Callable[[str], str]
) -> CleanableStore | Overlay:
    """An empty store of each kind."""
    if request.param == "overlay":
        return Overlay(LocalStore(tmp_path), datetime(2026, 11, 20, tzinfo=UTC))
    if request.param == "moto":
        server: servers.S3Server = request.getfixturevalue("moto_server")
        return servers.store(server, uuid4().hex)
    return Place(request.param, served(request.param), uuid4().hex).open()


@pytest.fixture
def cleaned(store: CleanableStore | Overlay) -> CleanableStore:
    """The same, where it can also delete."""
    if isinstance(store, Overlay):
        pytest.skip("a dry run deletes nothing")
    return store


def content(store: Store, key: str) -> bytes:
    with store.open(key) as source:
        return source.read()


def listed(store: Store, prefix: str, *, shallow: bool = False) -> list[str]:
    return [entry.key for entry in store.keys(prefix, shallow=shallow)]


@pytest.mark.parametrize(
    "data", [b"", b"\x00\xff\r\n", b"x" * 300_000], ids=["empty", "binary", "a chunk"]
)
def test_what_was_created_reads_back_byte_for_byte(store: Store, data: bytes) -> None:
    created = store.create("first-bank/runs/a", data)

    assert created
    assert data == content(store, "first-bank/runs/a")


@pytest.mark.parametrize("second", [b"first", b"second"], ids=["the same bytes", "other bytes"])
def test_create_says_no_where_something_is_and_leaves_it(store: Store, second: bytes) -> None:
    store.create("a", b"first")

    created = store.create("a", second)

    assert not created
    assert b"first" == content(store, "a")


def test_an_error_does_not_hold_its_callers_rows_until_garbage_is_collected(store: Store) -> None:
    class Rows:
        pass

    def ask() -> weakref.ref[Rows]:
        rows = Rows()
        with pytest.raises(ObjectMissingError):
            store.open("nothing")
        return weakref.ref(rows)

    ask()
    gc.disable()
    try:
        rows = ask()
    finally:
        gc.enable()

    assert rows() is None


def test_of_many_creators_of_one_key_exactly_one_wins(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        wins = list(pool.map(lambda number: store.create("a", b"%d" % number), range(16)))

    assert 1 == sum(wins)
    assert b"%d" % wins.index(True) == content(store, "a")


@pytest.mark.parametrize("size", [0, 10, PART, PART + 1, 2 * PART + 5], ids=str)
def test_replace_writes_whole_over_what_was_there(store: Store, size: int) -> None:
    data = os.urandom(size)
    store.create("report/links.csv", b"old")

    store.replace(
        "report/links.csv", (data[at : at + 1_000_003] for at in range(0, size, 1_000_003))
    )

    assert data == content(store, "report/links.csv")


@pytest.mark.parametrize(
    "written", [b"begun", b"x" * (2 * PART + 1)], ids=["early", "with two parts sent"]
)
def test_replace_that_breaks_off_leaves_what_was_there(store: Store, written: bytes) -> None:
    def parts() -> Iterator[bytes]:
        yield written
        raise ObjectMissingError(key="a source")

    store.create("a", b"old")

    with pytest.raises(ObjectMissingError):
        store.replace("a", parts())

    assert b"old" == content(store, "a")
    assert ["a"] == listed(store, "")


def test_a_missing_object_is_named(store: Store) -> None:
    with pytest.raises(ObjectMissingError, match=r"There is no first-bank/extracts/x\.csv\."):
        store.open("first-bank/extracts/x.csv")


@pytest.mark.parametrize("take", ["listing", "stream"])
def test_a_pin_opens_the_version_it_was_taken_from(store: Store, take: str) -> None:
    store.create("a", b"data")
    with store.open("a") as stream:
        pin = next(store.keys("a")) if take == "listing" else stream.entry

    with store.open("a", pin) as source:
        data = source.read()

    assert b"data" == data
    assert ("a", 4) == pin[:2]


def test_a_pin_refuses_an_object_that_was_replaced_by_one_of_equal_size(store: Store) -> None:
    store.create("a", b"data")
    pin = next(store.keys("a"))
    store.replace("a", [b"DATA"])

    with pytest.raises(ObjectChangedError):
        store.open("a", pin)


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000], ids=str)
def test_reading_in_pieces_gives_the_same_bytes_and_then_nothing(store: Store, size: int) -> None:
    data = os.urandom(3000)
    store.create("a", data)

    with store.open("a") as source:
        pieces = list(iter(lambda: source.read(size), b""))
        after = [source.read(size), source.read(), source.read(0)]

    assert data == b"".join(pieces)
    assert [b"", b"", b""] == after


AWKWARD = [
    "A",
    "Z/1",
    "a b+c%20",
    "a#?&=",
    "a",
    "a-",
    "a.b",
    "a/b/c",
    "a/d",
    "a0",
    "é",
    "z\U0001f600",
    "a'\"<&>",
]


def test_keys_come_in_byte_order_whatever_their_letters(store: Store) -> None:
    keys = [key for key in AWKWARD if key != "a"]  # a directory cannot hold both `a` and `a/d`
    for key in keys:
        store.create(key, key.encode())

    found = listed(store, "")

    assert sorted(keys, key=str.encode) == found
    assert [key.encode() for key in found] == [content(store, key) for key in found]


def test_a_prefix_is_the_beginning_of_a_key_and_need_not_end_at_a_slash(store: Store) -> None:
    for key in ("runs/b-1/x", "runs/b-10/x", "runs/b-2/x", "runs/c", "runz"):
        store.create(key, b"")

    assert ["runs/b-1/x", "runs/b-10/x"] == listed(store, "runs/b-1")
    assert ["runs/b-1/x"] == listed(store, "runs/b-1/")
    assert [] == listed(store, "nothing/here/")


def test_a_shallow_listing_shows_one_level_with_its_folders(store: Store) -> None:
    for key in ("i/runs/a/plan.json", "i/runs/a/chunks/1", "i/runs/a.txt", "i/runs/b/plan.json"):
        store.create(key, b"12")

    found = list(store.keys("i/runs/", shallow=True))

    assert ["i/runs/a.txt", "i/runs/a/", "i/runs/b/"] == [entry.key for entry in found]
    assert [2, 0, 0] == [entry.size for entry in found]


def test_what_was_deleted_is_gone_and_may_be_created_again(cleaned: CleanableStore) -> None:
    cleaned.create("i/runs/a", b"1")

    cleaned.delete("i/runs/a")
    cleaned.delete("i/runs/a")

    assert [] == listed(cleaned, "", shallow=True)
    assert cleaned.create("i/runs/a", b"2")


REFUSED = [
    "",
    "/etc/passwd",
    "../x",
    "a/../../x",
    "a/./b",
    "a//b",
    "a/",
    "a\x00b",
    "a\nb",
    "a\udce9",
    ".tmp-1",
    "a/.tmp-1/b",
]


@pytest.mark.parametrize("operation", ["create", "replace", "open", "delete"])
def test_a_key_that_could_leave_the_root_is_refused(
    cleaned: CleanableStore, operation: str
) -> None:
    act: dict[str, Callable[[str], bool | Source | None]] = {
        "create": lambda key: cleaned.create(key, b""),
        "replace": lambda key: cleaned.replace(key, [b""]),
        "open": cleaned.open,
        "delete": cleaned.delete,
    }

    for key in [*REFUSED, "x" * 201, "x/" * 450 + "x"]:
        with pytest.raises(KeyRefusedError):
            act[operation](key)


@pytest.mark.parametrize("prefix", ["/", "/etc/", "../", "a//", "a/../"])
def test_a_prefix_no_key_could_begin_with_is_refused(store: Store, prefix: str) -> None:
    with pytest.raises(KeyRefusedError):
        listed(store, prefix)


def test_no_error_carries_a_foreign_one_with_it(store: Store) -> None:
    with pytest.raises(CardlinkError) as missing:
        store.open("nothing")

    assert (None, None) == (missing.value.__cause__, missing.value.__context__)
