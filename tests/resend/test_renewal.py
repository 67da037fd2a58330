"""Renewal: runs for the cardholders whose link ends soon or has ended, from the newest extract
that has each of them.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flows.resend import renewal
from flows.resend.corrections import cells_of
from flows.resend.renewal import Renewed, rehearse_renew, renew
from flows.resend.resubmission import Request
from flows.resend.resubmission_run import resubmit
from flows.resend.selection import RowSelection
from flows.runs.commits import OvertakenError
from flows.runs.errors import NotFoundError
from flows.runs.keys import corrections, extracts, keys_of
from flows.runs.store import StoreBusyError
from flows.submissions.publisher import PartialRunError
from schemas.portal import ADDRESS1, CUID, MONTH, PAN, POSTAL_CODE, YEAR
from schemas.reasons import ABSENT, AWAITED, DYING, GONE
from tests.builders import portal_rows
from tests.clocked import ClockedStore
from tests.lives.mortal import KilledError, MortalStore
from tests.night import NOON, Bench, issuer, local_bench, made_once, portal_csv
from tests.storms import FailingStore

LINKS_END = date(2027, 1, 20)
DUE = LINKS_END - timedelta(days=14)
SAME_LAST_FOUR = ("4000000000061111", "4000000000141111")


@made_once
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


def runs_of(done: Renewed) -> list[str]:
    """Return the runs of a renewal."""
    return [run.manifest.run for run in done.runs]


@pytest.mark.slow
def test_cards_whose_link_ends_within_the_days_get_a_new_one(tmp_path: Path) -> None:
    bench = on(linked(tmp_path), DUE)

    done = renew(bench.context, 14)
    bench.answer()
    bench.ingest()

    (run,) = runs_of(done)
    assert 20 == json.loads(bench.report(run, "summary.json"))["rows"]["linked"]
    assert {} == done.plan.left_out
    assert bench.ledger(run)["origin"].to_list() == bench.ledger(run)["row"].to_list()


def test_a_renewal_says_in_its_manifest_what_it_is(tmp_path: Path) -> None:
    bench = on(linked(tmp_path), DUE)

    done = renew(bench.context, 14)

    (run,) = runs_of(done)
    selection = bench.manifest(run).selection
    assert selection is not None
    of = done.plan.sources[0].of.run
    assert ("renew", of, 20) == (selection.kind, selection.of, selection.rows)
    assert f"links that end by {LINKS_END}" == selection.reason
    assert keys_of(run).selection in bench.snapshot()


def test_run_twice_it_does_nothing_the_second_time(tmp_path: Path) -> None:
    bench = on(linked(tmp_path), DUE)
    renew(bench.context, 14)
    before = bench.snapshot()

    again = renew(bench.context, 14)

    assert ((), {AWAITED: 20}) == (again.runs, again.plan.left_out)
    assert before == bench.snapshot()


def test_the_day_before_nothing_is_due_and_nothing_is_written(tmp_path: Path) -> None:
    bench = on(linked(tmp_path), DUE - timedelta(days=1))
    before = bench.snapshot()

    done = renew(bench.context, 14)

    assert ((), {}) == (done.runs, done.plan.left_out)
    assert before == bench.snapshot()


def test_the_dry_run_names_the_same_cards_and_writes_nothing(tmp_path: Path) -> None:
    bench = on(linked(tmp_path), DUE)
    before = bench.snapshot()

    plan, runs = rehearse_renew(bench.context, 14)
    after = bench.snapshot()
    done = renew(bench.context, 14)

    assert before == after
    assert [source.cards.rows() for source in plan.sources] == [
        source.cards.rows() for source in done.plan.sources
    ]
    assert [20] == [run.counts.submitted for run in runs]


@pytest.mark.slow
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

    (run,) = runs_of(done)
    assert (latest.run, {ABSENT: 1, DYING: 1}) == (
        done.plan.sources[0].of.run,
        done.plan.left_out,
    )
    ledger = later.ledger(run)
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

    (run,) = runs_of(done)
    assert b"2 Main St" in later.chunks(run)[0]


def test_without_a_committed_run_nobody_can_tell_who_is_still_in_a_portfolio(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, full_portfolio=True)
    bench.drop(5)

    with pytest.raises(NotFoundError, match="no committed run"):
        renew(bench.context, 14)

    assert [] == list(bench.runs.manifests())


def test_cards_of_deltas_are_renewed_each_from_the_extract_that_named_it_last(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    for day, cuids in (("20261119", "ab"), ("20261120", "cd")):
        people = [{CUID: cuid} for cuid in cuids]
        bench.submit(bench.drop_bytes(portal_csv(portal_rows(*people)), f"bank-{day}.csv"))
    bench.answer(expires=LINKS_END)
    bench.ingest()
    later = on(bench, DUE)
    later.submit(later.drop(5, f"bank-{DUE:%Y%m%d}.csv", seed=9))

    done = renew(later.context, 14)
    again = renew(later.context, 14)

    renewed = [later.ledger(run)["cuid"].to_list() for run in runs_of(done)]
    assert [["a", "b"], ["c", "d"]] == renewed
    assert ((), {AWAITED: 4}) == (again.runs, again.plan.left_out)


@pytest.mark.slow
def test_a_link_that_ended_is_renewed_too_and_a_renewed_card_from_the_same_extract_again(
    tmp_path: Path,
) -> None:
    bench = on(linked(tmp_path, rows=5), LINKS_END + timedelta(days=40))
    first = renew(bench.context, 14)
    second_end = LINKS_END + timedelta(days=90)
    bench.answer(expires=second_end)
    bench.ingest()

    second = renew(on(bench, second_end).context, 14)

    assert [5, 5] == [
        bench.manifest(run).counts.submitted for run in (*runs_of(first), *runs_of(second))
    ]


@pytest.mark.slow
def test_what_a_template_corrected_is_renewed_as_corrected_and_other_rows_apart_from_it(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, limits={"max_reject_rate": 0.9})
    people = [{CUID: "a"}, {CUID: "b", POSTAL_CODE: "none"}]
    run = bench.submit(bench.drop_bytes(portal_csv(portal_rows(*people)))).manifest.run
    filled = f"run,row,column,correction\n{run},2,{POSTAL_CODE},02108\n"
    request = Request(run, RowSelection(), "corrected", corrections="filled.csv")
    resubmit(bench.context, request, content=filled.encode())
    bench.answer(expires=LINKS_END)
    bench.ingest()

    done = renew(on(bench, DUE).context, 14)

    runs = {bench.ledger(run)["cuid"].item(): run for run in runs_of(done)}
    assert {"a": "submitted", "b": "submitted"} == {
        cuid: bench.ledger(run)["fate"].item() for cuid, run in runs.items()
    }
    corrected = bench.manifest(runs["b"])
    assert ["02108"] == cells_of(bench.context, corrected)["correction"].to_list()


@pytest.mark.slow
def test_where_a_template_is_gone_its_rows_are_not_renewed_uncorrected(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, limits={"max_reject_rate": 0.9})
    people = [{CUID: "a"}, {CUID: "b", POSTAL_CODE: "none"}]
    run = bench.submit(bench.drop_bytes(portal_csv(portal_rows(*people)))).manifest.run
    filled = f"run,row,column,correction\n{run},2,{POSTAL_CODE},02108\n"
    request = Request(run, RowSelection(), "corrected", corrections="filled.csv")
    resubmit(bench.context, request, content=filled.encode())
    bench.answer(expires=LINKS_END)
    bench.ingest()
    (tmp_path / "store" / corrections("bank") / "filled.csv").unlink()

    done = renew(on(bench, DUE).context, 14)

    assert [["a"]] == [bench.ledger(run)["cuid"].to_list() for run in runs_of(done)]
    assert {GONE: 1} == done.plan.left_out


@pytest.mark.slow
def test_of_two_cards_that_look_the_same_each_is_renewed_from_its_own_row(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    people = [{CUID: "a", PAN: pan} for pan in SAME_LAST_FOUR]
    bench.submit(bench.drop_bytes(portal_csv(portal_rows(*people))))
    bench.answer(expires=LINKS_END)
    bench.ingest()

    done = renew(on(bench, DUE).context, 14)

    (run,) = runs_of(done)
    assert [1, 2] == sorted(bench.ledger(run)["row"])


@pytest.mark.parametrize("what", ["gone", "changed"])
def test_the_cards_of_an_extract_that_is_gone_or_changed_are_left_out_with_that_reason(
    tmp_path: Path, what: str
) -> None:
    bench = on(linked(tmp_path), DUE)
    extract = tmp_path / "store" / extracts("bank") / "bank-20261120.csv"
    extract.unlink()
    if what == "changed":
        bench.drop(20, seed=5)
    before = bench.snapshot()

    done = renew(bench.context, 14)

    assert ((), {GONE: 20}, {"bank/extracts/bank-20261120.csv": 20}) == (
        done.runs,
        done.plan.left_out,
        done.plan.gone,
    )
    assert before == bench.snapshot()


def test_the_same_file_put_back_is_the_same_source(tmp_path: Path) -> None:
    bench = on(linked(tmp_path), DUE)
    content = bench.content(extracts("bank") + "bank-20261120.csv")
    (tmp_path / "store" / extracts("bank") / "bank-20261120.csv").unlink()
    bench.drop_bytes(content)

    done = renew(bench.context, 14)

    assert [20] == [bench.manifest(run).counts.submitted for run in runs_of(done)]


def test_a_renewal_that_died_is_finished_by_the_same_command_as_the_same_run(
    tmp_path: Path,
) -> None:
    bench = on(linked(tmp_path), DUE)
    with pytest.raises(PartialRunError):
        renew(failing(bench, ".csv.pgp").context, 14)

    done = renew(bench.context, 14)

    assert 1 == len(done.runs)
    assert 2 == len(bench.runs.ids)
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


@pytest.mark.slow
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

    assert 17 == done.plan.due
    assert {2} == set(sent(bench).values())


def test_of_the_extracts_of_the_last_day_the_one_committed_last_is_the_latest() -> None:
    days = {"r4": 19, "r1": 20, "r3": 20, "r2": 20}
    plans = [
        SimpleNamespace(run=run, as_of=day, is_whole=True, turn=int(run[1:]))
        for run, day in days.items()
    ]
    book = cast(Any, SimpleNamespace(runs=SimpleNamespace(committed=plans), issuer="bank"))

    assert "r3" == renewal._latest_extract(book)
