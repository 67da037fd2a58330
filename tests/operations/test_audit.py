"""The audit trail: whatever is changed, removed, swapped or inserted is found, and the first of it
is named.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.operations.audit import accept, verify
from flows.operations.audit_entries import CHANGED, INSERTED, REMOVED
from flows.operations.purge import purge
from flows.runs.audit_trail import AuditTrail, audited, settle_trails
from flows.runs.errors import NotFoundError
from flows.runs.events import record_event
from flows.runs.identity import digest
from flows.runs.keys import keys_of, trail
from flows.runs.outbox import move
from flows.runs.store import Store
from flows.runs.trail_entries import entry_key, is_named
from schemas.manifest import Manifest
from tests import servers
from tests.builders import quick
from tests.memory import KilledError, MemoryStore
from tests.night import BANK, NOON, Bench, issuer
from tests.operations.retention import later

MUTATIONS = 400
BY = "anna via worker:1"


def audited_bench(store: Store, **changes: object) -> Bench:
    """Return a bench whose store keeps the audit trail, as every command's does."""
    return Bench(
        audited(store, BY, lambda: NOON), issuer(portal={"rows_per_chunk": 10}, **changes), actor=BY
    )


def nights(bench: Bench) -> list[Manifest]:
    """Live two nights with an answer and decisions of an operator; return their manifests."""
    first = bench.submit(bench.drop(25)).manifest
    move(bench.context.adapters, first.run, "held", [1], "the issuer asked")
    move(bench.context.adapters, first.run, "released", [1], "it is right")
    bench.answer()
    bench.ingest()
    second = bench.submit(bench.drop(15, "bank-20261121.csv", seed=3)).manifest
    move(bench.context.adapters, second.run, "cancelled", [2], "not these")
    return [first, second]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Everything in a store after two nights."""
    folder = tmp_path_factory.mktemp("audit")
    bench = audited_bench(LocalStore(folder))
    nights(bench)
    settle_trails()
    return bench.snapshot()


def stored(objects: dict[str, bytes]) -> MemoryStore:
    """Return a store with these objects."""
    store = MemoryStore()
    for key, data in objects.items():
        store.create(key, data)
    return store


def in_memory(bench_objects: dict[str, bytes]) -> Bench:
    """Return an audited bench on these objects in memory."""
    return audited_bench(stored(bench_objects))


def test_a_store_that_nobody_touched_is_proved_whole(lived: dict[str, bytes]) -> None:
    store = stored(lived)

    proof = verify(store, BANK)

    assert () == proof.findings
    assert sum(1 for key in lived if is_named(key)) == proof.objects
    assert proof.entries >= proof.objects > 10
    assert 0 == proof.older


def mutate(objects: dict[str, bytes], chance: random.Random) -> set[str]:
    """Do one thing to the trail, its records, a chunk or a ledger part; return the keys it was done
    to.
    """
    kinds = ("/audit/", "/chunks/", "/ledger/")
    chained = sorted(key for key in objects if is_named(key) or any(kind in key for kind in kinds))
    key = chance.choice(chained)
    match chance.choice(("byte", "remove", "swap", "insert")):
        case "byte":
            at, data = chance.randrange(len(objects[key])), bytearray(objects[key])
            data[at] ^= 1 << chance.randrange(8)
            objects[key] = bytes(data)
            return {key}
        case "remove":
            del objects[key]
            return {key}
        case "swap":
            other = chance.choice([one for one in chained if objects[one] != objects[key]])
            objects[key], objects[other] = objects[other], objects[key]
            return {key, other}
        case _:
            folder, _, name = key.rpartition("/")
            entries = sum(1 for one in objects if one.startswith(trail(BANK)))
            put = f"{folder}/more-{name}" if "/audit/" not in key else entry_key(BANK, entries + 1)
            if not is_named(put) and not any(kind in put for kind in kinds):
                put = f"{keys_of('bank-20261120-00000000').events}20261120-held.json"
            objects[put] = objects[key]
            return {put}


@pytest.mark.parametrize("seeds", quick(1, [range(40), range(40, MUTATIONS)]), ids=str)
def test_every_mutation_of_a_random_kind_is_found_and_a_touched_object_is_named(
    lived: dict[str, bytes], seeds: range
) -> None:
    missed, unnamed = [], []
    # once it is gone, only the trail can be named
    last = max(key for key in lived if key.startswith(trail(BANK)))
    head = verify(stored(lived), BANK).head

    for seed in seeds:
        objects = dict(lived)
        touched = mutate(objects, random.Random(seed))
        found = verify(stored(objects), BANK, head).findings
        if not found:
            missed.append((seed, touched))
        elif not touched & {one.key for one in found} and last not in touched:
            unnamed.append((seed, touched, found[0]))

    assert [] == missed
    assert [] == unnamed


@pytest.mark.slow
def test_ten_thousand_mutations_are_found(lived: dict[str, bytes]) -> None:
    missed = []
    head = verify(stored(lived), BANK).head

    for seed in range(MUTATIONS, 10_000):
        objects = dict(lived)
        touched = mutate(objects, random.Random(seed))
        if not verify(stored(objects), BANK, head).findings:
            missed.append((seed, touched))

    assert [] == missed


def test_the_first_of_several_is_named_first_with_who_recorded_it(lived: dict[str, bytes]) -> None:
    [event] = [key for key in lived if "-held-" in key]
    [cancelled] = [key for key in lived if "-cancelled-" in key]
    objects = {**lived, event: lived[event].replace(b"issuer", b"ISSUER")}
    del objects[cancelled]

    found = verify(stored(objects), BANK).findings

    assert [(event, CHANGED), (cancelled, REMOVED)] == [(one.key, one.what) for one in found]
    assert BY == found[0].by


def test_a_seal_record_that_no_longer_names_its_chunks_is_found(lived: dict[str, bytes]) -> None:
    seal = next(key for key in lived if "/seals/" in key)
    objects = {**lived, seal: lived[seal].replace(b'":"', b'":"0', 1)}

    found = verify(stored(objects), BANK).findings

    assert [(seal, CHANGED)] == [(one.key, one.what) for one in found]


def test_an_end_that_was_cut_off_shows_against_an_earlier_head(lived: dict[str, bytes]) -> None:
    head = verify(stored(lived), BANK).head
    last = max(key for key in lived if key.startswith(trail(BANK)))
    [record] = [key for key in lived if "-cancelled-" in key]
    cut = {key: data for key, data in lived.items() if key not in (last, record)}

    silent, found = verify(stored(cut), BANK).findings, verify(stored(cut), BANK, head).findings

    assert () == silent
    assert [trail(BANK)] == [one.key for one in found]
    assert () == verify(stored(lived), BANK, head).findings


def test_what_was_written_before_the_trail_is_named_as_not_chained(tmp_path: Path) -> None:
    old = Bench(LocalStore(tmp_path), issuer())
    run = old.submit(old.drop(20)).manifest.run
    before = [key for key in old.snapshot() if is_named(key)]

    move(audited_bench(LocalStore(tmp_path)).context.adapters, run, "held", reason="wait")

    proof = verify(old.store, BANK)
    assert (len(before), ()) == (proof.older, proof.findings)
    old.store.create(f"{keys_of(run).events}20261120-more.json", b"{}")
    (tmp_path / next(key for key in before if "/events/" in key)).unlink()
    assert {INSERTED, REMOVED} == {one.what for one in verify(old.store, BANK).findings}


def test_records_without_any_trail_are_a_finding_until_it_is_accepted_that_a_new_one_begins(
    tmp_path: Path,
) -> None:
    old = Bench(LocalStore(tmp_path), issuer())
    old.submit(old.drop(20))

    [missing] = verify(old.store, BANK).findings
    accept(old.context, missing.key, "a store of a version without a trail")

    assert (trail(BANK), "is missing, and 6 records are there") == (missing.key, missing.what)
    proof = verify(old.store, BANK)
    assert (1, 6, ()) == (proof.entries, proof.older, proof.findings)


def test_an_issuer_without_anything_has_nothing_to_find(tmp_path: Path) -> None:
    assert () == verify(LocalStore(tmp_path), BANK).findings


@pytest.mark.parametrize(
    ("place", "late"), [("/audit/", False), ("/audit/", True), ("/events/", False)]
)
def test_what_a_killed_command_named_and_never_wrote_is_no_finding_and_the_next_one_says_so(
    lived: dict[str, bytes], place: str, late: bool
) -> None:
    store = stored(lived)
    bench = audited_bench(store)
    run = next(key.split("/")[2] for key in lived if "-held-" in key)
    # an event is looked up before it is written
    store.die_at(place, 1 if place == "/audit/" else 2, late=late)

    with pytest.raises(KilledError):
        record_event(bench.context.adapters, keys_of(run), "noted")

    store.revive()
    proof = verify(store, BANK)
    assert () == proof.findings
    assert [BY] * (place == "/events/") == [one.by for one in proof.unfinished]
    an_hour_later = Bench(audited(store, BY, lambda: NOON + timedelta(hours=1)), issuer(), actor=BY)
    record_event(an_hour_later.context.adapters, keys_of(run), "noted again")
    proof = verify(store, BANK)
    assert ((), (), ()) == (proof.findings, proof.unfinished, proof.accepted)


def test_a_process_at_work_is_not_said_to_have_written_nothing(lived: dict[str, bytes]) -> None:
    store = stored(lived)
    run = keys_of(next(key.split("/")[2] for key in lived if "-held-" in key))
    key = f"{run.events}20261120T120000000000-held-00000000.json"
    AuditTrail(store, BY, lambda: NOON).add(BANK, {key: digest(b"{}")})

    record_event(audited_bench(store).context.adapters, run, "noted")

    assert [key] == [one.key for one in verify(store, BANK).unfinished]
    store.create(key, b"{}")
    assert ((), ()) == (verify(store, BANK).findings, verify(store, BANK).unfinished)


def test_a_record_that_was_written_and_settled_is_removed_and_never_unfinished(
    lived: dict[str, bytes],
) -> None:
    """The last record of a command, too: a command settles what it wrote when it ends."""
    [last] = [key for key in lived if "-cancelled-" in key]
    objects = {key: data for key, data in lived.items() if key != last}

    assert [(last, REMOVED)] == [
        (one.key, one.what) for one in verify(stored(objects), BANK).findings
    ]


def test_only_findings_can_be_accepted_and_only_as_they_are(lived: dict[str, bytes]) -> None:
    bench, [event] = in_memory(lived), [key for key in lived if "-held-" in key]

    with pytest.raises(NotFoundError):
        accept(bench.context, event, "it looks odd")
    bench.store.replace(event, [b"{}"])
    accept(bench.context, event, "restored by hand")

    assert () == verify(bench.store, BANK).findings
    bench.store.replace(event, [b"{ }"])
    assert [event] == [one.key for one in verify(bench.store, BANK).findings]


def test_writers_at_the_same_time_lose_no_entry(tmp_path: Path) -> None:
    (tmp_path / "bank").mkdir()
    run = keys_of("bank-20261120-00000000")

    def write(writer: int) -> None:
        bench = audited_bench(LocalStore(tmp_path))
        for number in range(10):
            record_event(bench.context.adapters, run, "noted", writer=writer, number=number)

    with ThreadPoolExecutor(6) as writers:
        list(writers.map(write, range(6)))

    proof = verify(LocalStore(tmp_path), BANK)
    assert (60, 60, ()) == (proof.entries, proof.objects, proof.findings)


def test_one_more_thousand_of_entries_goes_to_the_next_folder() -> None:
    store = MemoryStore()
    bench, run = audited_bench(store), keys_of("bank-20261120-00000000")
    for number in range(1001):
        record_event(bench.context.adapters, run, "noted", number=number)

    record_event(audited_bench(store).context.adapters, run, "noted", number=1001)

    assert (1002, ()) == (verify(store, BANK).entries, verify(store, BANK).findings)
    assert "bank/audit/0001/001002.json" in store.objects


@pytest.mark.slow
def test_a_trail_on_s3_is_kept_and_proved_by_the_same_code(moto_server: servers.S3Server) -> None:
    bench = audited_bench(servers.store(moto_server, "audited"))
    run = bench.submit(bench.drop(15)).manifest.run
    move(bench.context.adapters, run, "held", [1], "the issuer asked")
    whole = verify(bench.store, BANK)

    bench.store.replace(keys_of(run).chunks + keys_of(run).chunk_name(2), [b"another"])

    assert (7, ()) == (whole.entries, whole.findings)
    assert [keys_of(run).chunks + keys_of(run).chunk_name(2)] == [
        one.key for one in verify(bench.store, BANK).findings
    ]


@pytest.mark.slow
def test_a_purge_leaves_a_trail_that_is_whole(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    bench = audited_bench(store)
    bench.now = lambda: datetime.now(UTC)  # objects are dated by the store's clock
    run = nights(bench)[0].run

    purge(later(bench, 9).context, store)

    assert not list(store.keys(keys_of(run).chunks))
    assert () == verify(store, BANK).findings
