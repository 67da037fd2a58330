"""What the trail says of an object that is written again, by processes that get in each other's
way for longer than any clock tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta

import pytest

from flows.operations.audit import verify
from flows.operations.audit_entries import CHANGED
from flows.runs.audit_trail import audited
from flows.runs.store import Store, read
from tests.memory import KilledError, MemoryStore
from tests.night import BANK, NOON

KEY = "bank/runs/bank-20261120-00000000/outcomes/of-a-file.parquet"


class Away(MemoryStore):
    """A store whose writers are away between naming and writing, and something happens then."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile = list[Callable[[], object]]()

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        content = list(parts)
        if self.meanwhile:
            self.meanwhile.pop()()
        super().replace(key, content)


def write(store: Store, by: str, after: timedelta) -> None:
    """Write the object as somebody whose clock is so much later, and who may be killed."""
    with suppress(KilledError):
        audited(store, by, lambda: NOON + after).replace(KEY, [by.encode()])


def killed() -> None:
    raise KilledError


def record(store: Store) -> None:
    """Record something as the next command, when nobody is at work any more."""
    later = audited(store, "carla", lambda: NOON + timedelta(hours=6))
    later.create(f"{BANK}/approvals/abc/000001.json", b"{}")


def written(after: timedelta, *, anna_dies: bool, ben_dies: bool) -> Away:
    """Return a store that nora wrote to, then ben after anna had named what she writes, then anna;
    except who dies before that.
    """
    store = Away()
    write(store, "nora", -timedelta(hours=3))

    def ben_comes() -> None:
        store.meanwhile = [killed] * ben_dies
        write(store, "ben", after)
        if anna_dies:
            killed()

    store.meanwhile = [ben_comes]
    write(store, "anna", timedelta())
    return store


@pytest.mark.parametrize("after", [timedelta(minutes=1), timedelta(hours=3)])
@pytest.mark.parametrize(
    ("anna_dies", "ben_dies", "last"),
    [
        (False, False, b"anna"),
        (False, True, b"anna"),
        (True, False, b"ben"),
        (True, True, b"nora"),
    ],
)
def test_the_trail_names_what_is_stored_whoever_was_away_or_died_between_naming_and_writing(
    after: timedelta, *, anna_dies: bool, ben_dies: bool, last: bytes
) -> None:
    store = written(after, anna_dies=anna_dies, ben_dies=ben_dies)
    before = verify(store, BANK).findings

    record(store)

    assert (last, (), ()) == (read(store, KEY), before, verify(store, BANK).findings)


@pytest.mark.parametrize("anna_dies", [False, True])
def test_what_nobody_named_is_found_also_after_two_had_written_at_once(*, anna_dies: bool) -> None:
    store = written(timedelta(minutes=1), anna_dies=anna_dies, ben_dies=False)

    store.replace(KEY, [b"a stranger's"])
    record(store)

    assert [(KEY, CHANGED)] == [(one.key, one.what) for one in verify(store, BANK).findings]
