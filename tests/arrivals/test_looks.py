"""Which dropped files start a run, and what the beat says of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.extensions.arrivals import __main__ as process
from flows.extensions.arrivals.beat import liveness, read_beat
from flows.extensions.arrivals.looks import DroppedFiles, IssuerWatch, watch_issuers
from flows.extensions.arrivals.settings import Arrivals
from flows.extensions.arrivals.starts import NotDeployedError
from flows.runs.store import Entry, StoreDeniedError, VerdictAwaitedError, VerdictRefusedError
from flows.wiring import now
from tests.cli.test_reconcile import TOML
from tests.memory import MemoryStore
from tests.night import BANK, issuer

NIGHT, INGEST = f"nightly/nightly-{BANK}", f"ingest/ingest-{BANK}"


class FakePrefect:
    """Notes what is started; a deployment can have a run under way, or be missing."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.under_way = set[str]()
        self.missing = set[str]()

    def begin(self, deployment: str) -> str | None:
        """Start a deployment's run."""
        if deployment in self.missing:
            raise NotDeployedError(deployment=deployment)
        if deployment in self.under_way:
            return None
        self.started.append(deployment)
        return f"run {len(self.started)}"


class Bank:
    """A watched issuer with a directory store."""

    def __init__(self, folder: Path, **changes: object) -> None:
        self.folder = folder / BANK
        for name in ("extracts", "results"):
            (self.folder / name).mkdir(parents=True)
        self.prefect = FakePrefect()
        self.store = LocalStore(folder)
        self.issuer = issuer(arrivals={}, **changes)
        self.watch = IssuerWatch(self.issuer, self.store, self.prefect.begin)

    def drop(self, key: str, content: str = "x", minutes_old: float = 0) -> None:
        """Drop a file, or write it anew."""
        file = self.folder / key
        file.write_text(content)
        modified = now().timestamp() - 60 * minutes_old
        os.utime(file, (modified, modified))

    def look(self, times: int = 2) -> list[str]:
        """Look so often; return what has been started so far."""
        for _ in range(times):
            self.watch.look()
        return self.prefect.started


def test_an_extract_starts_the_night_and_a_result_the_ingest_each_once(tmp_path: Path) -> None:
    bank = Bank(tmp_path)
    bank.look(1)

    bank.drop("extracts/cards.csv")
    night = [*bank.look(5)]
    bank.drop("results/cards-00001.csv")

    assert [NIGHT] == night
    assert [NIGHT, INGEST] == bank.look(5)


def test_a_file_that_grows_starts_nothing_before_two_looks_find_the_same(tmp_path: Path) -> None:
    bank = Bank(tmp_path)
    for content in ("a", "ab", "abc"):
        bank.drop("extracts/cards.csv", content)
        bank.look(1)

    unsettled = [*bank.prefect.started]

    assert [] == unsettled
    assert [NIGHT] == bank.look(1)


def test_a_file_that_comes_while_its_run_is_under_way_starts_another_one_after_it(
    tmp_path: Path,
) -> None:
    bank = Bank(tmp_path)
    bank.prefect.under_way = {NIGHT}
    bank.drop("extracts/cards.csv")
    meanwhile = [*bank.look(4)]

    bank.prefect.under_way = set()

    assert [] == meanwhile
    assert [NIGHT] == bank.look(4)


def test_what_is_written_anew_under_the_same_name_starts_another_run(tmp_path: Path) -> None:
    bank = Bank(tmp_path)
    bank.drop("results/cards-00001.csv", "first")
    bank.look()

    bank.drop("results/cards-00001.csv", "second")

    assert [INGEST, INGEST] == bank.look()


def test_a_file_of_before_the_process_starts_a_run_unless_a_schedule_has_found_it(
    tmp_path: Path,
) -> None:
    bank = Bank(tmp_path)
    bank.drop("extracts/of-this-hour.csv", minutes_old=50)
    bank.drop("results/older.csv", minutes_old=70)

    assert [NIGHT] == bank.look()


def test_an_extract_that_must_have_an_age_starts_nothing_before(tmp_path: Path) -> None:
    bank = Bank(tmp_path, source={"min_age_minutes": 10})
    bank.drop("extracts/cards.csv", minutes_old=9)
    bank.drop("results/cards-00001.csv", minutes_old=9)
    early = [*bank.look()]

    bank.drop("extracts/cards.csv", minutes_old=11)

    assert [INGEST] == early
    assert [INGEST, NIGHT] == bank.look()


def test_folders_removed_files_and_those_being_written_start_nothing(tmp_path: Path) -> None:
    bank = Bank(tmp_path)
    (bank.folder / "extracts" / "2026").mkdir()
    bank.drop("extracts/.cards.csv.part")
    bank.drop("extracts/gone.csv")
    bank.drop("cards.csv")
    bank.look(1)

    (bank.folder / "extracts" / "gone.csv").unlink()

    assert [] == bank.look()


class ScannedStore(MemoryStore):
    """A store whose dropped files are scanned for malware."""

    verdict = ""

    def ensure_clean(self, key: str) -> None:
        """Raise the error of the verdict."""
        if not self.verdict:
            raise VerdictAwaitedError(key=key, tag="Scan")
        if self.verdict != "CLEAN":
            raise VerdictRefusedError(key=key, tag="Scan", found=self.verdict, clean="CLEAN")


@pytest.mark.parametrize("verdict", ["CLEAN", "INFECTED"])
def test_a_file_starts_its_run_once_its_malware_verdict_is_there(verdict: str) -> None:
    store = ScannedStore()
    store.create("bank/extracts/cards.csv", b"x")
    dropped = DroppedFiles("bank/extracts/")
    moment = next(store.keys("")).modified
    unscanned = [dropped.look(store, moment) for _ in range(3)]

    store.verdict = verdict
    found: frozenset[Entry] = dropped.look(store, moment)

    assert [frozenset()] * 3 == unscanned
    assert frozenset(store.keys("")) == found


def test_a_missing_deployment_is_in_the_beat_and_holds_up_no_other_run(tmp_path: Path) -> None:
    bank = Bank(tmp_path)
    bank.prefect.missing = {NIGHT}
    bank.drop("extracts/cards.csv")
    bank.drop("results/cards-00001.csv")
    bank.look()
    bank.watch._next_beat = 0.0

    started = [*bank.look(1)]
    beat = read_beat(bank.store, BANK)
    bank.prefect.missing = set()

    assert [INGEST] == started
    assert beat is not None
    assert f"no deployment {NIGHT}" in beat.problem
    assert [INGEST, NIGHT] == bank.look(1)


def test_while_nothing_can_be_looked_at_the_beat_keeps_the_moment_of_the_last_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = Bank(tmp_path)
    bank.look(1)

    def denied(_store: LocalStore, prefix: str) -> Iterator[Entry]:
        raise StoreDeniedError(place=prefix, code="EACCES")

    monkeypatch.setattr(LocalStore, "keys", denied)
    last_worked = bank.watch._beat.at
    bank.watch._next_beat = 0.0
    bank.look(1)

    beat = read_beat(bank.store, BANK)
    assert beat is not None
    assert last_worked == beat.at
    assert "is denied" in beat.problem


def ending(watches: list[IssuerWatch]) -> None:
    for watch in watches:
        watch.stop.set()
        watch.join()


def test_changes_of_the_toml_files_are_taken_up(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    toml = TOML.format(name="bank", fingerprint="0" * 40)
    nothing: Callable[[str], str | None] = FakePrefect().begin

    def configured(text: str, before: list[IssuerWatch]) -> list[IssuerWatch]:
        (tmp_path / "bank.toml").write_text(text)
        return watch_issuers(tmp_path, nothing, before)

    none = configured(toml, [])
    first = configured(f"{toml}\n[arrivals]\n", none)
    same = configured(f"# a word more\n{toml}\n[arrivals]\n", first)
    changed = configured(f"{toml}\n[arrivals]\nevery_seconds = 1\n", same)
    wrong = configured(f"{toml}\n[arrivals]\nqueue = 1\n", changed)
    ending([*first, *changed])

    assert [] == none == wrong
    assert first == same
    assert [1] == [
        settings.every_seconds
        for watch in changed
        if (settings := watch.issuer.table(Arrivals)) is not None
    ]
    assert all(watch.stop.is_set() for watch in first)
    state = liveness(LocalStore(tmp_path / "store"), changed[0].issuer, now())
    assert ("its process works", False) == state


def test_a_supervisor_learns_whether_the_process_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = process.is_alive()
    process.sign()
    alive = process.is_alive()

    os.utime(process.sign_file(), (1, 1))

    assert [False, True, False] == [dead, alive, process.is_alive()]
