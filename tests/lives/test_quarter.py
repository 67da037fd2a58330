"""A quarter in a small size: what the reports say at its end, against a recount from the partner's
books.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.lives.findings import Findings
from tests.lives.place import Place, Plan
from tests.lives.quarter import Quarter
from tests.lives.quarter_recount import lived, recount

pytestmark = pytest.mark.slow  # a life takes its time in any size
SMALL = Plan(nights=14, stride=7, rows=120, per_chunk=30, deaths=0.3)


@pytest.fixture(scope="module")
def quarter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quarter]:
    with lived(Place(tmp_path_factory.mktemp("quarter"), SMALL)) as done:
        yield done


@pytest.fixture(scope="module")
def findings(quarter: Quarter) -> Findings:
    return recount(quarter)


def test_every_report_says_of_every_cardholder_what_the_books_say(findings: Findings) -> None:
    assert [] == findings.differing
    assert [] == findings.unbalanced


def test_every_cardholder_counts_once_by_the_last_word_on_the_card(findings: Findings) -> None:
    assert [] == findings.miscounted


def test_no_card_was_sent_twice_without_cause(findings: Findings) -> None:
    causes = ("change", "ending link", "error sent again")

    assert [] == findings.twice
    assert {f"sent again: {cause}" for cause in causes} <= findings.figures.keys()


def test_nobody_who_could_have_a_link_is_left_without(findings: Findings) -> None:
    assert [] == findings.forgotten


def test_everything_purged_was_due_and_no_file_of_others_is_gone(findings: Findings) -> None:
    assert [] == findings.too_soon
    assert [] == findings.foreign
    assert {"purged: chunks", "purged: ledger"} <= findings.figures.keys()


def test_what_waited_for_its_upload_was_sealed_anew_for_the_new_key(findings: Findings) -> None:
    assert findings.figures["steps: chunks sealed anew"] >= 1


def test_processes_were_killed_and_every_kind_of_run_was_made(findings: Findings) -> None:
    kinds = {name for name in findings.figures if name.startswith("runs: ")}

    assert {"runs: night", "runs: resubmit", "runs: renew"} == kinds
    assert {"steps: killed: submit", "steps: killed: ingest"} <= findings.figures.keys()


def test_the_oracle_finds_a_cardholder_who_got_nothing_and_a_report_without_books(
    quarter: Quarter,
) -> None:
    last = quarter.partner.received[-1]
    sendings = [sent for sent in quarter.partner.received if sent.row.cuid != last.row.cuid]
    without = replace(quarter, partner=replace(quarter.partner, received=sendings))

    recounted = recount(without)

    assert last.row.cuid in recounted.forgotten
    assert recounted.differing
    assert recounted.unbalanced


def test_the_oracle_finds_a_card_sent_again_for_no_reason(quarter: Quarter) -> None:
    town = replace(quarter.town, changes=defaultdict(list))

    assert recount(replace(quarter, town=town)).twice


def test_the_oracle_finds_a_file_of_others_that_is_gone(quarter: Quarter) -> None:
    recounted = recount(replace(quarter, dropped=quarter.dropped | {"bank/extracts/gone.csv"}))

    assert ["bank/extracts/gone.csv"] == recounted.foreign
