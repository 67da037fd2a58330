"""What becomes of each chunk that a publisher takes: sealed and stored, or why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from threading import Event, current_thread

import polars as pl
import pytest

from flows.errors import CardlinkError, LimitError
from flows.runs.identity import digest
from flows.runs.keys import keys_of
from flows.runs.sealing import Plain, Sealed
from flows.runs.store import Entry, StoreBusyError
from flows.submissions import publisher as publisher_module
from flows.submissions.chunk_csv import write_chunk
from flows.submissions.publisher import ENOUGH, GROUP, NAME_TAKEN, Outcome, Publisher
from schemas.manifest import ManifestChunk
from tests.memory import MemorySealer, MemorySource, MemoryStore
from tests.memory_bench import MemoryBench, memory_bench
from tests.storms import FailingStore

KEYS = keys_of("bank-20261120-01234567")
Fails = Callable[[str, int], str]  # the trouble of a chunk at its so-manyth sealing


class NotingSealer(MemorySealer):
    """Notes the groups that it is given; chunks fail as `fails` says."""

    def __init__(self, fails: Fails = lambda name, time: "") -> None:
        self.groups: list[list[Plain]] = []
        self.fails = fails

    def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
        self.groups.append(list(chunks))
        names = [plain.name for group in self.groups for plain in group]
        return [
            Sealed(one.name, b"", trouble)
            if (trouble := self.fails(one.name, names.count(one.name)))
            else one
            for one in super().seal(chunks)
        ]

    @property
    def names(self) -> list[list[str]]:
        return sorted([plain.name for plain in group] for group in self.groups)


def rows(number: int) -> pl.DataFrame:
    """Return the rows of a chunk: as many lines as its number says, up to three."""
    return pl.DataFrame({"text": [f"line {at} of {number}" for at in range(number % 3 + 1)]})


def published(
    bench: MemoryBench, chunks: int, sealer: MemorySealer | None, epoch: int = 1
) -> list[Outcome]:
    with closing(Publisher(bench.context, sealer, KEYS, epoch)) as publisher:
        taken = [publisher.add(rows(number)) for number in range(1, chunks + 1)]
        assert list(range(1, chunks + 1)) == taken
        return publisher.finish()


def stored(bench: MemoryBench, number: int) -> bytes:
    return bench.store.objects[KEYS.chunks + KEYS.chunk_name(number)][1]


def numbers(outcomes: Sequence[Outcome]) -> list[int]:
    return [outcome.number for outcome in outcomes]


def failing(bench: MemoryBench, operation: str, part: str, error: Exception) -> MemoryBench:
    def trouble(tried: str, key: str) -> Exception | None:
        return error if tried == operation and part in key else None

    broken = replace(bench)
    broken.store = FailingStore(bench.store, trouble)  # type: ignore[assignment]  # as good a store
    return broken


def test_without_a_sealer_chunks_are_numbered_and_counted_and_nothing_is_stored() -> None:
    bench = memory_bench(portal={"extension": "csv.gpg"})

    outcomes = published(bench, GROUP + 2, None)

    name = f"{KEYS.run}-00002.csv.gpg"
    second = ManifestChunk(number=2, name=name, rows=3, bytes=0, sha256="")
    assert (GROUP + 2, Outcome(2, second)) == (len(outcomes), outcomes[1])
    assert {} == bench.store.objects


def test_chunks_are_sealed_in_groups_and_stored_and_told_in_order() -> None:
    bench = memory_bench()
    sealer = NotingSealer()

    outcomes = published(bench, 2 * GROUP + 3, sealer)

    assert list(range(1, 2 * GROUP + 4)) == numbers(outcomes)
    for outcome in (outcomes[0], outcomes[GROUP], outcomes[-1]):
        data = stored(bench, outcome.number)
        name = KEYS.chunk_name(outcome.number)
        expected = ManifestChunk(
            number=outcome.number,
            name=name,
            rows=outcome.number % 3 + 1,
            bytes=len(data),
            sha256=digest(data),
        )
        assert Outcome(outcome.number, expected) == outcome
        assert data.endswith(write_chunk(rows(outcome.number)["text"], bench.context.header))
    plain = [f"{KEYS.run}-{number:05d}.csv" for number in range(1, 2 * GROUP + 4)]
    assert [plain[:GROUP], plain[GROUP : 2 * GROUP], plain[2 * GROUP :]] == sealer.names


class Watched(MemoryStore):
    """Notes what is opened, and which threads write chunks."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.threads: set[str] = set()

    def create(self, key: str, data: bytes) -> bool:
        if key.startswith(KEYS.chunks):
            self.threads.add(current_thread().name)
            Event().wait(0.01)  # other threads may come
        return super().create(key, data)

    def open(self, key: str, pin: Entry | None = None) -> MemorySource:
        self.opened.append(key)
        return super().open(key, pin)


def test_a_new_chunk_is_hashed_once_and_not_read_by_threads_that_have_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = memory_bench()
    bench.store = store = Watched()
    hashed: list[bytes] = []
    threads: set[str] = set()

    class Named(MemorySealer):
        def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
            threads.add(current_thread().name.partition("_")[0])
            return super().seal(chunks)

    def noting(data: bytes) -> str:
        hashed.append(data)
        return digest(data)

    monkeypatch.setattr(publisher_module, "digest", noting)
    published(bench, 3, Named())

    assert [] == store.opened
    assert 3 == len(hashed)
    assert {"seal"} == threads
    assert {"publish"} == {name.partition("_")[0] for name in store.threads}


@pytest.mark.parametrize("time", [1, 2])
def test_a_sealer_that_gives_back_fewer_chunks_than_it_was_given_ends_the_work(time: int) -> None:
    class Losing(NotingSealer):
        def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
            sealed = super().seal(chunks)
            return sealed[:-1] if len(self.groups) == time else sealed

    with pytest.raises(ValueError, match="shorter"):
        published(memory_bench(), 3, Losing(lambda name, again: "died" * (again == 1)))


def test_no_chunks_are_no_outcomes_and_no_object() -> None:
    bench = memory_bench()

    assert [] == published(bench, 0, NotingSealer())
    assert {} == bench.store.objects


def test_a_group_is_sealed_while_the_next_ones_come() -> None:
    bench = memory_bench()
    come = Event()

    class Waiting(MemorySealer):
        def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
            trouble = "" if come.wait(20) else "waited in vain"
            return [one._replace(trouble=trouble) for one in super().seal(chunks)]

    publisher = Publisher(bench.context, Waiting(), KEYS)
    for number in range(1, 3 * GROUP + 1):
        publisher.add(rows(number))
    come.set()

    assert [""] * 3 * GROUP == [outcome.trouble for outcome in publisher.finish()]


def test_a_chunk_that_fails_once_is_sealed_again_alone() -> None:
    bench = memory_bench()
    failing_once = (KEYS.chunk_name(2, "csv"), KEYS.chunk_name(4, "csv"))
    sealer = NotingSealer(lambda name, time: "died" * (name in failing_once and time == 1))

    outcomes = published(bench, 5, sealer)

    assert [1, 2, 3, 4, 5] == [outcome.chunk.number for outcome in outcomes if outcome.chunk]
    assert [5, 2] == [len(group) for group in sealer.groups]
    assert list(failing_once) == [plain.name for plain in sealer.groups[1]]
    for number in (2, 4):
        assert stored(bench, number).endswith(f"of {number}\n".encode())


def test_a_chunk_that_always_fails_is_told_with_its_trouble_and_not_stored() -> None:
    bench = memory_bench()
    always = KEYS.chunk_name(2, "csv")
    sealer = NotingSealer(lambda name, time: "seal.died" * (name == always))

    outcomes = published(bench, 3, sealer)

    assert Outcome(2, None, "seal.died") == outcomes[1]
    assert [True, False, True] == [outcome.chunk is not None for outcome in outcomes]
    assert KEYS.chunks + KEYS.chunk_name(2) not in bench.store.objects


def test_where_no_chunk_of_a_group_could_be_sealed_nothing_is_stored() -> None:
    bench = memory_bench()

    outcomes = published(bench, 2, NotingSealer(lambda name, time: "seal.died"))

    assert [Outcome(1, None, "seal.died"), Outcome(2, None, "seal.died")] == outcomes
    assert {} == bench.store.objects


def test_whoever_takes_a_run_over_seals_all_of_it_under_names_of_its_own() -> None:
    bench = memory_bench()
    first = published(bench, 2, NotingSealer())
    before = dict(bench.store.objects)

    second = published(bench, 2, NotingSealer(), epoch=3)

    names = [f"{KEYS.run}-e3-0000{number}.csv.pgp" for number in (1, 2)]
    assert names == [outcome.chunk.name for outcome in second if outcome.chunk]
    assert before.items() <= bench.store.objects.items()
    stored_names = [outcome.chunk.name for outcome in (*first, *second) if outcome.chunk]
    assert sorted(bench.store.objects) == sorted(KEYS.chunks + name for name in stored_names)


def test_a_chunk_whose_name_another_object_has_is_told_and_the_object_left_as_it_is() -> None:
    bench = memory_bench()
    bench.store.create(KEYS.chunks + KEYS.chunk_name(2), b"foreign")

    outcomes = published(bench, 3, NotingSealer())

    assert Outcome(2, None, NAME_TAKEN) == outcomes[1]
    assert [True, False, True] == [outcome.chunk is not None for outcome in outcomes]
    assert b"foreign" == stored(bench, 2)


def test_a_write_that_was_repeated_and_found_itself_counts() -> None:
    bench = memory_bench()

    class Repeating(MemoryStore):
        def create(self, key: str, data: bytes) -> bool:
            super().create(key, data)
            return super().create(key, data)

    bench.store = Repeating()

    [outcome] = published(bench, 1, NotingSealer())

    assert outcome.chunk is not None
    assert digest(stored(bench, 1)) == outcome.chunk.sha256


BUSY = StoreBusyError(place="x", code="503")


@pytest.mark.parametrize(
    ("operation", "part", "error", "troubled"),
    [
        ("create", "-00002.csv.pgp", BUSY, [2]),
        ("create", ".csv.pgp", BUSY, [1, 2, 3]),
    ],
)
def test_a_store_that_fails_for_a_moment_troubles_the_chunks_that_it_fails(
    operation: str, part: str, error: CardlinkError, troubled: list[int]
) -> None:
    bench = failing(memory_bench(), operation, part, error)

    outcomes = published(bench, 3, NotingSealer())

    told = [outcome for outcome in outcomes if outcome.chunk is None]
    assert [Outcome(number, None, type(error).__name__) for number in troubled] == told


class MachineAtItsLimitError(LimitError):
    """Stands for a limit of this machine."""

    message = "No more."
    next_step = "Less."


def test_a_limit_of_this_machine_ends_the_work() -> None:
    bench = failing(memory_bench(), "create", "-00002.csv.pgp", MachineAtItsLimitError())

    with pytest.raises(MachineAtItsLimitError):
        published(bench, 3, NotingSealer())


@pytest.mark.parametrize(
    ("failed", "has_given_up"), [(ENOUGH - 1, False), (ENOUGH, True), (ENOUGH + 1, True)]
)
def test_after_enough_failed_chunks_going_on_would_only_take_time(
    failed: int, has_given_up: bool
) -> None:
    limit = KEYS.chunk_name(failed, "csv")
    bench = memory_bench()
    publisher = Publisher(
        bench.context, NotingSealer(lambda name, time: "died" * (name <= limit)), KEYS
    )
    for number in range(1, ENOUGH + GROUP):
        publisher.add(rows(number))
    assert not publisher.has_given_up

    publisher.finish()

    assert has_given_up == publisher.has_given_up


def test_closing_drops_the_groups_that_wait_and_seals_nothing_afterwards() -> None:
    bench = memory_bench()
    begun, ending = Event(), Event()

    class Slow(NotingSealer):
        def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
            begun.set()
            ending.wait(0.2)
            return super().seal(chunks)

    sealer = Slow()
    publisher = Publisher(bench.context, sealer, KEYS)
    for number in range(1, 3 * GROUP + 1):
        publisher.add(rows(number))
    assert begun.wait(20)

    publisher.close()

    sealed = len(sealer.groups)
    assert sealed < 3
    assert [] == [key for key in bench.store.objects if key.startswith(KEYS.chunks)]
    publisher.close()
    assert sealed == len(sealer.groups)


def over_one_connection(store: MemoryStore) -> Publisher:
    """Return a publisher that has taken nine chunks and waits for more."""
    bench = memory_bench()
    bench.store = store
    context = bench.context
    context = context._replace(adapters=context.adapters._replace(connections=1))
    publisher = Publisher(context, NotingSealer(), KEYS)
    for number in range(1, 10):
        publisher.add(rows(number))
    return publisher


def test_closing_drops_the_chunks_that_wait_to_be_published() -> None:
    begun, ending = Event(), Event()

    class Slow(MemoryStore):
        def create(self, key: str, data: bytes) -> bool:
            if key.startswith(KEYS.chunks):
                begun.set()
                ending.wait(0.2)
            return super().create(key, data)

    store = Slow()
    publisher = over_one_connection(store)
    publisher.send()
    assert begun.wait(20)

    publisher.close()

    assert 3 > len([key for key in store.objects if key.startswith(KEYS.chunks)])


def test_over_one_connection_one_thread_writes_all_chunks() -> None:
    store = Watched()

    over_one_connection(store).finish()

    assert {"publish_0"} == store.threads
