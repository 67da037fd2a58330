"""What a proof found whole spares the next one work, and hides nothing from it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest

from flows.adapters.local import LocalStore
from flows.database.connection import Database
from flows.operations.audit import Proof, verify, verify_and_keep
from flows.operations.audit_contents import facts_of_runs
from flows.operations.audit_links import OTHER_LINKS
from flows.operations.audit_objects import Snapshot
from flows.operations.delivered_so_far import confirm
from flows.operations.delivery import deliver
from flows.runs.adapters import Adapters
from flows.runs.audit_trail import audited, settle_trails
from flows.runs.identity import digest
from flows.runs.store import Entry
from flows.runs.trail_proof import NOT_PROVED, HmacProver, Prover
from tests import servers
from tests.builders import quick
from tests.memory import MemorySource, MemoryStore
from tests.night import BANK, NOON, Bench, issuer
from tests.operations.test_audit import mutate
from tests.operations.test_trail_covers import key_of, with_swapped_csv, with_swapped_parquet

Objects = dict[str, bytes]
KEY = HmacProver.of("1" * 64)
PLACE = "bank/book/proven.json"
MUTATIONS = 120


def night(bench: Bench, number: int) -> None:
    """Live a night with results and a delivery."""
    bench.submit(bench.drop(25, f"bank-2026112{number}.csv", seed=number + 1))
    bench.answer(fail_share=0.3 * number, seed=number)
    bench.ingest()
    deliver(bench.context)
    settle_trails()


def keyed(store: LocalStore, prover: Prover = KEY) -> Bench:
    settings = issuer(portal={"rows_per_chunk": 10})
    return Bench(audited(store, "anna", lambda: NOON, prover), settings, actor="anna")


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    """Everything in a store after two nights of which a proof found all whole."""
    bench = keyed(LocalStore(tmp_path_factory.mktemp("proven")))
    night(bench, 0)
    confirm(bench.context, 1, "received")
    night(bench, 1)
    store = stored(bench.snapshot())
    prove(store)
    return {key: data for key, (_, data) in store.objects.items()}


def stored(objects: Mapping[str, bytes]) -> MemoryStore:
    store = MemoryStore()
    for key, data in objects.items():
        store.create(key, data)
    return store


def prove(store: MemoryStore, prover: Prover = KEY, *, anew: bool = False) -> Proof:
    """Prove the trail as the command does."""
    database = Database("sqlite://")
    adapters = Adapters(store, lambda: NOON, "anna", lambda *_: None, database, prover=prover)
    return verify_and_keep(adapters, BANK, anew=anew)[0]


def found(objects: Mapping[str, bytes]) -> set[tuple[str, str]]:
    """Return what a proof finds in a store of which an earlier one is kept."""
    findings = verify(stored(objects), BANK, prover=KEY).findings
    return {(finding.key, finding.what) for finding in findings}


def test_a_second_proof_judges_nothing_again_reads_everything_and_says_since_when(
    lived: Objects,
) -> None:
    store = stored(lived)

    first = prove(store, anew=True)
    second = prove(store)

    assert (0, 0, None) == (first.proven_runs, first.proven_entries, first.proven_at)
    assert (2, first.entries, NOON) == (second.proven_runs, second.proven_entries, second.proven_at)
    assert (first.read, first.runs, first.head) == (second.read, second.runs, second.head)


def test_without_the_key_of_the_trail_nothing_is_kept_and_nothing_rests_on_what_was(
    lived: Objects,
) -> None:
    store = stored(lived)

    proof = prove(store, NOT_PROVED)

    assert (2, 0, None) == (proof.runs, proof.proven_runs, proof.proven_at)
    assert lived[PLACE] == store.objects[PLACE][1]
    assert None is prove(store, HmacProver.of("2" * 64)).proven_at


@pytest.mark.slow
def test_a_later_night_alone_is_judged(tmp_path_factory: pytest.TempPathFactory) -> None:
    bench = keyed(LocalStore(tmp_path_factory.mktemp("later")))
    night(bench, 0)
    first = verify_and_keep(bench.context.adapters._replace(prover=KEY), BANK)[0]
    night(bench, 1)

    second = verify(bench.store, BANK, prover=KEY)

    assert (1, 2, first.entries) == (second.proven_runs, second.runs, second.proven_entries)
    assert () == second.findings


@pytest.mark.parametrize(
    ("part", "forge"),
    [
        ("/outcomes/", with_swapped_parquet),
        ("/report/rows/", with_swapped_parquet),
        ("/report/links/", with_swapped_parquet),
        ("/report/links.csv", with_swapped_csv),
        ("/deliveries/000001/links.parquet", with_swapped_parquet),
        ("/results/", lambda content: content.replace(b",", b", ")),
        ("/claims/000001.json", lambda content: content.replace(b":", b": ", 1)),
        ("/seals/", lambda content: content.replace(b'":"', b'":"0', 1)),
        ("/outcomes/", None),
        ("/report/rows/", None),
        ("/chunks/", None),
        ("/audit/", None),
    ],
)
def test_what_is_changed_or_removed_after_a_proof_is_found_as_without_it(
    lived: Objects, part: str, forge: Callable[[bytes], bytes] | None
) -> None:
    key = key_of(lived, part)
    forged = {**lived, key: forge(lived[key]) if forge else b""}
    forged = {name: data for name, data in forged.items() if data}

    expected = found({name: data for name, data in forged.items() if name != PLACE})

    assert expected == found(forged)
    assert bool(expected) or part == "/report/rows/"  # a report without rows hands out no link


@pytest.mark.parametrize("seeds", quick(1, [range(15), range(15, MUTATIONS)]), ids=str)
def test_random_mutations_after_a_proof_are_found_as_without_it(
    lived: Objects, seeds: range
) -> None:
    different = []

    for seed in seeds:
        objects = dict(lived)
        touched = mutate(objects, random.Random(seed))
        without = {key: data for key, data in objects.items() if key != PLACE}
        if found(objects) != found(without):
            different.append((seed, touched))

    assert [] == different


def with_swapped_links(objects: Objects) -> tuple[str, Objects]:
    key = key_of(objects, "/report/rows/")
    return key, {**objects, key: with_swapped_parquet(objects[key])}


def proven_with(objects: Objects, key: str, prover: Prover) -> bytes:
    """Return what is kept, changed so that the run of an object is whole as it is now."""
    content, _, line = objects[PLACE].rstrip().rpartition(b"\n")
    run = key.split("/")[2]
    before, _ = json.loads(content)["runs"][run]
    now = facts_of_runs(Snapshot(stored(objects), f"{BANK}/"), BANK)[run]
    content = content.replace(before.encode(), now.encode())
    proof = prover.proof(f"cardlink: proven of {BANK}: {digest(content)}".encode())
    signature = json.loads(line) | ({"proof": proof} if proof else {})
    return content + b"\n" + json.dumps(signature).encode()


@pytest.mark.parametrize("prover", [NOT_PROVED, HmacProver.of("2" * 64)])
def test_what_somebody_made_up_as_proven_is_not_believed(lived: Objects, prover: Prover) -> None:
    key, swapped = with_swapped_links(lived)
    believed = {**swapped, PLACE: proven_with(swapped, key, KEY)}

    forged = {**swapped, PLACE: proven_with(swapped, key, prover)}

    assert set() == found(believed)  # with the key of the trail it would be
    assert {(key, OTHER_LINKS)} <= found(forged)


def test_what_an_earlier_proof_kept_is_put_back_in_vain(lived: Objects) -> None:
    store = stored(lived)
    key, swapped = with_swapped_links(lived)
    prove(store, anew=True)

    put_back = {**swapped, PLACE: store.objects[PLACE][1]}

    assert {(key, OTHER_LINKS)} <= found(put_back)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-20],
        lambda content: content.replace(b'"at":"2026', b'"at":"2027', 1),
        lambda content: b"{}\n{}\n",
        lambda content: b"\xff" + content,
    ],
)
def test_what_is_damaged_is_made_anew(lived: Objects, damage: Callable[[bytes], bytes]) -> None:
    store = stored({**lived, PLACE: damage(lived[PLACE])})

    proof = prove(store)

    assert ((), None) == (proof.findings, proof.proven_at)
    assert NOON == prove(store).proven_at


class Exchanging(MemoryStore):
    """A store in which somebody exchanges an object between its first and its second read."""

    def __init__(self, objects: Mapping[str, bytes], key: str, first: bytes) -> None:
        super().__init__()
        for name, data in objects.items():
            self.create(name, data)
        self._exchanged = key
        self._first = stored({key: first})
        self._reads = 0

    def open(self, key: str, pin: Entry | None = None) -> MemorySource:
        if key == self._exchanged:
            self._reads += 1
            if self._reads == 1:
                return self._first.open(key, pin)
        return super().open(key, pin)


@pytest.mark.parametrize(
    ("part", "forge"),
    [
        ("/report/rows/", with_swapped_parquet),
        ("/report/links.csv", with_swapped_csv),
        ("/seals/", lambda content: content.replace(b'":"', b'":"0', 1)),
    ],
)
def test_an_object_that_is_exchanged_while_it_is_proven_does_not_count_as_proven(
    lived: Objects, part: str, forge: Callable[[bytes], bytes]
) -> None:
    key = key_of(lived, part)
    forged = forge(lived[key])
    genuine = {name: data for name, data in lived.items() if name != PLACE}
    store = Exchanging(genuine, key, forged)

    prove(store)

    kept = {name: data for name, (_, data) in store.objects.items()}
    assert found({**genuine, key: forged}) == found({**kept, key: forged}) != set()


class Marking(MemoryStore):
    """A store that marks each write, as S3 does."""

    def mark(self, entry: Entry) -> str:
        return entry.version


def test_where_the_store_marks_each_write_only_what_is_new_is_read(lived: Objects) -> None:
    store = Marking()
    for name, data in lived.items():
        store.create(name, data)
    first = prove(store, anew=True)

    second = prove(store)
    anew = prove(store, anew=True)

    key = key_of(lived, "/events/")
    store.replace(key, [lived[key].replace(b"anna", b"otto")])
    results = sum(1 for name in lived if "/results/" in name)
    assert (results, first.read - results) == (second.read, second.proven_objects)
    assert (first.read, 0) == (anew.read, anew.proven_objects)
    assert [key] == [finding.key for finding in prove(store).findings]


@pytest.mark.slow
def test_on_s3_what_has_the_mark_of_then_is_not_read_again(moto_server: servers.S3Server) -> None:
    store = servers.store(moto_server, "proven")
    bench = Bench(audited(store, "anna", lambda: NOON, KEY), issuer())
    run = bench.submit(bench.drop(15)).manifest.run
    settle_trails()
    adapters = bench.context.adapters._replace(prover=KEY, now=lambda: NOON + timedelta(days=1))
    first, is_kept = verify_and_keep(adapters, BANK)

    second = verify(bench.store, BANK, prover=KEY)
    chunk = key_of(bench.snapshot(), f"{run}/chunks/")
    store.replace(chunk, [b"another"])

    assert (True, first.read, 0) == (is_kept, second.proven_objects, second.read)
    assert [chunk] == [one.key for one in verify(bench.store, BANK, prover=KEY).findings]
