"""A partner that was written from the interface alone: followed from file to placed card, and from a
single link to a placed card, by settings alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from flows.cli.main import main
from flows.extensions.partner_api.placements import transactions
from tests.extensions.partner_api.test_placements_command import configure
from tests.night import BANK, Bench, local_bench
from tests.other_partner.serving import ENVIRONMENT, Served, other_partner


def run_cardlink(folder: Path, *arguments: str) -> Any:
    result = CliRunner(env=ENVIRONMENT).invoke(
        main, ["--config", str(folder), "--json", *arguments]
    )
    assert 0 == result.exit_code, result.stderr
    return json.loads(result.stdout)


def answer_files(bench: Bench, run: str, served: Served, refused: int) -> None:
    """Let the portal answer the chunks of a run; of the last cardholders it makes no link."""
    cuids = bench.ledger(run).filter(fate="submitted")["cuid"].to_list()
    served.partner.refused_in_files = set(cuids[-refused:])
    for chunk in bench.chunks(run):
        answer = httpx.post(f"{served.portal}/cardholders", content=chunk, trust_env=False)
        bench.drop_result(answer.raise_for_status().content)
    bench.ingest()


@pytest.mark.slow
def test_files_and_single_links_are_followed_to_placed_cards_by_settings_alone(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    run = bench.submit(bench.drop(30)).manifest.run
    with other_partner() as served:
        answer_files(bench, run, served, refused=8)
        configure(tmp_path, served.settings + "\n")

        (tmp_path / "portal.asc").write_bytes(bench.key.public)
        checked = run_cardlink(tmp_path, "check", "bank")
        singles = run_cardlink(tmp_path, "link", run, "--errors")
        served.clock.put_forward(60)
        followed = run_cardlink(tmp_path, "placements", "bank")

        world = served.partner.world
        opened = sum(link.opened is not None for link in world.links.values())
        placed = {job.link.cuid for job in world.jobs.values() if job.now.status == "SUCCESSFUL"}

    service = [check for check in checked["checks"] if check["part"] == "service"]
    assert ["", ""] == [check["error"] for check in service]
    assert {"rows": 8, "linked": 8, "linked before": 0} == singles["balance"]
    stages = {stage["stage"]: stage for stage in followed["funnel"]["stages"]}
    assert ([30, opened, len(placed)], [30, 30, 30]) == (
        [stages[name]["cardholders"] for name in ("linked", "opened", "placed")],
        [stages[name]["known"] for name in ("linked", "opened", "placed")],
    )
    assert [] == served.partner.refusals


@pytest.mark.slow
def test_a_report_of_transactions_under_own_names_says_what_the_service_did_not(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    run = bench.submit(bench.drop(9)).manifest.run
    with other_partner() as served:
        answer_files(bench, run, served, refused=0)
        configure(tmp_path, served.settings.replace("follow_cardholders = true", ""))
        served.clock.put_forward(60)
        report = httpx.get(f"{served.portal}/transactions", trust_env=False)
        key = f"{transactions(BANK)}today.csv"
        bench.store.replace(key, [report.raise_for_status().content])

        followed = run_cardlink(tmp_path, "placements", "bank")

        jobs = served.partner.world.jobs.values()
        placed = {job.link.cuid for job in jobs if job.now.status == "SUCCESSFUL"}

    assert [] == followed["breaks"]
    assert len(placed) == followed["funnel"]["stages"][-1]["cardholders"]
