"""Whether the cards of links are placed: what service and reports said, and nothing where neither
did.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from flows.partner_api.follow_links import follow_links
from flows.partner_api.link_ends import link_ends
from flows.runs.keys import transactions
from schemas.partner_api.link_placements import KNOWN_ENDS
from tests.night import BANK, NOON, local_bench
from tests.partner_api.test_placements import place_at_every_site
from tests.placed import placed


def test_of_links_that_the_service_answered_for_each_is_known_to_be_placed_or_not(
    tmp_path: Path,
) -> None:
    with placed(tmp_path, 20) as night:
        place_at_every_site(night)
        night.service.advance(3600)
        facts = follow_links(night.later(7).context, night.client)

        ends = link_ends([night.bench.stored(night.run)], threads=2)

    stages = {line["stage"]: line["cardholders"] for line in facts["funnel"]["stages"]}
    assert (20, stages["placed"]) == (ends["placed"].count(), ends["placed"].sum())
    assert [(NOON + timedelta(hours=7)).date()] == ends["placed_on"].drop_nulls().unique().to_list()


def test_where_jobs_are_not_queried_no_link_is_known_to_be_unplaced(tmp_path: Path) -> None:
    with placed(tmp_path, 5, follow_cardholders=False) as night:
        follow_links(night.bench.context, night.client)

        ends = link_ends([night.bench.stored(night.run)], threads=2)

    assert [None] * 5 == ends["placed"].to_list()


def test_of_links_that_only_reports_name_the_others_are_not_known(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    run = bench.submit(bench.drop(20)).manifest.run
    bench.answer()
    bench.ingest()
    first, second, *_ = bench.ledger(run)["cuid"]
    report = f"cuid,status,completed_on\n{first},SUCCESSFUL,2026-11-23\n{second},PENDING,\n"
    bench.store.replace(f"{transactions(BANK)}t.csv", [report.encode()])
    follow_links(bench.context, None)

    ends = link_ends([bench.stored(run)], threads=2)

    by_cuid = {cuid: end for _, _, cuid, *end in ends.rows()}
    assert ([True, "2026-11-23"], [False, "None"]) == tuple(
        [by_cuid[cuid][0], str(by_cuid[cuid][1])] for cuid in (first, second)
    )
    assert 18 == ends["placed"].null_count()


def test_a_report_whose_status_nobody_can_read_does_not_say_that_a_card_is_not_placed(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    run = bench.submit(bench.drop(5)).manifest.run
    bench.answer()
    bench.ingest()
    cuid = bench.ledger(run)["cuid"][0]
    report = f"cuid,status,completed_on\n{cuid},the card was placed!,\n"
    bench.store.replace(f"{transactions(BANK)}t.csv", [report.encode()])
    follow_links(bench.context, None)

    ends = link_ends([bench.stored(run)], threads=2)

    assert [None] * 5 == ends["placed"].to_list()


def test_of_runs_that_nobody_asked_about_nothing_is_returned(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    run = bench.submit(bench.drop(20)).manifest.run
    bench.answer()
    bench.ingest()

    ends = link_ends([bench.stored(run)], threads=2)

    assert (0, KNOWN_ENDS) == (ends.height, ends.schema)
