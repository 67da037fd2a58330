"""Renewal: a run for the cardholders whose link ends soon and who are still in the latest
extract.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from flows.resend.renewal import ABSENT, DYING, renew, renewals
from flows.resend.selected_run import SourceGoneError
from flows.runs.commits import OvertakenError
from flows.runs.errors import NotFoundError
from flows.runs.keys import extracts, keys_of
from flows.runs.prior_state import AWAITED
from flows.runs.store import StoreBusyError
from flows.submissions.publisher import PartialRunError
from schemas.portal import ADDRESS1, CUID, MONTH, YEAR
from tests.builders import portal_rows
from tests.clocked import ClockedStore
from tests.lives.mortal import KilledError, MortalStore
from tests.night import NOON, Bench, issuer, local_bench, portal_csv
from tests.storms import FailingStore

LINKS_END = date(2027, 1, 20)
DUE = LINKS_END - timedelta(days=14)


def linked(folder: Path, rows: int = 20) -> Bench:
    """Return a bench with one night of links that end on LINKS_END."""
    bench = local_bench(folder)
    bench.submit(bench.drop(rows))
    bench.answer(expires=LINKS_END)
    bench.ingest()
    return bench


def on(bench: Bench, day: date) -> Bench:
    """Return the bench on another day."""
    return replace(bench, now=lambda: datetime.combine(day, NOON.time(), UTC))


def failing(bench: Bench, ending: str) -> Bench:
    """Return the bench with a store that is busy where a key of that ending is created."""
    trouble = StoreBusyError(place="x", code="503")
    store = FailingStore(
        bench.store,
        lambda does, key: trouble if does == "create" and key.endswith(ending) else None,
    )
    return replace(bench, store=store)


def sent(bench: Bench) -> Counter[str]:
    """Count how often each cardholder was sent."""
    runs = bench.runs.manifests()
    return Counter(
        cuid for run in runs for cuid in bench.ledger(run.run).filter(fate="submitted")["cuid"]
    )


def test_cards_whose_link_ends_within_the_days_get_a_new_one(tmp_path: Path) -> None:
    bench = on(linked(tmp_path), DUE)

    done = renew(bench.context, 14)
    bench.answer()
    bench.ingest()

    assert done[1] is not None
    run = done[1].manifest.run
    assert (20, 0) == (
        json.loads(bench.report(run, "summary.json"))["rows"]["linked"],
        done[0].left_out.get(AWAITED, 0),
    )
    assert bench.ledger(run)["origin"].to_list() == bench.ledger(run)["row"].to_list()


def test_a_renewal_says_in_its_manifest_what_it_is(tmp_path: Path) -> None:
    bench = on(linked(tmp_path), DUE)

    done = renew(bench.context, 14)

    assert done[1] is not None
    selection = done[1].manifest.selection
    assert selection is not None
    assert ("renew", done[0].of.run, 20) == (selection.kind, selection.of, selection.rows)
    assert f"links that end by {LINKS_END}" == selection.reason
    assert keys_of(done[1].manifest.run).selection in bench.snapshot()


def test_run_twice_it_does_nothing_the_second_time(tmp_path: Path) -> None:
    bench = on(linked(tmp_path), DUE)
    renew(bench.context, 14)
    before = bench.snapshot()

    again = renew(bench.context, 14)

    assert (None, {AWAITED: 20}) == (again[1], again[0].left_out)
    assert before == bench.snapshot()


def test_the_day_before_nothing_is_due_and_nothing_is_written(tmp_path: Path) -> None:
    bench = on(linked(tmp_path), DUE - timedelta(days=1))
    before = bench.snapshot()

    done = renew(bench.context, 14)

    assert (None, {}) == (done[1], done[0].left_out)
    assert before == bench.snapshot()


def test_the_dry_run_names_the_same_cards_and_writes_nothing(tmp_path: Path) -> None:
    bench = on(linked(tmp_path), DUE)
    before = bench.snapshot()

    told = renewals(bench.context, 14)
    after = bench.snapshot()
    done = renew(bench.context, 14)

    assert before == after
    assert told.rows.rows() == done[0].rows.rows()


def test_who_left_and_whose_card_ends_first_are_left_out_and_the_rows_are_the_latest_extracts(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, full_portfolio=True, portfolio={"renew_within_days": 0})
    people = [{CUID: "stays"}, {CUID: "leaves"}, {CUID: "ends", YEAR: "27", MONTH: "01"}]
    bench.submit(bench.drop_bytes(portal_csv(portal_rows(*people))))
    bench.answer(expires=date(2027, 1, 31))
    bench.ingest()
    later = on(bench, date(2027, 1, 19))
    moved = portal_rows({CUID: "new"}, {CUID: "stays"}, people[2])
    latest = later.submit(later.drop_bytes(portal_csv(moved), "bank-20270119.csv")).manifest

    done = renew(later.context, 14)

    assert done[1] is not None
    assert (latest.run, {ABSENT: 1, DYING: 1}) == (done[0].of.run, done[0].left_out)
    ledger = later.ledger(done[1].manifest.run)
    assert [("stays", 2, 2)] == ledger.select("cuid", "row", "origin").rows()


@pytest.mark.slow
def test_a_change_that_no_night_counted_goes_out_with_the_renewal(tmp_path: Path) -> None:
    bench = local_bench(
        tmp_path, full_portfolio=True, portfolio={"changes": [], "renew_within_days": 0}
    )
    bench.submit(bench.drop_bytes(portal_csv(portal_rows({}))))
    bench.answer(expires=LINKS_END)
    bench.ingest()
    later = on(bench, DUE)
    later.submit(
        later.drop_bytes(portal_csv(portal_rows({ADDRESS1: "2 Main St"})), f"bank-{DUE:%Y%m%d}.csv")
    )

    done = renew(later.context, 14)

    assert done[1] is not None
    assert b"2 Main St" in later.chunks(done[1].manifest.run)[0]


def test_the_latest_extract_says_who_is_still_there(tmp_path: Path) -> None:
    bench = linked(tmp_path)
    bench.submit(bench.drop(5, "bank-20261121.csv", seed=9))

    found = renewals(on(bench, DUE).context, 14)

    assert (0, {ABSENT: 20}) == (found.rows.height, found.left_out)


def test_without_a_committed_run_nobody_can_tell_who_is_still_there(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    bench.drop(5)

    with pytest.raises(NotFoundError, match="no committed run"):
        renew(bench.context, 14)

    assert [] == list(bench.runs.manifests())


@pytest.mark.parametrize("what", ["gone", "changed"])
def test_an_extract_that_is_gone_or_changed_is_told_and_nothing_is_planned(
    tmp_path: Path, what: str
) -> None:
    bench = on(linked(tmp_path), DUE)
    extract = tmp_path / "store" / extracts("bank") / "bank-20261120.csv"
    extract.unlink()
    if what == "changed":
        bench.drop(20, seed=5)
    before = bench.snapshot()

    with pytest.raises(SourceGoneError, match=r"bank-20261120\.csv"):
        renew(bench.context, 14)

    assert [key for key in bench.snapshot() if key not in before and "/probe/" not in key] == []


def test_the_same_file_put_back_is_the_same_source(tmp_path: Path) -> None:
    bench = on(linked(tmp_path), DUE)
    content = bench.content(extracts("bank") + "bank-20261120.csv")
    (tmp_path / "store" / extracts("bank") / "bank-20261120.csv").unlink()
    bench.drop_bytes(content)

    done = renew(bench.context, 14)

    assert done[1] is not None
    assert 20 == done[1].manifest.counts.submitted


def test_a_renewal_that_died_is_finished_by_the_same_command_as_the_same_run(
    tmp_path: Path,
) -> None:
    bench = on(linked(tmp_path), DUE)
    with pytest.raises(PartialRunError):
        renew(failing(bench, ".csv.pgp").context, 14)

    done = renew(bench.context, 14)

    assert done[1] is not None
    assert 2 == len([key for key in bench.snapshot() if key.endswith("/plan.json")])
    assert {2} == set(sent(bench).values())


@pytest.mark.slow
def test_killed_anywhere_and_run_again_every_card_is_renewed_once(tmp_path: Path) -> None:
    moment = [NOON]
    store = MortalStore(made(tmp_path / "store"), lambda: moment[0])
    bench = Bench(store, issuer(), now=lambda: moment[0])
    bench.submit(bench.drop(5))
    bench.answer(expires=LINKS_END)
    bench.ingest()
    kept = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    moment[0] = datetime.combine(DUE, NOON.time(), UTC)
    store.die_after(None)
    renew(bench.context, 14)
    operations = store.life.passed

    wrong = {}
    for death in range(0, operations, 5):
        bench = replace(
            bench,
            store=(
                store := MortalStore(restored(tmp_path / f"at-{death}", kept, tmp_path), bench.now)
            ),
        )
        store.die_after(death)
        with pytest.raises(KilledError):
            renew(bench.context, 14)
        store.die_after(None)
        moment[0] += timedelta(hours=1)
        renew(bench.context, 14)
        if set(sent(bench).values()) != {2}:
            wrong[death] = sent(bench)

    assert {} == wrong


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def restored(folder: Path, kept: dict[Path, bytes], root: Path) -> Path:
    """Write the kept files below another root."""
    store = ClockedStore(made(folder), lambda: NOON)
    for path, content in kept.items():
        store.replace(str(path.relative_to(root / "store")), [content])
    return folder


def test_a_night_that_sends_a_card_meanwhile_stops_the_renewal_which_then_leaves_it_out(
    tmp_path: Path,
) -> None:
    bench = on(linked(tmp_path), DUE)
    waiting = [lambda: bench.submit(bench.drop(3, "bank-20261119.csv"))]  # late: not the latest

    def trouble(operation: str, key: str) -> None:
        if operation == "create" and "/ledger/" in key and waiting:
            waiting.pop()()

    with pytest.raises(OvertakenError, match="has 3 of its cards"):
        renew(replace(bench, store=FailingStore(bench.store, trouble)).context, 14)
    done = renew(bench.context, 14)

    assert {AWAITED: 3} == done[0].left_out
    assert {2} == set(sent(bench).values())
