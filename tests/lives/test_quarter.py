"""A quarter in a small size: what the reports say at its end, against a recount from the partner's
books.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.lives.findings import Findings
from tests.lives.life import Life
from tests.lives.oracle import Recount, lived, recount
from tests.lives.place import Place
from tests.lives.profile import PROFILES, Plan

pytestmark = pytest.mark.slow  # a life takes its time in any size
QUARTER = PROFILES["quarter"]
SMALL = Plan(nights=14, stride=7, rows=120, per_chunk=30, deaths=0.3)


@pytest.fixture(scope="module")
def quarter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    with lived(Place(tmp_path_factory.mktemp("quarter"), SMALL), QUARTER) as life:
        yield life


@pytest.fixture(scope="module")
def findings(quarter: Life) -> Findings:
    return recount(quarter)


def test_every_report_says_of_every_cardholder_what_the_books_say(findings: Findings) -> None:
    assert [] == findings.differing
    assert [] == findings.unbalanced


def test_every_cardholder_counts_once_by_the_last_word_on_the_card(findings: Findings) -> None:
    assert [] == findings.miscounted


def test_no_card_was_sent_twice_without_cause(findings: Findings) -> None:
    causes = ("change", "ending link", "error", "override")

    assert [] == findings.twice
    assert {f"sent again: {cause}" for cause in causes} <= findings.figures.keys()


def test_nobody_who_could_have_a_link_is_left_without(findings: Findings) -> None:
    assert [] == findings.forgotten


def test_the_worklist_offers_nothing_that_cannot_be_done(findings: Findings) -> None:
    assert [] == findings.stuck
    assert [] == findings.odd


def test_everything_purged_was_due_and_no_file_of_others_is_gone(findings: Findings) -> None:
    assert [] == findings.too_soon
    assert [] == findings.foreign
    assert {"purged: chunks", "purged: ledger"} <= findings.figures.keys()


def test_what_waited_for_its_upload_was_sealed_anew_for_the_new_key(findings: Findings) -> None:
    assert findings.figures["chunks sealed anew"] >= 1


def test_processes_were_killed_and_every_kind_of_run_was_made(findings: Findings) -> None:
    kinds = {name for name in findings.figures if name.startswith("runs: ")}

    assert {"runs: night", "runs: resubmit", "runs: renew"} == kinds
    assert {"commands: killed: submit", "commands: killed: ingest"} <= findings.figures.keys()


def test_the_oracle_finds_a_cardholder_who_got_nothing_and_a_report_without_books(
    quarter: Life,
) -> None:
    (bank,) = quarter.banks
    last = bank.portal.received[-1].row
    sendings = [sent for sent in bank.portal.received if sent.row.cuid != last.cuid]
    without = replace(bank, portal=replace(bank.portal, received=sendings))

    recounted = recount(replace(quarter, banks=[without]))

    assert f"bank: {last.cuid}" in recounted.forgotten
    assert recounted.differing
    assert recounted.unbalanced


def test_the_oracle_finds_a_card_sent_again_for_no_reason(quarter: Life) -> None:
    (bank,) = quarter.banks
    received = [sent._replace(content=0) for sent in bank.portal.received]
    unchanged = replace(bank, portal=replace(bank.portal, received=received))

    assert recount(replace(quarter, banks=[unchanged])).twice


def test_the_oracle_finds_a_file_of_others_that_is_gone(quarter: Life) -> None:
    (bank,) = quarter.banks
    gone = replace(bank, keys=bank.keys | {"bank/extracts/gone.csv"})

    recounted = recount(replace(quarter, banks=[gone]))

    assert ["bank/extracts/gone.csv"] == recounted.foreign


def test_the_oracle_finds_chunks_that_are_purged_before_they_are_answered(quarter: Life) -> None:
    (bank,) = quarter.banks
    unanswered = replace(bank, portal=replace(bank.portal, plain={}))
    recounted = Findings()

    Recount(quarter, unanswered, recounted).judge_purge(bank.purged[:1])

    assert len(recounted.too_soon) == 1
