"""The business result of a run: how many cards have a link, and for whom the others wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.reports.business_result import with_attempts
from flows.reports.rebuild import rebuild
from flows.results.row_states import STATES
from flows.runs.outbox import move
from flows.runs.run_status import headline
from schemas.portal import CITY
from tests.builders import portal_rows
from tests.night import Bench, local_bench, portal_csv


@pytest.fixture
def sent(tmp_path: Path) -> tuple[Bench, str]:
    """A run of six rows, one of which we refuse, in three chunks."""
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 2})
    extract = bench.drop_bytes(portal_csv(portal_rows({}, {}, {}, {}, {}, {CITY: None})))
    return bench, bench.submit(extract).manifest.run


def result(bench: Bench, run: str) -> dict[str, Any]:
    facts: dict[str, Any] = rebuild(bench.context, bench.stored(run)).summary["open"]["result"]
    return facts


def test_before_the_upload_the_operator_has_to_act(sent: tuple[Bench, str]) -> None:
    bench, run = sent

    facts = result(bench, run)

    assert "0 of 6 cards have a link; 1 waits for the issuer, 5 for you." == facts["sentence"]


def test_after_the_upload_the_partner_has_to_answer(sent: tuple[Bench, str]) -> None:
    bench, run = sent
    move(bench.context.adapters, run, "uploaded", [1, 2])

    facts = result(bench, run)

    assert {"issuer": 1, "partner": 4, "operator": 1} == facts["waits"]


def test_a_page_is_green_only_where_nobody_waits(sent: tuple[Bench, str]) -> None:
    bench, run = sent
    bench.answer()
    bench.ingest()

    facts = result(bench, run)

    assert (5, {"issuer": 1}) == (facts["linked"], facts["waits"])
    page = bench.report(run, "report.html").decode()
    assert 'class="card verdict wait"' in page
    assert "5 of 6 cards have a link; 1 waits for the issuer." in page


@pytest.mark.parametrize(
    ("uploaded", "waits", "words"),
    [
        (
            [1, 2],
            {"issuer": 1, "partner": 4, "operator": 1},
            "balanced, answers awaited; 4 rows still wait; 1 row not sent, in cancelled chunks",
        ),
        ([], {"issuer": 1, "operator": 5}, "balanced; 5 rows not sent, in cancelled chunks"),
    ],
)
def test_rows_of_cancelled_chunks_wait_for_the_operator_and_for_no_answer(
    sent: tuple[Bench, str], uploaded: list[int], waits: dict[str, int], words: str
) -> None:
    bench, run = sent
    if uploaded:
        move(bench.context.adapters, run, "uploaded", uploaded)
    others = [number for number in (1, 2, 3) if number not in uploaded]
    move(bench.context.adapters, run, "cancelled", others, "the portal refuses them")

    summary = rebuild(bench.context, bench.stored(run)).summary

    assert (waits, words) == (summary["open"]["result"]["waits"], headline(summary))


@pytest.mark.parametrize(
    ("states", "rest", "waits"),
    [
        ({"linked": 3}, "nobody waits", {}),
        ({"linked": 1, "awaiting": 1, "error": 1}, "1 without an answer, 1 refused", {"issuer": 2}),
        ({"linked": 1, "error": 1, "refused": 1}, "2 refused", {"issuer": 2}),
    ],
)
def test_of_rows_that_were_sent_again_the_last_attempt_counts(
    states: dict[str, int], rest: str, waits: dict[str, int]
) -> None:
    own = {"cards": 3, "linked": 1, "waits": {"issuer": 2}, "sentence": "as the run left them"}
    after = dict.fromkeys(STATES, 0) | states

    facts = with_attempts(own, after)

    linked = states["linked"]
    words = f"{linked} of 3 cards have a link, with what was sent again; {rest}."
    assert (words, waits) == (facts["sentence"], facts["waits"])
