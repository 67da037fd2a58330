"""What a command reads does not become more with an issuer's runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest

from flows.book import stored_book, upkeep
from flows.book.book import read_book
from flows.extensions.alerts.metrics import write_metrics
from flows.extensions.deliveries.delivery import deliver
from flows.extensions.deliveries.receivers import confirm
from flows.operations.audit import verify
from flows.operations.questions import open_questions
from flows.reports import link_forms
from flows.reports.cardholder_trace import trace
from flows.reports.programme_report import read_issuer
from flows.reports.survey import survey
from flows.resend.renewal import renewals
from flows.results import dropped
from flows.runs import arrival_hour
from flows.runs.context import overlaid
from flows.runs.events import record_event
from flows.runs.keys import keys_of
from flows.runs.outbox import outboxes
from flows.submissions.extract_states import extract_states
from tests.bench.growth import ANSWERED_TOGETHER, LIVING, ROWS, Clock, grow, grown, submit_next
from tests.night import Bench
from tests.storms import FailingStore

RUNS = 16  # as many as are judged together, so that it is the same at twice as many
A_FEW = 8  # of work that is still open
NEXT = 1000  # the number of a run that is measured


@pytest.mark.slow
def test_copied_runs_are_as_recorded_and_everybody_in_them_has_a_link(tmp_path: Path) -> None:
    bench = grown(tmp_path / "store", 3 * ANSWERED_TOGETHER)

    proof = verify(bench.context.adapters, bench.issuer.issuer)
    across = survey(bench.context)

    assert not proof.findings
    assert 3 * ANSWERED_TOGETHER * ROWS == sum(run.rows["linked"] for run in across.runs)
    assert across.cards.is_empty()
    assert not any(run.is_behind for run in across.runs)


def opened(bench: Bench, act: Callable[[Bench], object]) -> list[str]:
    """Return the keys that an act opens."""
    keys: list[str] = []

    def note(does: str, key: str) -> None:
        if does == "open":
            keys.append(re.sub("[0-9a-f]{8,}", "*", key))

    act(replace(bench, store=FailingStore(bench.store, note)))
    return keys


def costs(bench: Bench, number: int) -> dict[str, int]:
    """Return how many objects each command opens."""
    measured = {
        "book": len(opened(bench, lambda noted: read_book(noted.context.adapters, "bank"))),
        "extracts": len(opened(bench, lambda noted: extract_states(noted.context))),
        "submit": len(opened(bench, lambda noted: submit_next(noted, number))),
    }
    bench.answer()
    return measured | {"ingest": len(opened(bench, Bench.ingest))}


@pytest.mark.slow
def test_twice_as_many_runs_cost_no_more_reads(tmp_path: Path) -> None:
    bench = grown(tmp_path / "store", RUNS)
    clock = bench.now
    assert isinstance(clock, Clock)

    before = costs(bench, NEXT)
    grow(bench, clock, range(RUNS, 2 * RUNS - 1))
    after = costs(bench, NEXT + 1)

    more = {name: after[name] - before[name] for name in before}
    assert {} == {name: number for name, number in more.items() if number > A_FEW}


READERS: dict[str, Callable[[Bench], object]] = {
    "survey": lambda bench: survey(bench.context),
    "programme": lambda bench: read_issuer(bench.context),
    "status": lambda bench: read_book(bench.context.adapters, "bank").runs.statuses(bench.runs),
    "outbox": lambda bench: [
        *outboxes(bench.runs, closed=stored_book.closed_runs(bench.context.adapters, bench.runs))
    ],
    "trace": lambda bench: trace(bench.context.adapters, "bank", "nobody"),
    "renewal": lambda bench: renewals(bench.context, 7),
    "metrics": lambda bench: write_metrics(bench.context),
    "questions": lambda bench: open_questions(bench.context),
}


def settle(bench: Bench, number: int) -> None:
    """Let days go by, and make another run, so that all runs before it are closed."""
    clock = bench.now
    assert isinstance(clock, Clock)
    clock.moment += timedelta(days=2)
    grow(bench, clock, range(number, number + 1))


def reads(bench: Bench) -> dict[str, int]:
    """Return how many objects each reader opens."""
    return {name: len(opened(bench, act)) for name, act in READERS.items()}


@pytest.mark.slow
def test_closed_runs_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "TOGETHER", 1)
    # these look at the last runs or files, whatever they are
    monkeypatch.setattr(link_forms, "RUNS", 1)
    monkeypatch.setattr(arrival_hour, "NEWEST", 1)
    monkeypatch.setattr(dropped, "LOOKED_FOR", timedelta())
    bench = grown(tmp_path / "store", 2)
    clock = bench.now
    assert isinstance(clock, Clock)
    settle(bench, NEXT)

    before = reads(bench)
    grow(bench, clock, range(2, 4))
    settle(bench, NEXT + 1)

    assert before == reads(bench)


def delivered(bench: Bench) -> pl.DataFrame:
    """Deliver, confirm, and return the delivery."""
    number = deliver(bench.context).number
    confirm(bench.context, number, "receipt")
    return pl.read_parquet(BytesIO(bench.content(f"bank/deliveries/{number:06d}/links.parquet")))


@pytest.mark.slow
def test_a_delivery_reads_no_closed_run_and_no_earlier_delivery_whose_links_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "TOGETHER", 1)
    bench = grown(tmp_path / "store", 2)
    clock = bench.now
    assert isinstance(clock, Clock)
    settle(bench, NEXT)

    first = delivered(bench)
    before = opened(bench, lambda noted: deliver(overlaid(noted.context)))
    grow(bench, clock, range(2, 4))
    settle(bench, NEXT + 1)
    second = delivered(bench)
    after = opened(bench, lambda noted: deliver(overlaid(noted.context)))
    clock.moment += timedelta(days=LIVING + 3)
    ended = delivered(bench)

    assert len(before) == len(after)
    links = pl.concat([first, second]).select("cuid", "url", "run", "row", "expires_on")
    assert links.sort("url").equals(ended.filter(why="expired").select(links.columns).sort("url"))


@pytest.mark.slow
def test_closed_runs_that_changed_or_whose_figures_are_damaged_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "TOGETHER", 1)
    bench = grown(tmp_path / "store", 2)
    settle(bench, NEXT)
    known = stored_book.known_runs(bench.context.adapters, bench.runs)
    [first, second] = known.closed
    figures = {status.run: status for status in known.statuses(bench.runs)}

    cuid = bench.ledger(first)["cuid"][0]
    assert [first] == [
        attempt.run for attempt in trace(bench.context.adapters, "bank", cuid).attempts
    ]
    assert {second} == known.without(cuid)
    record_event(bench.context.adapters, keys_of(first), "noted", of="it")

    assert [second] == [*stored_book.closed_runs(bench.context.adapters, bench.runs)]
    upkeep.forget_book(bench.context.adapters, "bank")
    unread = stored_book.known_runs(bench.context.adapters, bench.runs)
    assert not unread.closed
    assert figures == {status.run: status for status in unread.statuses(bench.runs)}
