"""Hours from an extract's drop to its links: of a run, of an issuer, and in its metrics."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from flows.extensions.alerts.metrics import write_metrics
from flows.extensions.partner_api.link_requests import Terms
from flows.extensions.partner_api.linking import link_row
from flows.reports.across import reconcile_runs
from flows.reports.hours import hours_of
from flows.reports.rebuild import rebuild
from flows.runs.keys import extracts, reconciliation, results
from schemas.portal import PAN
from tests.builders import portal_rows
from tests.extensions.partner_api.linker import PANS, REACHED, SERVICE, URL, Linker
from tests.night import BANK, NOON, Bench, local_bench, portal_csv
from tests.planted import set_run

HEAD = "cuid,last_4,url,expiration_date,error"


def at(bench: Bench, folder: Path, key: str, moment: datetime) -> None:
    """Set the time an object of a directory store was dropped."""
    os.utime(folder / "store" / key, (moment.timestamp(),) * 2)


def linked(folder: Path, *hours: float) -> tuple[Bench, str]:
    """Submit a row for each of these hours, and drop its link so long after the extract."""
    bench = local_bench(folder, service=SERVICE)
    rows = [{PAN: PANS[number], **REACHED} for number in range(len(hours) + 1)]
    name = bench.drop_bytes(portal_csv(portal_rows(*rows)))
    at(bench, folder, extracts(BANK) + name, NOON)
    run = bench.submit(name).manifest.run
    for number, after in enumerate(hours, start=1):
        line = f"c-{number},{PANS[number - 1][-4:]},{URL}/{number},2027-01-20,"
        bench.drop_result(f"{HEAD}\n{line}".encode(), f"{number}.csv")
        at(bench, folder, f"{results(BANK)}{number}.csv", NOON + timedelta(hours=after))
    bench.ingest()
    return bench, run


def test_a_run_says_how_long_its_links_took_from_the_drop_of_the_extract(tmp_path: Path) -> None:
    bench, run = linked(tmp_path, 2, 30.5, 100)

    hours = rebuild(bench.context, bench.stored(run)).summary["hours"]

    assert ("the extract's drop", NOON.isoformat()) == (hours["since"], hours["start"])
    assert (3, 30.5, 100.0, 72) == tuple(
        hours[name] for name in ("links", "median", "slowest", "within")
    )
    assert hours["share"] == pytest.approx(2 / 3)
    assert (
        b"median 30.5 h, slowest 100.0 h; 66.7% of 3 links within the agreed 72 h"
        in bench.report(run, "report.html")
    )


def test_a_single_link_arrives_when_the_service_gave_it(tmp_path: Path) -> None:
    bench, run = linked(tmp_path, 2)
    bench.now = lambda: NOON + timedelta(hours=5)

    link_row(bench.context, Linker(), run, 2, terms=Terms("the cardholder called"))

    assert {"2.0": 1, "5.0": 1} == rebuild(bench.context, bench.stored(run)).summary["hours"][
        "spread"
    ]


@pytest.mark.slow
def test_an_issuer_has_the_hours_of_all_its_runs_on_its_page_and_in_its_metrics(
    tmp_path: Path,
) -> None:
    bench, _ = linked(tmp_path, 2, 30.5)

    facts = reconcile_runs(bench.context)

    assert (2, 2.0, 30.5) == tuple(facts["hours"][name] for name in ("links", "median", "slowest"))
    assert b"median 2.0 h, slowest 30.5 h; 100% of 2 links" in bench.content(
        f"{reconciliation(BANK)}report.html"
    )
    text = write_metrics(bench.context)
    assert 'cardlink_link_hours{issuer="bank",kind="slowest"} 30.5' in text
    assert 'cardlink_links_in_time_ratio{issuer="bank"} 1.0\n' in text


@pytest.mark.slow
def test_a_run_without_the_time_of_its_drop_counts_from_its_plan(tmp_path: Path) -> None:
    bench, run = linked(tmp_path, 2)
    set_run(bench.adapters, run, dropped_at=None, planned_at=NOON + timedelta(hours=1))

    hours = rebuild(bench.context, bench.stored(run)).summary["hours"]

    assert ("the run's plan", {"1.0": 1}) == (hours["since"], hours["spread"])


def test_hours_of_no_link_are_unknown() -> None:
    assert (0, None, None, None) == tuple(
        hours_of([], 72)[name] for name in ("links", "median", "slowest", "share")
    )


def test_hours_add_up_over_runs() -> None:
    hours = hours_of([{"1.0": 3, "80.0": 1}, {"1.0": 1, "2.0": 3}], 72)

    assert (8, 1.0, 80.0, 7 / 8) == tuple(
        hours[name] for name in ("links", "median", "slowest", "share")
    )


@pytest.mark.parametrize(
    ("spread", "median", "share"),
    [
        ({"1.0": 1, "72.0": 1}, 1.0, 1.0),
        ({"1.0": 1, "72.0": 2}, 72.0, 1.0),
        ({"1.0": 1, "72.1": 1}, 1.0, 0.5),
    ],
)
def test_half_of_the_links_came_within_the_median_and_at_the_agreed_hour_is_in_time(
    spread: dict[str, int], median: float, share: float
) -> None:
    hours = hours_of([spread], 72)

    assert (median, share) == (hours["median"], hours["share"])
