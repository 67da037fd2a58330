"""The night as operators run it: deployments of deploy/prefect.yaml on a real server, by a real process worker,
started from the command line and from the forms of the UI in a real browser.

One file, since all of it stands on one stage that takes half a minute to put up.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from prometheus_client.parser import text_string_to_metric_families

from flows.demo import ISSUER
from flows.steps.operate.watch import Failure
from flows.watch import failures
from tests.ops.browser import CHROMIUM, Page, browser
from tests.ops.stage import LATE, POSTGRES, ROOT, Run, Stage, install, on_stage, wait_for
from tests.servers import free_port

pytestmark = [pytest.mark.xdist_group("prefect"), pytest.mark.timeout(300)]
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)"
)
EXTRACT = "sample-bank-20261120.csv"


class Story(NamedTuple):
    """What was done on the stage, in order; runs that do not touch each other ran side by side."""

    stage: Stage
    rehearsed: Run
    rehearsed_artifacts: list[dict[str, object]]
    night: Run
    twice: Run
    looks: list[Run]
    ingested: Run
    skipped: Run
    run: str


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with on_stage(tmp_path_factory.mktemp("stage")) as running:
        yield running


@pytest.fixture(scope="module")
def story(stage: Stage) -> Story:
    rehearsal, look = stage.start("rerun", issuer=ISSUER, extract=EXTRACT), stage.start(f"watch-{LATE}", issuer=LATE)
    rehearsed, looks = stage.ended(rehearsal), [stage.ended(look)]
    dry = next(one["data"] for key, one in stage.artifacts().items() if key and key.endswith("-dry-chunks"))
    ended = stage.do(f"nightly-{ISSUER}", issuer=ISSUER)
    [run] = [path.name for path in (stage.folder / "store" / ISSUER / "runs").iterdir()]
    twice = stage.start("rerun", issuer=ISSUER, extract=EXTRACT, mode="send", new_run_reason="lost at the portal")
    stage.cardlink("simulate", ISSUER, "--secret-key", "portal-secret.asc")
    extracts = stage.folder / "store" / LATE / "extracts"
    extracts.mkdir(parents=True)
    shutil.copy(stage.folder / "store" / ISSUER / "extracts" / EXTRACT, extracts / "late.csv")
    (extracts / "late.csv").touch()
    weekend(stage.folder / f"{LATE}.toml")
    rest = [
        twice,
        stage.start(f"ingest-{ISSUER}", issuer=ISSUER),
        stage.start(f"nightly-{LATE}", issuer=LATE),
        stage.start(f"watch-{LATE}", issuer=LATE),
    ]
    refused, ingested, skipped, last = (stage.ended(one) for one in rest)
    looks.append(last)
    return Story(stage, rehearsed, json.loads(dry), ended, refused, looks, ingested, skipped, run)


def weekend(toml: Path) -> None:
    """Make today a day off."""
    day = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[(time.gmtime().tm_wday + 3) % 7]
    toml.write_text(toml.read_text().replace("[schedule]", f'[schedule]\ndays = ["{day}"]'))


def test_every_deployment_of_the_file_stands_on_the_server(story: Story) -> None:
    each = {
        f"{flow}-{issuer}"
        for flow in ("nightly", "ingest", "watch", "reconciliation", "renew", "placements", "purge")
        for issuer in (ISSUER, LATE)
    }

    assert each | {"rerun", "outbox", "backfill", "resubmit", "mend"} == set(story.stage.deployments())


def test_each_deployment_has_its_limit_of_one_and_runs_anywhere(story: Story) -> None:
    found = story.stage.call("deployments/filter", {})

    limits = {one["name"]: (one["global_concurrency_limit"] or {}).get("limit") for one in found}
    waits = {one["name"]: (one["concurrency_options"] or {}).get("collision_strategy") for one in found}
    assert set(limits.values()) == {1}
    assert (waits[f"nightly-{ISSUER}"], waits[f"ingest-{ISSUER}"]) == ("ENQUEUE", "CANCEL_NEW")
    assert all(one["path"] in (None, ".", "") and not one["pull_steps"] for one in found)


@pytest.mark.slow
def test_installing_again_changes_nothing(story: Story) -> None:
    before = (story.stage.deployments(), len(story.stage.call("automations/filter", {})))

    said = install(story.stage)

    assert (story.stage.deployments(), len(story.stage.call("automations/filter", {}))) == before
    assert "alerts go to: cardlink-webhook" in said


def test_the_night_completes_and_its_name_can_be_read(story: Story) -> None:
    assert story.night.state == "Completed"
    assert re.fullmatch(r"night of sample-bank, \w{3} \d\d \w{3} \d\d:\d\d", story.night.name)


def test_the_log_tells_the_night_in_a_dozen_lines_without_a_card(story: Story) -> None:
    text = "\n".join(story.night.logs)

    assert len(story.night.logs) <= 12
    assert f"{story.run}: 126 read, 72 submitted, 52 rejected" in text
    assert not re.search(r"\d{13,}", text.replace(story.run, ""))


def test_rows_reasons_chunks_outbox_and_progress_are_shown(story: Story) -> None:
    found = story.stage.artifacts()

    keys = {key for key in found if key}
    assert {f"{story.run}-{name}" for name in ("rows", "reasons", "chunks")} <= keys
    assert f"{ISSUER}-outbox" in keys
    assert '"sha256"' in found[f"{story.run}-chunks"]["data"]
    everything = story.stage.call("artifacts/filter", {"limit": 200})
    assert [one["data"] for one in everything if one["type"] == "progress"] == [100.0]


def test_the_dry_run_showed_exactly_what_the_night_sent(story: Story) -> None:
    sent = story.stage.cardlink("outbox", "list", ISSUER, "--run", story.run)["chunks"]

    assert story.rehearsed.state == "Completed"
    assert [one["rows"] for one in story.rehearsed_artifacts] == [one["rows"] for one in sent]


def test_errors_are_sent_again_from_the_form_after_a_dry_run(story: Story) -> None:
    asked = {"run": story.run, "which": "errors to resubmit as is", "reason": "the portal was busy"}

    rehearsed, done = (story.stage.do("resubmit", **asked, mode=mode) for mode in ("dry run", "send"))

    assert ("Completed", "Completed") == (rehearsed.state, done.state)
    assert any("1 rows of" in line and "would go out again" in line for line in rehearsed.logs)
    assert f"{story.run}-again" in story.stage.artifacts()
    sent = story.stage.cardlink("outbox", "list", ISSUER)["chunks"]
    assert [1] == [one["rows"] for one in sent if one["run"] != story.run]


def test_a_rerun_that_would_send_cards_twice_is_refused_and_explains_itself(story: Story) -> None:
    assert story.twice.state == "Failed"
    assert "would go out twice" in story.twice.message
    assert "cardlink outbox cancel" in story.twice.message


@pytest.mark.parametrize(
    ("deployment", "parameters", "named"),
    [
        ("rerun", {"issuer": "nobody", "extract": EXTRACT}, "nobody"),
        ("rerun", {"issuer": ISSUER, "extract": EXTRACT, "mode": "now"}, "now"),
        ("outbox", {"run": "last night"}, "last night"),
        ("rerun", {"issuer": ISSUER}, "extract"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_stored(
    story: Story, deployment: str, parameters: dict[str, str], named: str
) -> None:
    said = story.stage.refusal(deployment, **parameters)

    assert named in said


def test_the_ingest_shows_the_balance_and_where_the_report_lies(story: Story) -> None:
    found = story.stage.artifacts()

    assert story.ingested.state == "Completed"
    assert '"links received = rows linked"' in found[f"{story.run}-balance"]["data"]
    assert "report.html" in found[f"{story.run}-report"]["data"]


def test_a_day_off_is_skipped_and_announced(story: Story) -> None:
    assert story.skipped.state == "Skipped"
    assert any("no night today" in line for line in story.skipped.logs)


def test_a_missed_extract_is_delivered_once_and_closes_when_it_comes(story: Story) -> None:
    def about(words: str) -> list[str]:
        return [one["text"] for one in story.stage.delivered if words in one["subject"]]

    wait_for(lambda: about("over - Extract missing"), 20)

    assert [look.state for look in story.looks] == ["Completed"] * 2
    assert len(about(f"{LATE}: Extract missing")) == 1
    assert len(about(f"{LATE}: over - Extract missing")) == 1
    assert len(about(f"{LATE}: Night skipped")) == 1


def test_placements_without_a_service_completes_and_shows_its_funnel(story: Story) -> None:
    ended = story.stage.do(f"placements-{ISSUER}", issuer=ISSUER)

    funnel = json.loads(story.stage.artifacts()[f"{ISSUER}-funnel"]["data"])
    assert ended.state == "Completed"
    assert [one["cardholders that came to"] for one in funnel][:3] == ["cardholders", "sent", "linked"]
    assert funnel[2]["count"] > 0


def test_a_deployment_whose_last_run_failed_is_known_until_one_ends_well(story: Story) -> None:
    stage, name = story.stage, f"reconciliation-{LATE}"
    with temporary_settings({PREFECT_API_URL: f"{stage.url}/api"}):
        found = failures(LATE)
        for state in ("FAILED", "COMPLETED"):
            run = stage.start(name, issuer=LATE)
            stage.call(f"flow_runs/{run}/set_state", {"state": {"type": state}, "force": True})
            found += failures(LATE)

    assert found == [Failure(name, "Failed")]


def test_metrics_lie_in_the_store_and_prefects_own_are_served(story: Story) -> None:
    ours = (story.stage.folder / "store" / LATE / "metrics" / "openmetrics.txt").read_text()
    with urlopen(f"{story.stage.url}/api/metrics", timeout=10) as answer:
        theirs = list(text_string_to_metric_families(answer.read().decode()))

    assert ours.endswith("# EOF\n")
    assert any(family.name.startswith("prefect_") for family in theirs)


def test_prefects_database_holds_no_card_number(story: Story) -> None:
    extract = (story.stage.folder / "store" / ISSUER / "extracts" / EXTRACT).read_bytes()
    numbers = set(re.findall(rb"(?<!\d)[2-6]\d{15}(?!\d)", extract))
    kept = [path for path in (story.stage.folder / "prefect").rglob("*") if path.is_file()]
    logs = [story.stage.folder / name for name in ("server.log", "worker.log")]

    said = str([story.stage.call(f"{kind}/filter", {"limit": 200}) for kind in ("flow_runs", "logs", "artifacts")])

    assert len(numbers) > 5
    assert not [path.name for path in [*kept, *logs] if any(number in path.read_bytes() for number in numbers)]
    assert not any(number.decode() in said for number in numbers)


@pytest.mark.skipif(POSTGRES is None, reason="no PostgreSQL server is installed (Debian: apt-get install postgresql)")
def test_the_night_ran_on_postgresql(story: Story) -> None:
    assert story.stage.database == "PostgreSQL"
    log = (story.stage.folder / "server.log").read_text()
    assert "database is locked" not in log


def test_missed_nights_are_listed_and_exactly_that_list_is_sent_from_one_form(story: Story) -> None:
    span = {"issuer": LATE, "first_day": "2020-01-01", "last_day": "2100-01-01"}

    listed = story.stage.do("backfill", **span)
    told = story.stage.artifacts()[f"{LATE}-backfill"]
    digest = told["description"].rpartition(" ")[2]
    wrong = story.stage.start("backfill", **span, send_list="0" * 12)
    refused, sent = story.stage.ended(wrong), story.stage.do("backfill", **span, send_list=digest)

    assert ("Completed", "Failed", "Completed") == (listed.state, refused.state, sent.state)
    assert ["late.csv"] == [row["extract"] for row in json.loads(told["data"])]
    assert "ListChangedError" in refused.message


def test_a_renewal_shows_from_its_form_how_many_links_are_due(story: Story) -> None:
    done = story.stage.do(f"renew-{ISSUER}", issuer=ISSUER, within_days=365, mode="dry run")

    told = story.stage.artifacts()[f"{ISSUER}-renewal"]
    assert "Completed" == done.state
    assert re.match(r"[1-9]\d* links that end by ", told["description"])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("chromium")) as opened:
        opened.size(1280, 1000)
        yield opened


@needs_browser
@pytest.mark.parametrize(
    ("deployment", "texts"),
    [
        ("rerun", ["nothing is written", "dry run", "row-jump", ISSUER, "go out twice"]),
        ("outbox", ["a cancelled chunk is never sent", "uploaded", "release"]),
        ("resubmit", ["as codes or corrections say", "dry run", "sent a second time"]),
        ("mend", ["claim of a dead process", "reseal", "RESULT_SHORT"]),
        (f"nightly-{ISSUER}", ["weekend or holiday", ISSUER]),
        (f"ingest-{ISSUER}", ["rebuilt even without new results"]),
        (f"watch-{ISSUER}", ["Whose extracts, runs, results"]),
        (f"reconciliation-{ISSUER}", ["First business date"]),
        (f"renew-{ISSUER}", ["Links that end within so many days", "dry run", ISSUER]),
        ("backfill", ["exactly this list", "The first business date", ISSUER]),
        (f"placements-{ISSUER}", ["asked of lately"]),
    ],
)
def test_the_form_of_each_deployment_shows_help_and_choices(
    page: Page,
    story: Story,
    deployment: str,
    texts: list[str],
) -> None:
    story.stage.form(page, deployment)

    for text in texts:
        page.see(text, 15)


@needs_browser
def test_a_run_started_from_the_form_completes_and_shows_what_it_found(page: Page, story: Story) -> None:
    story.stage.form(page, "rerun")
    known = story.stage.newest("rerun")
    page.choose("issuer", ISSUER)
    page.type_into("extract", EXTRACT)

    page.click("Submit")

    run = wait_for(lambda: story.stage.newest("rerun", known), 20)
    page.go(f"{story.stage.url}/runs/flow-run/{run}")
    page.see("dry run: sample-bank-20261120.csv", 60)
    page.see("Completed", 60)
    page.click("Artifacts")
    page.see("Dry run: nothing was written")


@needs_browser
def test_a_wrong_parameter_is_refused_by_the_form_in_plain_words(page: Page, story: Story) -> None:
    story.stage.form(page, "outbox")
    page.type_into("run", "last night")

    page.click("Submit")

    page.see("'last night' does not match")


@needs_browser
def test_the_artifacts_of_the_night_render_as_tables(page: Page, story: Story) -> None:
    found = story.stage.artifacts()

    for key, text in ((f"{story.run}-chunks", "-00001.csv.pgp"), (f"{story.run}-balance", "received = rows linked")):
        page.go(f"{story.stage.url}/artifacts/artifact/{found[key]['latest_id']}")
        page.see(text)


@pytest.mark.slow
def test_make_ui_says_where_to_look_and_ends_with_all_its_processes(tmp_path: Path) -> None:
    port = free_port()
    settings = {**os.environ, "CARDLINK_UI_PORT": str(port), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "flows.ui"]

    with subprocess.Popen(command, cwd=tmp_path, env=settings, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "Ctrl-C" in line:
                break
        process.send_signal(signal.SIGINT)
        process.stdout.read()

    assert process.returncode == 0
    assert any(f"http://127.0.0.1:{port}" in line for line in said)
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{port}/api/health", timeout=2)
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True)
    assert left.stdout == ""
