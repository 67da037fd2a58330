"""The journal: whatever is changed, removed, swapped or inserted is found, and the first of it is named."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from flows.adapters.local import LocalStore
from flows.database.connection import Database
from flows.extensions.deliveries.delivery import deliver
from flows.operations.audit import accept, verify
from flows.operations.audit_journal import CHANGED, INSERTED, REMOVED
from flows.operations.purge import purge
from flows.operations.remediation import dismiss
from flows.runs.audited_store import UNDER_WAY
from flows.runs.errors import NotFoundError
from flows.runs.keys import keys_of
from flows.runs.named_objects import is_named
from flows.runs.outbox import move
from schemas.manifest import Manifest
from tests import servers
from tests.builders import quick
from tests.memory import KilledError, MemoryStore
from tests.night import BANK, NOON, Bench, edges, issuer, local_bench
from tests.operations.lived import Lived
from tests.operations.retention import later

RECORD = "/deliveries/"
MUTATIONS = 400
BY = "anna via worker:1"


def bench_at(folder: Path, **changes: object) -> Bench:
    """Return a bench on a directory store and a database of its own."""
    return replace(local_bench(folder, portal={"rows_per_chunk": 10}, **changes), actor=BY)


def nights(bench: Bench) -> list[Manifest]:
    """Live two nights with an answer and decisions of an operator; return their manifests."""
    first = bench.submit(bench.drop(25)).manifest
    move(bench.context.adapters, first.run, "held", [1], "the issuer asked")
    move(bench.context.adapters, first.run, "released", [1], "it is right")
    bench.answer()
    bench.ingest()
    deliver(bench.context)
    second = bench.submit(bench.drop(15, "bank-20261121.csv", seed=3)).manifest
    move(bench.context.adapters, second.run, "cancelled", [2], "not these")
    dismiss(bench.context, bench.drop(3, "test.csv", seed=4), "a test")
    return [first, second]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """Everything after two nights."""
    bench = bench_at(tmp_path_factory.mktemp("audit"))
    nights(bench)
    return Lived.of(bench)


def test_what_nobody_touched_is_proved_whole(lived: Lived) -> None:
    proof = lived.proof()

    assert ((), ()) == (proof.findings, proof.unfinished)
    assert sum(1 for key in lived.objects if is_named(key)) == proof.objects
    assert proof.entries >= proof.objects > 1


class Mutation(NamedTuple):
    """The objects after something was done to them, or the statement that does it to the journal;
    what it was done to, by any of these names.
    """

    objects: dict[str, bytes]
    statements: tuple[str, ...]
    touched: set[str]


def mutate(lived: Lived, chance: random.Random, entries: int) -> Mutation:
    """Do one thing to a record, a chunk or a ledger part, or to an entry of the journal."""
    if chance.random() < 0.4:
        return mutate_entry(lived, chance, entries)
    objects = dict(lived.objects)
    kinds = ("/chunks/", "/ledger/")
    chained = sorted(key for key in objects if is_named(key) or any(kind in key for kind in kinds))
    key = chance.choice(chained)
    touched = {key}
    match chance.choice(("byte", "remove", "swap", "insert")):
        case "byte":
            at, data = chance.randrange(len(objects[key])), bytearray(objects[key])
            data[at] ^= 1 << chance.randrange(8)
            objects[key] = bytes(data)
        case "remove":
            del objects[key]
        case "swap":
            other = chance.choice([one for one in chained if objects[one] != objects[key]])
            objects[key], objects[other] = objects[other], objects[key]
            touched.add(other)
        case _:
            folder, _, name = key.rpartition("/")
            put = f"{folder}/more-{name}"
            if not is_named(put) and not any(kind in put for kind in kinds):
                put = f"{BANK}/deliveries/000077/links.csv"
            objects[put] = objects[key]
            touched = {put}
    return Mutation(objects, (), touched)


def mutate_entry(lived: Lived, chance: random.Random, entries: int) -> Mutation:
    """Do one thing to an entry of the journal, as who writes to the database can."""
    number, other = chance.sample(range(1, entries + 1), 2)
    of_it = f"where number = {number}"
    column = chance.choice(["by", "what", "reason", "before", "digest", "run", "proved_by"])
    named = f"journal/{number}"
    statements: tuple[str, ...]
    match chance.choice(("column", "at", "facts", "remove", "swap", "insert")):
        case "column":
            statements = (
                f"""update journal set "{column}" = coalesce("{column}", '') || 'x' {of_it}""",
            )
        case "at":
            statements = (f"update journal set at = '2026-01-01 00:00:00.000000' {of_it}",)
        case "facts":
            statements = (f"""update journal set facts = '{{"objects": {{}}}}' {of_it}""",)
        case "remove":
            statements = (f"delete from journal {of_it}",)
        case "swap":
            pairs = ((number, -1), (other, number), (-1, other))
            set_number = "update journal set number = {} where number = {}"
            statements = tuple(set_number.format(new, old) for old, new in pairs)
        case _:
            columns = "issuer, at, by, what, run, reason, facts, changes, before, digest, proof, proved_by"
            statements = (
                f"insert into journal (number, {columns}) select {entries + 1}, {columns} "
                f"from journal {of_it}",
            )
            named = f"journal/{entries + 1}"
    ignoring = "pragma ignore_check_constraints = on"
    return Mutation(lived.objects, (ignoring, *statements), {named})


@pytest.mark.parametrize("seeds", quick(1, [range(40), range(40, MUTATIONS)]), ids=str)
def test_every_mutation_of_a_random_kind_is_found_and_what_was_touched_is_named(
    lived: Lived, seeds: range
) -> None:
    missed, unnamed = [], []
    whole = lived.proof()
    last = f"journal/{whole.entries}"  # once it is gone, only the journal can be named

    for seed in seeds:
        mutation = mutate(lived, random.Random(seed), whole.entries)
        found = lived.proof(mutation.objects, *mutation.statements, head=whole.head).findings
        if not found:
            missed.append((seed, mutation.touched, mutation.statements))
        elif not mutation.touched & {one.key for one in found} and last not in mutation.touched:
            unnamed.append((seed, mutation.touched, found[0]))

    assert [] == missed
    assert [] == unnamed


@pytest.mark.slow
def test_thousands_of_mutations_are_found(lived: Lived) -> None:
    missed = []
    whole = lived.proof()

    for seed in range(MUTATIONS, 4_000):
        mutation = mutate(lived, random.Random(seed), whole.entries)
        if not lived.proof(mutation.objects, *mutation.statements, head=whole.head).findings:
            missed.append((seed, mutation.touched))

    assert [] == missed


@pytest.mark.parametrize(
    ("statement", "place", "what"),
    [
        ("update decision set reason = 'another'", "decision/1", CHANGED),
        ("update decision set facts = '{}'", "decision/1", CHANGED),
        ("delete from decision", "decision/1", REMOVED),
        ("update decision set number = 9 where number = 1", "decision/9", INSERTED),
    ],
)
def test_a_row_that_no_entry_wrote_so_is_found_and_accepted_as_it_is(
    lived: Lived, statement: str, place: str, what: str
) -> None:
    bench = lived.changed(None, statement)
    found = {(one.key, one.what) for one in verify(bench.adapters, BANK).findings}

    accept(bench.context, place, "see ticket 7")

    assert (place, what) in found
    assert place not in {one.key for one in verify(bench.adapters, BANK).findings}


@pytest.mark.parametrize(
    ("statement", "places"),
    [
        ("update chunk set sha256 = 'another' where number = 1", {"chunk": 2}),
        ("update run set reason = 'another', report_due = 1 where number = 2", {"run": 1}),
        ("delete from chunk where number = 2", {"chunk": 2}),
        ("update run set state = 'replaced', replaced_by = 'x'", {"run": 2}),
    ],
)
def test_runs_and_chunks_that_no_entry_wrote_so_are_found(
    lived: Lived, statement: str, places: dict[str, int]
) -> None:
    ignoring = "pragma ignore_check_constraints = on"

    found = lived.proof(None, ignoring, statement).findings

    assert places == Counter(one.key.partition("/")[0] for one in found if one.entry)


def test_the_first_of_several_is_named_first_with_who_recorded_it(lived: Lived) -> None:
    first, *_, last = sorted(key for key in lived.objects if RECORD in key)
    objects = {**lived.objects, first: b"{}"}
    del objects[last]

    found = lived.proof(objects).findings

    assert {(first, CHANGED), (last, REMOVED)} <= {(one.key, one.what) for one in found}
    numbers = [one.entry for one in found if one.entry]
    assert sorted(numbers) == numbers
    assert BY == found[0].by


def test_chunks_of_an_epoch_that_was_never_committed_are_no_finding(lived: Lived) -> None:
    chunk = next(key for key in lived.objects if "/chunks/" in key)
    left = f"{chunk[:-14]}-e7{chunk[-14:]}"

    assert set() == lived.found({**lived.objects, left: b"sealed by who lost the claim"})


def test_an_end_that_was_cut_off_shows_against_an_earlier_head(lived: Lived) -> None:
    whole = lived.proof()
    cut = f"delete from journal where number = {whole.entries}"
    last = "delete from decision where number = (select max(number) from decision)"

    assert "journal" in {one.key for one in lived.proof(None, cut, last, head=whole.head).findings}
    assert "journal" not in {one.key for one in lived.proof(None, cut, last).findings}
    assert () == lived.proof(head=whole.head).findings


def test_a_database_without_a_journal_is_a_finding_until_it_is_accepted_that_another_begins(
    lived: Lived,
) -> None:
    bench = lived.changed(None, "delete from journal", "delete from decision")
    [missing] = verify(bench.adapters, BANK).findings
    objects = sum(1 for key in lived.objects if is_named(key))
    query = "select (select count(*) from run) + (select count(*) from chunk)"
    with bench.database.snapshot() as connection:
        rows = connection.exec_driver_sql(query).scalar_one()

    accept(bench.context, missing.key, "the database was lost")

    assert "journal" == missing.key
    assert objects + rows <= int(missing.what.split()[3])
    proof = verify(bench.adapters, BANK)
    assert (1, objects, ()) == (proof.entries, proof.objects, proof.findings)


def test_an_issuer_without_anything_has_nothing_to_find(tmp_path: Path) -> None:
    assert () == verify(edges(LocalStore(tmp_path)), BANK).findings


@pytest.mark.parametrize("late", [False, True])
def test_what_a_killed_command_named_is_no_finding_and_told_where_it_is_not_there(
    lived: Lived, *, late: bool
) -> None:
    bench = lived.changed()
    store = cast(MemoryStore, bench.store)
    store.die_at("/links-", 2, late=late)  # it is looked up before it is written
    key = f"{BANK}/deliveries/000001/links-noted.csv"

    with pytest.raises(KilledError):
        bench.adapters.store.create(key, b"{}")

    store.revive()
    proof = verify(bench.adapters, BANK)
    assert ((), ()) == (proof.findings, proof.unfinished)  # it may still be at work
    later = replace(bench, now=lambda: NOON + UNDER_WAY)
    proof = verify(later.adapters, BANK)
    assert ((), [key] * (not late)) == (proof.findings, [one.key for one in proof.unfinished])
    if not late:
        assert later.adapters.store.create(key, b"{ }")
        proof = verify(later.adapters, BANK)
        assert ((), ()) == (proof.findings, proof.unfinished)


def test_a_record_that_was_written_is_removed_and_never_unfinished(lived: Lived) -> None:
    """The last record of a command, too: that it was written is noted at once."""
    last = max(key for key in lived.objects if is_named(key))
    objects = {key: data for key, data in lived.objects.items() if key != last}

    assert (last, REMOVED) in lived.found(objects)


def test_only_findings_can_be_accepted_and_only_as_they_are(lived: Lived) -> None:
    bench = lived.changed()
    record = max(key for key in lived.objects if RECORD in key)

    with pytest.raises(NotFoundError):
        accept(bench.context, record, "it looks odd")
    bench.store.replace(record, [b"{}"])
    accept(bench.context, record, "restored by hand")

    assert record not in {one.key for one in verify(bench.adapters, BANK).findings}
    bench.store.replace(record, [b"{ }"])
    assert record in {one.key for one in verify(bench.adapters, BANK).findings}


def test_writers_at_the_same_time_lose_no_entry(tmp_path: Path, database: Database) -> None:
    (tmp_path / "bank").mkdir()
    store = LocalStore(tmp_path)

    def write(writer: int) -> None:
        adapters = edges(store, database)
        for number in range(10):
            adapters.store.create(f"{BANK}/deliveries/{writer:06d}/links-{number}.csv", b"{}")

    with ThreadPoolExecutor(6) as writers:
        list(writers.map(write, range(6)))

    proof = verify(edges(store, database), BANK)
    assert (120, 60, ()) == (proof.entries, proof.objects, proof.findings)


@pytest.mark.slow
def test_objects_on_s3_are_proved_by_the_same_code(moto_server: servers.S3Server) -> None:
    bench = Bench(servers.store(moto_server, "audited"), issuer(portal={"rows_per_chunk": 10}))
    run = bench.submit(bench.drop(15)).manifest.run
    move(bench.context.adapters, run, "held", [1], "the issuer asked")
    whole = verify(bench.adapters, BANK)
    chunk = keys_of(run).chunks + keys_of(run).chunk_name(2)

    bench.store.replace(chunk, [b"another"])

    assert () == whole.findings
    assert [chunk] == [one.key for one in verify(bench.adapters, BANK).findings]


@pytest.mark.slow
def test_a_purge_leaves_what_is_proved_whole(tmp_path: Path) -> None:
    bench = bench_at(tmp_path)
    store = cast(LocalStore, bench.store)
    bench.now = lambda: datetime.now(UTC)  # objects are dated by the store's clock
    run = nights(bench)[0].run

    purge(later(bench, 9).context, store)

    assert not list(store.keys(keys_of(run).chunks))
    assert () == verify(bench.adapters, BANK).findings
