"""A database that is lost, old or another store's is refused, and made again from the journal in the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import psycopg
import pytest
from click.testing import CliRunner, Result

from flows import wiring
from flows.adapters.local import LocalStore
from flows.book.book import read_book
from flows.cli.main import main
from flows.database.connection import Database
from flows.extensions.deliveries.delivered import read_changes
from flows.extensions.deliveries.delivery import deliver
from flows.extensions.governance.in_force import compared
from flows.extensions.governance.requests import unexpired
from flows.extensions.governance.two_persons import ApprovalError, Command, carrying_out, request
from flows.extensions.partner_api.link_plan import LOST, NO_ANSWER, RowName, RowOutcome, plan_links
from flows.operations.audit import verify
from flows.operations.recovery import SegmentsError, recover
from flows.runs.adapters import Adapters
from flows.runs.decisions import CARDS, decide
from flows.runs.erased import NamedPeople
from flows.runs.journal import Act, enter, entries
from flows.runs.keys import keys_of
from flows.runs.persons import by_person, forget_persons, holders_of
from flows.runs.single_links import record_request, row_attempt
from flows.runs.store import Entry, Store
from flows.runs.stored_journal import OtherJournalError, flush_journal, stored_entries
from schemas.records import GivingUp, NamedCard, SingleAnswered, SingleAsked
from tests import keys
from tests.extensions.partner_api.linker import SERVICE
from tests.memory import MemoryStore
from tests.night import BANK, DAY, NOON, Bench, edges, issuer, local_bench
from tests.operations.test_checkpoints import TOML
from tests.singles import recorded
from tests.storms import FailingStore

WHY = ("--reason", "ticket 7")
CHANGING = (
    ("submit", BANK),
    ("ingest", BANK),
    ("deliver", BANK),
    ("purge", BANK),
    ("dismiss", BANK, "other.csv", *WHY),
)
REFUSED = "is not the one that its store was last written with"


@dataclass
class Bank:
    """An issuer's folder, and where its database is."""

    folder: Path
    address: str

    def typed(self, *arguments: str) -> Result:
        """Type a command with the database at the address."""
        wiring._database.cache_clear()
        environment = {"CARDLINK_DATABASE_URL": self.address}
        return CliRunner().invoke(main, ["--config", str(self.folder), *arguments], env=environment)

    def done(self, *arguments: str) -> dict[str, object]:
        """Type a command that works; return its facts."""
        result = self.typed("--json", *arguments)
        assert 0 == result.exit_code, result.output
        facts: dict[str, object] = json.loads(result.stdout)
        return facts

    @property
    def bench(self) -> Bench:
        """What the portal and readers see."""
        store = LocalStore(self.folder / "store")
        return Bench(store, issuer(), folder=self.folder, database=Database(self.address))

    def cards(self) -> list[tuple[object, ...]]:
        """Return where each card stands."""
        bench = self.bench
        stands = read_book(bench.adapters, BANK).cards(DAY)
        bench.database.close()
        return sorted(stands.select("cuid", "last_4", "standing").rows(), key=str)

    def drop(self, day: str, seed: int) -> None:
        self.bench.drop(12, f"bank-{day}.csv", seed=seed)

    def answer(self) -> None:
        bench = self.bench
        bench.answer()
        bench.database.close()


Copies = Callable[[], str]


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def bank(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Bank, Copies, Copies]]:
    """A bank, what copies its database as it is now, and what makes an empty one: by address."""
    (tmp_path / "portal.asc").write_bytes(keys.sound().public)
    (tmp_path / "bank.toml").write_text(TOML.format(fingerprint=keys.sound().fingerprint))
    (tmp_path / "store").mkdir()
    numbers = iter(range(100))
    if request.param == "SQLite":

        def empty() -> str:
            return f"sqlite:///{tmp_path}/{next(numbers)}.db"

        one = Bank(tmp_path, empty())

        def copy() -> str:
            file = tmp_path / f"copy-{next(numbers)}.db"
            assert 0 == one.typed("backup", str(file)).exit_code
            return f"sqlite:///{file}"

        yield one, copy, empty
        return
    server = request.getfixturevalue("postgresql_server")
    made = list[str]()
    with psycopg.connect(server.address, autocommit=True) as connection:

        def create(template: str) -> str:
            made.append(f"recovery{next(numbers)}")
            connection.execute(f"CREATE DATABASE {made[-1]} TEMPLATE {template}".encode())
            return str(server.address.replace("/postgres?", f"/{made[-1]}?"))

        def name_of(address: str) -> str:
            return (
                address.rpartition("/")[2].partition("?")[0]
                if "?" not in address
                else (address.partition("?")[0].rpartition("/")[2])
            )

        one = Bank(tmp_path, create("template0"))

        def copy_now() -> str:
            name = name_of(one.address)
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )
            return create(name)

        yield one, copy_now, lambda: create("template0")
        for name in made:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def lived(bank: Bank, copy: Copies) -> list[str]:
    """Live two nights with a decision; return a copy of the database after each act."""
    copies = []
    acts = (
        lambda: bank.drop("20261119", 1),
        lambda: bank.done("submit", BANK, "--date", "2026-11-19"),
        bank.answer,
        lambda: bank.done("ingest", BANK),
        lambda: bank.drop("20261120", 2),
        lambda: bank.done("submit", BANK, "--date", "2026-11-20"),
        lambda: bank.done("outbox", "hold", bank.bench.runs.ids[-1].__str__(), "1", *WHY),
    )
    for act in acts:
        act()
        copies.append(copy())
    return copies


def refusals(bank: Bank) -> list[tuple[int, bool]]:
    """Type each command that changes something; return how each ended."""
    results = [bank.typed(*arguments) for arguments in CHANGING]
    return [(result.exit_code, REFUSED in result.output) for result in results]


def test_a_database_that_is_gone_old_or_anothers_is_refused_and_made_again(
    bank: tuple[Bank, Copies, Copies], tmp_path: Path
) -> None:
    own, copy, empty = bank
    copies = lived(own, copy)
    stood = own.cards()
    newest = own.address
    stranger = empty()
    edges(MemoryStore(), Database(stranger)).store.create(f"{BANK}/commits/000001.json", b"{}")
    held = keys_of(str(own.bench.runs.ids[-1]))

    for address in [empty(), stranger, *copies[:4]]:
        own.address = address
        assert [(2, True)] * len(CHANGING) == refusals(own), address

    own.address = newest
    assert 0 == own.typed("submit", BANK, "--dry-run").exit_code
    for number, address in enumerate([copies[3], empty()], 1):
        own.address = address
        recovered = own.done("recover", BANK, *WHY)
        assert f"{number + 1:04d}" == str(recovered["incarnation"])[:4]
        assert [] == recovered["runs"]
        own.done("ingest", BANK)
        assert stood == own.cards()
        assert [] == own.done("audit", "verify", BANK)["findings"]
        outbox = own.bench.stored(str(held.run)).outbox
        assert "held" in [chunk.state for chunk in outbox]
        own.done("submit", BANK, "--date", "2026-11-20")
        assert 2 == len(own.bench.runs.ids)
    own.address = newest
    assert [(2, True)] * len(CHANGING) == refusals(own)


def given_up(adapters: Adapters, number: int) -> None:
    """Decide about a person whom the journal does not name."""

    def work(act: Act) -> None:
        cards = by_person(adapters, act, [NamedCard(f"holder {number}", "1111")])
        decided = GivingUp(at=NOON, by="anna", reason="no", what="given up", cards=cards)
        decide(act, CARDS, "", decided)

    enter(adapters, BANK, "cards given up", work)


def test_who_was_erased_since_a_copy_was_made_is_not_brought_back_by_it(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    bench = Bench(store, issuer(), database=Database(tmp_path / "own.db"))
    given_up(bench.adapters, 1)
    given_up(bench.adapters, 2)
    flush_journal(bench.adapters, BANK)
    bench.database.backup(tmp_path / "copy.db")
    forget_persons(bench.adapters, BANK, NamedPeople(frozenset(["holder 1"])))
    flush_journal(bench.adapters, BANK)
    known = holders_of(bench.adapters, BANK)

    from_copy = replace(bench, database=Database(tmp_path / "copy.db"))
    of_copy = recover(from_copy.context, "lost")
    from_nothing = replace(bench, database=Database(tmp_path / "new.db"))
    of_nothing = recover(from_nothing.context, "lost")

    assert known == holders_of(from_copy.adapters, BANK)
    assert {} == holders_of(from_nothing.adapters, BANK)
    assert (0, 1) == (of_copy.unknown_persons, of_nothing.unknown_persons)
    stored = [entry.key for entry in store.keys("bank/")]
    assert not [key for key in stored if b"holder 1" in bench.content(key)]


def test_a_request_is_not_carried_out_on_a_database_that_was_made_again_without_it(
    tmp_path: Path,
) -> None:
    bench = Bench(LocalStore(tmp_path), issuer(), database=Database(tmp_path / "own.db"))
    line = "cardlink person erase bank --single holder-1"
    settings = compared(bench.context)
    command = Command("erase", line, {"name": "holder-1"}, (), {}, "anna", "agreed", settings)
    number = request(bench.context, command).number
    flush_journal(bench.adapters, BANK)
    empty = replace(bench, database=Database(tmp_path / "new.db"))

    recover(empty.context, "lost")

    assert () == verify(empty.adapters, BANK).findings
    assert [] == unexpired(empty.context)
    with (
        pytest.raises(ApprovalError, match="there is no such request"),
        carrying_out(empty.context, number, command._replace(actor="bert")),
    ):
        pass
    stored = [entry.key for entry in bench.store.keys("bank/")]
    assert not [key for key in stored if b"holder-1" in bench.content(key)]


def test_a_single_link_is_not_requested_twice_though_only_the_journal_knows_of_it(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, service=SERVICE)
    run = bench.submit(bench.drop(2)).manifest.run
    cards = bench.ledger(run).select("row", "cuid", "last_4", "expiration").to_dicts()
    requested = SingleAsked(**cards[0], at=NOON, by="anna")
    linked = SingleAnswered(outcome="linked", at=NOON, url="https://links.example/a")
    recorded(bench.adapters, row_attempt(run, requested.row or 0, 1), requested, linked)
    typed_in = requested.model_copy(update={"row": None})
    recorded(bench.adapters, "20261120T000000000001-00000000", typed_in, linked)
    flush_journal(bench.adapters, BANK)

    from_nothing = replace(bench, database=Database(tmp_path / "new.db"))
    recovered = recover(from_nothing.context, "lost")

    [known] = from_nothing.stored(run).single_link_attempts
    assert (requested, None, 2) == (known.asked, known.answered, recovered.unknown_links)
    assert not record_request(from_nothing.adapters, BANK, known)
    [row] = [RowName(run, requested.row or 0)]
    outcome = plan_links(from_nothing.context, [row]).outcomes[row]
    assert RowOutcome(LOST, NO_ANSWER, is_earlier=True) == outcome


def test_segments_that_somebody_changed_are_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    bench = Bench(LocalStore(tmp_path), issuer(), database=Database(tmp_path / "own.db"))
    given_up(bench.adapters, 1)
    flush_journal(bench.adapters, BANK)
    [segment] = [entry.key for entry in bench.store.keys("bank/journal/")]
    bench.store.replace(segment, [bench.content(segment).replace(b"anna", b"bert")])
    empty = replace(bench, database=Database(tmp_path / "new.db"))

    with pytest.raises(SegmentsError, match="journal/1: changed"):
        recover(empty.context, "lost")

    assert [] == entries(empty.adapters, BANK)


def test_a_database_with_entries_that_the_store_has_otherwise_is_refused(tmp_path: Path) -> None:
    bench = Bench(LocalStore(tmp_path), issuer(), database=Database(tmp_path / "own.db"))
    given_up(bench.adapters, 1)
    flush_journal(bench.adapters, BANK)
    bench.database.backup(tmp_path / "fork.db")
    fork = replace(bench, database=Database(tmp_path / "fork.db"))
    for each, number in ((bench, 2), (fork, 3)):
        given_up(each.adapters, number)
    flush_journal(bench.adapters, BANK)

    with pytest.raises(OtherJournalError, match="is another one than in the database"):
        flush_journal(fork.adapters, BANK)
    with pytest.raises(SegmentsError, match="is not the one in the store"):
        recover(fork.context, "lost")


def test_a_damaged_database_is_replaced_by_its_newest_copy_as_the_error_says(
    bank: tuple[Bank, Copies, Copies], tmp_path: Path
) -> None:
    own, copy, _ = bank
    if not own.address.startswith("sqlite"):
        return  # its server answers for a PostgreSQL
    copies = lived(own, copy)
    stood = own.cards()
    file = Path(own.address.removeprefix("sqlite:///"))
    file.write_bytes(b"no database" * 1000)

    refused = own.typed("submit", BANK)
    own.address = copies[3]
    own.done("recover", BANK, *WHY)
    own.done("ingest", BANK)

    told = " ".join(refused.output.split())
    assert (2, True) == (refused.exit_code, 'recover "ISSUER"' in told), told
    assert stood == own.cards()


def test_links_that_were_delivered_are_not_delivered_again_from_a_database_that_was_made_again(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    bench.submit(bench.drop(6))
    bench.answer(fail_share=0)
    bench.ingest()
    first = deliver(bench.context)
    flush_journal(bench.adapters, BANK)

    from_nothing = replace(bench, database=Database(tmp_path / "new.db"))
    recover(from_nothing.context, "lost")
    from_nothing.ingest()
    again = deliver(from_nothing.context)

    assert (True, False) == (first.fresh, again.fresh)
    assert delivered(bench).equals(delivered(from_nothing))


def delivered(bench: Bench) -> pl.DataFrame:
    with bench.database.snapshot() as connection:
        return read_changes(connection, BANK)


class Meanwhile(FailingStore):
    """A store where something else happens once, before or after the first look at its journal."""

    def __init__(self, store: Store, act: Callable[[], None], *, late: bool) -> None:
        super().__init__(store, lambda *_: None)
        self._acts = [act]
        self._late = late

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        acts, self._acts = self._acts, []
        listed = list(super().keys(prefix, shallow=shallow)) if self._late else None
        for act in acts:
            act()
        yield from super().keys(prefix, shallow=shallow) if listed is None else listed


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("has_begun", [False, True])
def test_what_another_process_stores_at_the_same_moment_is_no_other_journal(
    tmp_path: Path, has_begun: bool, late: bool
) -> None:
    bench = Bench(LocalStore(tmp_path), issuer(), database=Database(tmp_path / "own.db"))
    given_up(bench.adapters, 1)
    if has_begun:
        flush_journal(bench.adapters, BANK)
        given_up(bench.adapters, 2)

    def another() -> None:
        given_up(bench.adapters, 3)
        flush_journal(bench.adapters, BANK)

    slow = replace(bench, store=Meanwhile(bench.store, another, late=late))
    flush_journal(slow.adapters, BANK)

    assert {entry.number for entry in entries(bench.adapters, BANK)} == set(
        stored_entries(bench.store, BANK)
    )


def test_segments_are_stored_from_many_threads_at_once(tmp_path: Path) -> None:
    bench = Bench(LocalStore(tmp_path), issuer(), database=Database(tmp_path / "own.db"))

    def act(number: int) -> None:
        given_up(bench.adapters, number)
        flush_journal(bench.adapters, BANK)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(act, range(40)))

    assert set(range(1, 42)) == set(stored_entries(bench.store, BANK))
