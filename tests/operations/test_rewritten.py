"""What the journal says of an object that is written again, by processes that get in each other's way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count

import pytest

from flows.database.connection import Database
from flows.operations.audit import verify
from flows.operations.audit_journal import CHANGED
from flows.runs.store import read
from tests.memory import KilledError, MemoryStore
from tests.night import BANK, edges

KEY = "bank/deliveries/000001/links.parquet"


class Away(MemoryStore):
    """A store whose writers are away between naming and writing, and something happens then."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile = list[Callable[[], object]]()
        self.database = Database("sqlite://")

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        content = list(parts)
        if self.meanwhile:
            self.meanwhile.pop()()
        super().replace(key, content)


def write(store: Away, by: str) -> None:
    """Write the object as somebody who may be killed."""
    with suppress(KilledError):
        edges(store, store.database).store.replace(KEY, [by.encode()])


def killed() -> None:
    raise KilledError


def found(store: Away) -> list[tuple[str, str]]:
    return [(one.key, one.what) for one in verify(edges(store, store.database), BANK).findings]


def written(*, anna_dies: bool, ben_dies: bool) -> Away:
    """Return a store that nora wrote to, then ben after anna had named what she writes, then anna;
    except who dies before that.
    """
    store = Away()
    write(store, "nora")

    def ben_comes() -> None:
        store.meanwhile = [killed] * ben_dies
        write(store, "ben")
        if anna_dies:
            killed()

    store.meanwhile = [ben_comes]
    write(store, "anna")
    return store


@pytest.mark.parametrize(
    ("anna_dies", "ben_dies", "last"),
    [
        (False, False, b"anna"),
        (False, True, b"anna"),
        (True, False, b"ben"),
        (True, True, b"nora"),
    ],
)
def test_the_journal_names_what_is_stored_whoever_was_away_or_died_between_naming_and_writing(
    *, anna_dies: bool, ben_dies: bool, last: bytes
) -> None:
    store = written(anna_dies=anna_dies, ben_dies=ben_dies)

    assert (last, []) == (read(store, KEY), found(store))


@pytest.mark.parametrize("content", [b"a stranger's", b"nora"])
@pytest.mark.parametrize("anna_dies", [False, True])
def test_what_nobody_named_or_was_written_before_is_found_also_after_two_had_written_at_once(
    *, anna_dies: bool, content: bytes
) -> None:
    store = written(anna_dies=anna_dies, ben_dies=False)

    store.replace(KEY, [content])

    assert [(KEY, CHANGED)] == found(store)


def test_who_reads_while_others_write_again_finds_nothing() -> None:
    store = Away()
    numbers = count()

    class Read(Away):
        def keys(self, prefix: str, *, shallow: bool = False):  # type: ignore[no-untyped-def]
            entries = list(store.keys(prefix, shallow=shallow))
            write(store, f"{next(numbers)}")
            return iter(entries)

        def open(self, key: str, pin: object = None):  # type: ignore[no-untyped-def]
            source = store.open(key)
            write(store, f"{next(numbers)}")
            return source

    write(store, "first")
    reader = Read()
    reader.database = store.database

    assert [] == found(reader)
