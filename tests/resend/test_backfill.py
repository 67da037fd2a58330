"""Backfill: a list of what would be sent, then exactly that."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from flows.operations.remediation import abandon
from flows.resend.backfill import BackfillList, DaysReversedError, ListChangedError, backfill, send
from flows.runs.keys import extracts
from flows.submissions.submit import Request, UnexpectedOutcomeError, submit
from tests.builders import quick
from tests.memory import KilledError
from tests.night import NOON, Bench, killed_at, local_bench

SPAN = (date(2026, 11, 17), date(2026, 11, 18))


def missed(folder: Path, **changes: Any) -> Bench:
    """Return a bench with four nights dropped, of which the middle two are in SPAN."""
    bench = local_bench(folder, **changes)
    for day in (16, 17, 18, 19):
        bench.drop(20 + day - 16, f"bank-202611{day}.csv")
    return bench


def names(listed: BackfillList, *, refused: bool = True) -> list[str]:
    return [
        one.extract.rpartition("/")[2] for one, _ in listed.missed if refused or not one.refused
    ]


def test_a_list_names_what_would_be_sent_and_writes_nothing(tmp_path: Path) -> None:
    bench = missed(tmp_path)
    before = bench.snapshot()

    listed = backfill(bench.context, *SPAN)

    assert [
        ("bank-20261117.csv", date(2026, 11, 17), 21),
        ("bank-20261118.csv", date(2026, 11, 18), 22),
    ] == [
        (one.extract.rpartition("/")[2], one.as_of, one.counts.submitted)
        for one, _ in listed.missed
    ]
    assert before == bench.snapshot()


def test_days_in_the_wrong_order_are_refused(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)

    with pytest.raises(DaysReversedError, match="Name the earlier day first"):
        backfill(bench.context, SPAN[1], SPAN[0])


@pytest.mark.parametrize("portfolio", quick(1, [True, False]))
def test_what_was_listed_is_what_is_sent(tmp_path: Path, portfolio: bool) -> None:
    bench = missed(tmp_path, full_portfolio=portfolio)
    listed = backfill(bench.context, *SPAN)

    done = send(bench.context, *SPAN, listed.digest)

    sent = [(one.manifest.run, one.manifest.counts, one.manifest.reasons) for one in done.runs]
    assert [(one.run, outcome.counts, outcome.reasons) for one, outcome in listed.missed] == sent
    assert () == backfill(bench.context, *SPAN).missed


def test_a_night_of_a_portfolio_takes_the_listed_nights_before_it_for_sent(tmp_path: Path) -> None:
    bench = missed(tmp_path, full_portfolio=True)

    listed = backfill(bench.context, *SPAN)

    assert [21, 1] == [one.counts.submitted for one, _ in listed.missed]


def test_of_a_single_day_a_run_that_was_begun_is_finished(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    bench.drop(20, "bank-20261117.csv")
    day = (SPAN[0], SPAN[0])
    listed = backfill(bench.context, *day)
    with pytest.raises(KilledError):
        send(killed_at(bench, "committed").context, *day, listed.digest)

    done = send(bench.context, *day, listed.digest)

    assert ["bank-20261117.csv"] == names(listed)
    [submitted] = done.runs
    assert [submitted.manifest] == [*bench.runs.manifests()]
    assert listed.missed[0].checked.run == submitted.manifest.run


def test_nights_that_are_committed_are_not_listed(tmp_path: Path) -> None:
    bench = missed(tmp_path)
    bench.submit("bank-20261117.csv")

    listed = backfill(bench.context, *SPAN)

    assert ["bank-20261118.csv"] == names(listed)


@pytest.mark.slow
def test_what_would_be_refused_is_listed_with_its_reason_and_left_out(tmp_path: Path) -> None:
    bench = missed(tmp_path)
    bench.drop_bytes(b"not,an,extract\n1,2,3\n", "bank-20261117-b.csv")
    bench.drop(30, "bank-20261118-b.csv", bad=1.0)

    listed = backfill(bench.context, *SPAN)
    done = send(bench.context, *SPAN, listed.digest)

    assert ["bank-20261117.csv", "bank-20261118.csv"] == names(listed, refused=False)
    assert ["columns", "rejected"] == [
        word
        for one, _ in listed.missed
        if one.refused
        for word in ("columns", "rejected")
        if word in str(one.refused)
    ]
    assert 2 == len(done.runs)


@pytest.mark.slow
def test_an_extract_whose_run_was_given_up_stops_nothing(tmp_path: Path) -> None:
    bench = missed(tmp_path)
    with pytest.raises(KilledError):
        killed_at(bench, "committed").submit("bank-20261117.csv")
    later = replace(bench, now=lambda: NOON + timedelta(hours=1))
    abandon(
        later.context.adapters,
        str(bench.runs.ids[0]),
        "the issuer took it back",
    )
    listed = backfill(later.context, *SPAN)
    # dropped once more, as it was
    os.utime(tmp_path / "store" / extracts("bank") / "bank-20261117.csv")

    again = backfill(later.context, *SPAN)

    assert ["bank-20261118.csv"] == names(listed) == names(again)


@pytest.mark.slow
@pytest.mark.parametrize("what", quick(1, ["came", "changed", "went"]))
def test_an_extract_that_came_changed_or_went_since_refuses_the_list(
    tmp_path: Path, what: str
) -> None:
    bench = missed(tmp_path)
    listed = backfill(bench.context, *SPAN)
    if what == "went":
        (tmp_path / "store" / extracts("bank") / "bank-20261117.csv").unlink()
    else:
        bench.drop(
            6, "bank-20261117.csv" if what == "changed" else "bank-20261117-late.csv", seed=7
        )
    before = bench.snapshot()

    with pytest.raises(ListChangedError, match=f"not list {listed.digest}"):
        send(bench.context, *SPAN, listed.digest)

    assert before == bench.snapshot()


@pytest.mark.slow
def test_settings_that_would_refuse_other_rows_refuse_the_list(tmp_path: Path) -> None:
    bench = missed(tmp_path)
    bench.drop(20, "bank-20261117.csv", bad=0.2)
    listed = backfill(bench.context, *SPAN)
    bench.issuer = bench.issuer.model_copy(
        update={
            "rules": bench.issuer.rules.model_copy(
                update={"address_mismatch": "warn", "luhn": "warn"}
            )
        }
    )

    with pytest.raises(ListChangedError):
        send(bench.context, *SPAN, listed.digest)

    assert 2 == len(backfill(bench.context, *SPAN).missed)


@pytest.mark.parametrize("portfolio", quick(1, [True, False]))
@pytest.mark.parametrize("at", quick(1, [1, 2]))
def test_the_same_command_finishes_a_list_that_died_half_way(
    tmp_path: Path, at: int, portfolio: bool
) -> None:
    bench = missed(tmp_path, full_portfolio=portfolio)
    listed = backfill(bench.context, *SPAN)
    with pytest.raises(KilledError):
        send(killed_at(bench, "committed", at).context, *SPAN, listed.digest)

    done = send(bench.context, *SPAN, listed.digest)
    again = send(bench.context, *SPAN, listed.digest)

    sent = {one.run: one.counts for one in bench.runs.manifests()}
    assert {one.run: outcome.counts for one, outcome in listed.missed} == sent
    assert {one.manifest.run for one in done.runs} <= sent.keys()
    assert [] == again.runs


@pytest.mark.slow
def test_a_list_that_died_half_way_takes_no_extract_in_that_came_since(tmp_path: Path) -> None:
    bench = missed(tmp_path)
    listed = backfill(bench.context, *SPAN)
    with pytest.raises(KilledError):
        send(killed_at(bench, "committed", 2).context, *SPAN, listed.digest)
    bench.drop(5, "bank-20261118-late.csv", seed=3)

    with pytest.raises(ListChangedError, match=f"not list {listed.digest}"):
        send(bench.context, *SPAN, listed.digest)

    assert 1 == len(backfill(bench.context, *SPAN).missed)


@pytest.mark.slow
def test_a_night_that_comes_out_otherwise_than_it_was_shown_is_not_committed(
    tmp_path: Path,
) -> None:
    bench = missed(tmp_path, full_portfolio=True)
    night, expected = backfill(bench.context, *SPAN).missed[0]
    bench.submit("bank-20261116.csv")

    with pytest.raises(UnexpectedOutcomeError, match="1 row, not the 21 listed"):
        submit(bench.context, Request(night.extract, expected=expected))

    assert "bank-20261117.csv" in names(backfill(bench.context, *SPAN))
