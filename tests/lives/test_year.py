"""A year of nights in a small size, and the oracle's own controls: it must find what is planted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lives.findings import Findings
from tests.lives.life import Life
from tests.lives.oracle import lived, recount
from tests.lives.place import Place
from tests.lives.profile import PROFILES, Plan

pytestmark = pytest.mark.slow  # a life takes its time in any size
YEAR = PROFILES["year"]
SMALL = Plan(nights=8, stride=9, rows=30, per_chunk=20, deaths=0.2)
SHORT = Plan(nights=3, stride=9, rows=20, per_chunk=20, deaths=0.0, seed=10)


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    with lived(Place(tmp_path_factory.mktemp("year"), SMALL), YEAR) as life:
        yield life


@pytest.fixture(scope="module")
def findings(year: Life) -> Findings:
    return recount(year)


def test_no_card_is_sent_twice_without_anybodys_word(findings: Findings) -> None:
    assert [] == findings.twice
    assert [] == findings.miscounted
    assert {"sent again: error", "sent again: ended", "rows: suppressed"} <= findings.figures.keys()


def test_every_cardholder_of_a_whole_file_is_sent_or_refused_or_rightly_held(
    findings: Findings,
) -> None:
    assert [] == findings.lost
    assert [] == findings.unfit


def test_no_cut_file_passes_that_could_be_told(findings: Findings) -> None:
    assert [] == findings.cut
    assert (
        findings.figures["files: cut"]
        > findings.figures["cut files that passed, and nothing could prove it"]
    )


def test_every_run_balances_with_the_partners_books(findings: Findings) -> None:
    assert [] == findings.unbalanced


def test_a_submit_says_how_many_rows_already_have_or_await_a_link(findings: Findings) -> None:
    assert [] == findings.untold


def test_every_file_is_settled_by_nothing_but_what_the_output_offers(findings: Findings) -> None:
    assert [] == findings.stuck
    assert [] == findings.odd
    assert [] == findings.left
    assert {
        "settled: held, submit: exit 0",
        "settled: refused, dismiss: exit 0",
    } <= findings.figures.keys()


def test_the_year_had_every_kind_of_file_and_processes_were_killed(findings: Findings) -> None:
    odd = YEAR.feeds[0].odd.keys() - {"none"}
    kinds = {f"files: {kind}" for kind in (*odd, "delta", "cut", "whole after a cut")}

    assert kinds <= findings.figures.keys()
    assert findings.figures["commands: killed: submit"] > 0


def test_the_oracle_finds_a_row_that_was_not_sent_and_those_held_for_its_sake(
    year: Life, findings: Findings
) -> None:
    north = year.banks[0]
    first = north.portal.received[0]
    others = [sent for sent in north.portal.received if sent.row.card != first.row.card]
    without = replace(north, portal=replace(north.portal, received=others))

    recounted = recount(replace(year, banks=[without]))

    assert len(recounted.lost) > len(findings.lost)


def test_the_oracle_finds_a_file_that_nobody_took(year: Life) -> None:
    north = year.banks[0]
    whole = next(drop for drop in north.drops.values() if drop.whole == "whole")
    strange = replace(north, drops={**north.drops, "0" * 64: whole})

    recounted = recount(replace(year, banks=[strange]))

    assert f"north, {whole.day}, {whole.kind}: {whole.name}" in recounted.left


def test_the_oracle_finds_a_cut_file_that_passed(year: Life) -> None:
    north = year.banks[0]
    taken = north.runs[min(north.runs)].manifest.source.sha256
    drops = north.drops | {taken: north.drops[taken]._replace(whole="cut")}

    recounted = recount(replace(year, banks=[replace(north, drops=drops)]))

    assert recounted.cut


def test_the_oracle_finds_what_goes_through_where_the_guards_are_off(tmp_path: Path) -> None:
    source = "final_newline = false\n"
    more = '\n[resend]\nseen_before = "send"\n'
    feeds = tuple(feed._replace(source=source, more=more) for feed in YEAR.feeds)

    with lived(Place(tmp_path, SHORT), YEAR._replace(feeds=feeds)) as life:
        recounted = recount(life)

    assert recounted.twice
    assert recounted.cut
    assert [] == recounted.miscounted


@pytest.mark.parametrize("seed", range(2, 8))
def test_another_year_goes_as_well(tmp_path: Path, seed: int) -> None:
    with lived(Place(tmp_path, SMALL._replace(nights=30, seed=seed)), YEAR) as other:
        assert {} == recount(other).wrong
