"""A quarter in a small size: what the reports say at its end, against a recount from the partner's
books.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import pytest

from flows.reports.across import reconcile_runs
from flows.runs.keys import extracts, results
from tests.night import BANK
from tests.quarter.life import Plan, Quarter, lived
from tests.quarter.recount import Witness, cardholders, forgotten, sent_without_cause

pytestmark = pytest.mark.slow  # a life takes its time in any size
SMALL = Plan(nights=14, stride=7, rows=120, per_chunk=30, deaths=0.3)


WITNESS = Witness()


@pytest.fixture(scope="module")
def quarter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quarter]:
    with lived(tmp_path_factory.mktemp("quarter"), SMALL, WITNESS) as done:
        yield done


def test_every_report_says_of_every_cardholder_what_the_books_say(quarter: Quarter) -> None:
    assert {} == WITNESS.differing(quarter)
    assert len(quarter.partner.received) == sum(run.counts.submitted for run in quarter.runs())


def test_every_cardholder_counts_once_by_the_last_word_on_the_card(quarter: Quarter) -> None:
    facts = reconcile_runs(quarter.bench.context)

    told = {state: facts["cardholders"][state] for state in ("linked", "awaiting")}
    assert (
        cardholders(quarter, date.fromisoformat(facts["cardholders_since"]), WITNESS.gone) == told
    )


def test_no_card_was_sent_twice_without_cause(quarter: Quarter) -> None:
    wrong, causes = sent_without_cause(quarter)

    assert [] == wrong
    assert {"change", "ending link", "error sent again"} <= causes.keys()


def test_nobody_who_could_have_a_link_is_left_without(quarter: Quarter) -> None:
    assert [] == forgotten(quarter)


def test_everything_purged_was_due_and_no_file_of_others_is_gone(quarter: Quarter) -> None:
    dropped = {
        entry.key
        for entry in quarter.store.keys(f"{BANK}/")
        if entry.key.startswith((extracts(BANK), results(BANK)))
    }

    assert [] == WITNESS.too_soon
    assert quarter.dropped == dropped
    assert {"chunks", "ledger"} == {
        lot.record.part for _, due in quarter.purged for lot in due.lots
    }


def test_what_waited_for_its_upload_was_sealed_anew_for_the_new_key(quarter: Quarter) -> None:
    assert quarter.did["chunks sealed anew"] >= 1


def test_processes_were_killed_and_every_kind_of_run_was_made(quarter: Quarter) -> None:
    kinds = {run.selection.kind if run.selection else "night" for run in quarter.runs()}

    assert {"night", "resubmit", "renew"} == kinds
    assert {"killed: submit", "killed: ingest"} <= quarter.did.keys()
