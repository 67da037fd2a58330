"""A name that was committed with other content is held, with what each way of going on would
send.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flows.operations.purge import purge
from flows.runs.keys import keys_of
from flows.submissions.changed_extract import ChangedExtractError
from flows.submissions.extract_states import extract_states
from flows.submissions.rehearsal import rehearse
from flows.submissions.submit import Request
from schemas.portal import CUID, YEAR
from tests.builders import portal_rows
from tests.night import Bench, issuer, local_bench, portal_csv
from tests.operations.retention import YEAR as A_YEAR
from tests.operations.retention import cleaner, later

NAME = "bank-20261120.csv"


def rows(*cuids: str, **changes: str) -> bytes:
    """Return an extract of these cardholders, one card each; `changes` give another expiration year
    by cuid.
    """
    years = {cuid: {YEAR: changes[cuid]} if cuid in changes else {} for cuid in cuids}
    pans = ("4242424242424242", "4111111111111111", "5555555555554444")
    return portal_csv(
        portal_rows(
            *(
                {CUID: cuid, "service_card.pan": pans[ord(cuid) % 3], **years[cuid]}
                for cuid in cuids
            )
        )
    )


def held(bench: Bench, content: bytes) -> ChangedExtractError:
    """Submit a content of the one name that is held."""
    with pytest.raises(ChangedExtractError) as error:
        bench.submit(bench.drop_bytes(content, NAME))
    return error.value


def test_it_tells_what_is_the_same_new_and_gone_and_what_each_way_on_sends(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    run = bench.submit(bench.drop_bytes(rows("a", "b", "c", "d"), NAME)).manifest.run

    error = held(bench, rows("b", "c", "d", "e", "f", d="31"))

    assert 3 == error.exit_code
    assert f"run {run}, committed under that name: 2 rows are the same, 3 new, 2 gone." in str(
        error
    )
    assert f"`cardlink submit bank --extract {NAME} --open changed-extract` sends 3 rows" in str(
        error
    )
    assert f'`cardlink dismiss bank {NAME} --reason "WHY"` sends none' in str(error)


def test_nothing_is_planned_or_sealed_of_an_extract_that_is_held(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    bench.submit(bench.drop_bytes(rows("a"), NAME))
    bench.drop_bytes(rows("a", "b"), NAME)
    before = bench.snapshot()

    held(bench, rows("a", "b"))

    assert before == bench.snapshot()


def test_the_opened_gate_commits_it_and_the_next_change_is_compared_with_that(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    first = bench.submit(bench.drop_bytes(rows("a", "b"), NAME)).manifest.run

    second = bench.submit(bench.drop_bytes(rows("b", "c"), NAME), opened=["changed-extract"])
    error = held(bench, rows("c", "d"))
    back = bench.submit(bench.drop_bytes(rows("a", "b"), NAME))

    assert second.remarks == (f"bank/extracts/{NAME} had other content before, in run {first}",)
    assert (
        f"run {second.manifest.run}, committed under that name: 1 row is the same, 1 new, 1 gone"
        in str(error)
    )
    assert (True, first) == (back.already, back.manifest.run)


@pytest.mark.parametrize("portfolio", [False, True])
def test_an_issuer_whose_files_share_one_name_says_so_and_nothing_is_held(
    tmp_path: Path, portfolio: bool
) -> None:
    bench = local_bench(tmp_path, full_portfolio=portfolio)
    bench.submit(bench.drop_bytes(rows("a", "b"), "cards.csv"))
    bench.drop_bytes(rows("a", "b", "c"), "cards.csv")
    with pytest.raises(ChangedExtractError):
        bench.submit("cards.csv")
    settled = replace(
        bench, issuer=issuer(full_portfolio=portfolio, source={"same_name": "replace"})
    )

    done = settled.submit("cards.csv")

    assert not done.already
    assert {"committed"} == {one.state for one in extract_states(settled.context)}


@pytest.mark.slow
def test_a_dry_run_says_the_same_and_counts_what_would_be_sent(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    bench.submit(bench.drop_bytes(rows("a", "b"), NAME))
    error = held(bench, rows("b", "c"))
    before = bench.snapshot()

    dry = rehearse(bench.context, Request(NAME))
    opened = rehearse(bench.context, Request(NAME, opened=["changed-extract"]))

    assert (str(error), "") == (str(dry.refused), opened.refused)
    assert 1 == opened.counts.submitted
    assert before == bench.snapshot()


@pytest.mark.slow
def test_where_the_ledger_of_that_name_was_purged_it_is_held_all_the_same(tmp_path: Path) -> None:
    bench = later(local_bench(tmp_path), 0)
    run = bench.submit(bench.drop_bytes(rows("a", "b"), NAME)).manifest.run
    bench.answer()
    bench.ingest()
    old = later(bench, A_YEAR)
    purge(old.context, cleaner(bench))

    error = held(old, rows("a"))

    assert [] == list(bench.store.keys(keys_of(run).ledger))
    assert "1 row, not compared since the ledger of that run was purged" in str(error)
    assert [run] == [str(one) for one in bench.runs.ids]
