"""The night as operators run it: deployments of deploy/prefect.yaml on a real server, by a real
process worker, started from the command line and from the forms of the UI in a real browser.

One file, since all of it stands on one stage that takes half a minute to put up.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen
from uuid import uuid4

import pytest
from prefect.deployments.runner import RunnerDeployment
from prefect.settings import PREFECT_API_URL, temporary_settings
from prometheus_client.parser import text_string_to_metric_families

from flows import watch
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import Issuer
from flows.commands.result import Result
from flows.errors import CardlinkError
from flows.extensions.simulator.demo import ISSUER, prepare
from flows.forms import form
from flows.install import automation, automations
from flows.nightly import nightly
from flows.runs.store import StoreDeniedError
from flows.steps import counted
from flows.watch import failures
from flows.wiring import forms_url
from schemas.actions import RESUBMIT
from tests.fault_proxy import Fault, RunInputs, between
from tests.leftovers import ended
from tests.night import runs_in
from tests.ops.browser import CHROMIUM, Page, browser
from tests.ops.stage import LATE, POSTGRES, ROOT, Run, Stage, install, late_bank, on_stage, wait_for
from tests.sample_bank import expected
from tests.servers import free_port

needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)"
)
EXTRACT = "sample-bank-20261120.csv"
READ, SENT, REFUSED = (expected()["counts"][name] for name in ("read", "submitted", "rejected"))
LEFT_OUT = f"{REFUSED} refused, 1 not eligible, 2 duplicate"
OUTCOME = f"{READ} read, {SENT} sent in 2 chunks; {LEFT_OUT}; upload 2"
# The demo, in `make test`, runs the same flows on a server embedded in it.
# the first test of each fixture pays for all it does
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


class Night(NamedTuple):
    """A night on the stage: its run in Prefect, and the id of ours."""

    stage: Stage
    ended: Run
    run: str


class Story(NamedTuple):
    """What was done on the stage after the night, in order; runs that do not touch each other ran
    side by side.
    """

    stage: Stage
    twice: Run
    rehearsed: Run
    looks: list[Run]
    ingested: Run
    skipped: Run
    run: str


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with on_stage(tmp_path_factory.mktemp("stage")) as running:
        yield running


@pytest.fixture(scope="module")
def night(stage: Stage) -> Night:
    ended = stage.do(f"nightly-{ISSUER}", issuer=ISSUER)
    [run] = [path.name for path in (stage.folder / "store" / ISSUER / "runs").iterdir()]
    return Night(stage, ended, run)


@pytest.fixture(scope="module")
def story(night: Night) -> Story:
    stage = night.stage
    late_bank(stage)
    looks = [stage.do(f"watch-{LATE}", issuer=LATE)]
    twice = stage.start(
        "rerun", issuer=ISSUER, extract=EXTRACT, dry_run=False, new_run_reason="lost at the portal"
    )
    stage.cardlink("simulate", ISSUER, "--secret-key", "portal-secret.asc")
    extracts = stage.folder / "store" / LATE / "extracts"
    extracts.mkdir(parents=True)
    shutil.copy(stage.folder / "store" / ISSUER / "extracts" / EXTRACT, extracts / "late.csv")
    (extracts / "late.csv").touch()
    weekend(stage.folder / f"{LATE}.toml")
    rest = [
        twice,
        stage.start("rerun", issuer=LATE, extract="late.csv"),
        stage.start(f"ingest-{ISSUER}", issuer=ISSUER),
        stage.start(f"nightly-{LATE}", issuer=LATE),
        stage.start(f"watch-{LATE}", issuer=LATE),
    ]
    refused, rehearsed, ingested, skipped, last = (stage.ended(one) for one in rest)
    looks.append(last)
    return Story(stage, refused, rehearsed, looks, ingested, skipped, night.run)


def weekend(toml: Path) -> None:
    """Make today a day off."""
    day = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[(time.gmtime().tm_wday + 3) % 7]
    toml.write_text(toml.read_text().replace("[schedule]", f'[schedule]\ndays = ["{day}"]'))


def deployments_of(*issuers: str) -> set[str]:
    flows = ("nightly", "ingest", "watch", "reconciliation", "renew", "placements", "purge")
    each = {f"{flow}-{issuer}" for flow in flows for issuer in issuers}
    by_hand = (
        "rerun",
        "ingest",
        "placements",
        "outbox",
        "backfill",
        "resubmit",
        "agree",
        "dismiss",
        "links",
        "acknowledge",
        "deliver",
        "worklist",
        "programme",
        "mend",
        "give_up",
        "erase",
        "audit",
    )
    return each.union(by_hand)


def test_every_deployment_of_the_file_stands_on_the_server(stage: Stage) -> None:
    found = stage.deployments()

    assert deployments_of(ISSUER) == set(found)


def test_an_issuer_that_is_added_has_deployments_of_its_own_beside_those_there_were(
    story: Story,
) -> None:
    found = story.stage.deployments()

    assert deployments_of(ISSUER, LATE) == set(found)


def test_only_what_comes_often_has_a_limit_of_one_and_every_deployment_runs_anywhere(
    stage: Stage,
) -> None:
    found = stage.call("deployments/filter", {})

    limits = {one["name"]: (one["global_concurrency_limit"] or {}).get("limit") for one in found}
    often = ("ingest-", "watch-", "reconciliation-", "placements-", "purge-")  # of any issuer
    assert {name: 1 if name.startswith(often) else None for name in limits} == limits
    assert all(one["path"] in (None, ".", "") and not one["pull_steps"] for one in found)


@pytest.mark.parametrize(
    "fault",
    [
        Fault.RESET,
        Fault.LATE_500,
        Fault.TIMEOUT,
    ],
    ids=["gone", "500", "silent"],
)
def test_a_night_whose_server_fails_from_its_first_artifact_on_commits_all_the_same(
    stage: Stage, tmp_path: Path, fault: Fault
) -> None:
    prepare(tmp_path, 100)
    gone = Event()

    def choose(asked: RunInputs) -> Fault | None:
        if "artifacts" in asked.path:
            gone.set()
        return fault if gone.is_set() else Fault.RESET if "events" in asked.path else None

    with between(stage.url, choose, silence=30) as proxy, (tmp_path / "flow.log").open("wb") as log:
        settings = {
            **stage.settings,
            "PREFECT_API_URL": f"{proxy.endpoint}/api",
            "CARDLINK_CONFIG": str(tmp_path),
        }
        code = f"from flows.nightly import nightly; nightly({ISSUER!r})"
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=settings,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        with ended(process):
            wait_for(lambda: process.poll() is not None or [*runs_in(tmp_path, ISSUER).committed()])
            alive = process.poll() is None

    assert gone.is_set()
    assert alive


def test_installing_again_changes_nothing_but_what_is_no_longer_as_deploy_says(
    stage: Stage,
) -> None:
    before = (stage.deployments(), len(stage.call("automations/filter", {})))
    nightly = f"deployments/{before[0][f'nightly-{ISSUER}']}"
    stage.call(nightly, {"concurrency_limit": 1}, "PATCH")  # as earlier versions deployed it

    said = install(stage)

    assert (stage.deployments(), len(stage.call("automations/filter", {}))) == before
    assert stage.call(nightly)["global_concurrency_limit"] is None
    assert "alerts go to: cardlink-webhook" in said


def test_the_night_completes_and_its_name_can_be_read(night: Night) -> None:
    assert night.ended.state == "Completed"
    name = (
        r"night of sample-bank, \w{3} \d\d \w{3} \d\d:\d\d: "
        rf".* have a link; .*\. {READ} read, {SENT} sent in 2 chunks;.*( upload 2\.| …)"
    )
    assert re.fullmatch(name, night.ended.name)


def test_the_state_says_what_came_of_the_night(night: Night) -> None:
    business, _, outcome = night.ended.message.partition(". ")
    assert "cardholders have a link; " in business
    assert f"{OUTCOME}." == outcome


def test_the_state_says_what_came_of_a_dry_run(story: Story) -> None:
    assert "Completed" == story.rehearsed.state
    outcome = f"dry run: {READ} read, {SENT} would be sent in 2 chunks; {LEFT_OUT}"
    assert story.rehearsed.message.endswith(f". {outcome}")
    assert story.rehearsed.name.startswith("dry run: submit late.csv: ")


def test_the_page_of_the_night_holds_counts_to_do_and_the_next_step(night: Night) -> None:
    found = night.stage.artifacts()

    run, night_page = found[f"{night.run}-submit"]["data"], found[f"{ISSUER}-night"]["data"]
    assert f"| submitted | {SENT} |" in run
    assert f'**Next:** `cardlink upload {ISSUER} --to "FOLDER"`' in run
    assert f"{night.run}-00001.csv.pgp | waiting" in night_page
    assert f"{SENT} sent in 2 chunks" in night_page


def test_the_log_tells_the_night_in_a_dozen_lines_without_a_card(night: Night) -> None:
    text = "\n".join(night.ended.logs)

    assert len(night.ended.logs) <= 12
    assert f"{night.run}: {READ} read, {SENT} submitted, {REFUSED} rejected" in text
    assert not re.search(r"\d{13,}", text.replace(night.run, ""))
    assert "/runs/" not in text  # a path of the store, which Prefect cannot open


def test_rows_reasons_chunks_outbox_and_progress_are_shown(night: Night) -> None:
    found = night.stage.artifacts()

    keys = {key for key in found if key}
    assert {f"{night.run}-{name}" for name in ("rows", "reasons", "chunks")} <= keys
    assert f"{ISSUER}-outbox" in keys
    assert '"sha256"' in found[f"{night.run}-chunks"]["data"]
    everything = night.stage.call("artifacts/filter", {"limit": 200})
    assert {one["data"] for one in everything if one["type"] == "progress"} == {100.0}


def test_a_schedule_of_a_deployed_flow_makes_scheduled_runs(stage: Stage) -> None:
    """With an SQLAlchemy that Prefect does not know, schedules silently never do."""
    with temporary_settings({PREFECT_API_URL: f"{stage.url}/api"}):
        made = nightly.to_deployment(
            "often", interval=timedelta(minutes=10), parameters={"issuer": ISSUER}
        )
        assert isinstance(made, RunnerDeployment)  # a coroutine where a loop runs
        often = made.apply()

    scheduled = {
        "deployments": {"id": {"any_": [str(often)]}},
        "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}},
    }
    wait_for(lambda: stage.call("flow_runs/filter", scheduled))
    stage.call(f"deployments/{often}", method="DELETE")


def test_errors_are_sent_again_from_the_form_after_a_dry_run(story: Story) -> None:
    asked = {"run": story.run, "which": "errors to resubmit as is", "reason": "the portal was busy"}
    errors = csv.DictReader(report_of(story, "errors.csv").splitlines())
    rows = [error["action"] for error in errors].count(RESUBMIT)  # as the simulated portal drew
    assert rows
    rehearsed = story.stage.do("resubmit", **asked, dry_run=True)
    done = story.stage.do("resubmit", **asked, rows=str(rows), dry_run=False)

    assert ("Completed", "Completed") == (rehearsed.state, done.state)
    assert any(
        f"{counted(rows, 'row')} of {story.run} would be sent again" in line
        for line in rehearsed.logs
    )
    assert f"{story.run}-again" in story.stage.artifacts()
    sent = story.stage.cardlink("upload", ISSUER)["chunks"]
    assert [rows] == [one["rows"] for one in sent if one["run"] != story.run]


def report_of(story: Story, name: str) -> str:
    """Return a file of the run's report."""
    run = story.stage.folder / "store" / ISSUER / "runs" / story.run
    return (run / "report" / name).read_text("utf-8-sig")


def test_a_rerun_that_would_send_cards_twice_is_refused_and_explains_itself(story: Story) -> None:
    assert story.twice.state == "Failed"
    assert "would be sent twice" in story.twice.message
    assert "the form outbox (action: cancel)" in story.twice.message
    assert not [line for line in story.twice.logs if "Traceback" in line]


@pytest.mark.parametrize(
    ("deployment", "parameters", "named"),
    [
        ("rerun", {"issuer": "nobody", "extract": EXTRACT}, "nobody"),
        ("rerun", {"issuer": ISSUER, "extract": EXTRACT, "dry_run": "now"}, "now"),
        ("outbox", {"action": "uploaded", "run": "last night"}, "last night"),
        ("rerun", {"issuer": ISSUER}, "extract"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_stored(
    stage: Stage, deployment: str, parameters: dict[str, str], named: str
) -> None:
    said = stage.refusal(deployment, **parameters)

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

    wait_for(lambda: about("resolved: "))

    assert [look.state for look in story.looks] == ["Completed"] * 2
    assert len(about(f"{LATE}: Extract missing")) == 1
    assert len(about(f"{LATE}: resolved: ")) == 1
    assert len(about(f"{LATE}: Night skipped")) == 1


def test_placements_without_a_service_completes_and_shows_its_funnel(story: Story) -> None:
    ended = story.stage.do(f"placements-{ISSUER}", issuer=ISSUER)

    funnel = json.loads(story.stage.artifacts()[f"{ISSUER}-funnel"]["data"])
    assert ended.state == "Completed"
    assert [one["cardholders who reached"] for one in funnel][:3] == [
        "cardholders",
        "sent",
        "linked",
    ]
    assert funnel[2]["count"] > 0


def test_a_result_with_a_failure_is_shown_whole_and_ends_its_flow_as_failed(story: Story) -> None:
    failure = StoreDeniedError(place="cards", code="403")

    @entry("refuse", form=Form("refuse", "refusal of {issuer}", actor="none"))
    def refuse(context: Context, issuer: Issuer) -> Result:
        """Learn nothing of an issuer.

        Args:
            issuer: Of whom.
        """
        return Result({}, [f"{issuer}: nothing"], exit_code=2, failure=failure)

    with temporary_settings({PREFECT_API_URL: f"{story.stage.url}/api"}):
        state: Any = form("refuse", [refuse])(issuer=ISSUER, return_state=True)

    assert (True, str(failure.sentence)) == (state.is_failed(), state.message)
    assert "nothing" in story.stage.artifacts()[f"{ISSUER}-refuse"]["data"]


@pytest.mark.parametrize(
    ("code", "failure", "dry_run", "state"),
    [
        (0, None, False, "Completed"),
        (4, None, False, "Out of balance"),
        (4, None, True, "Out of balance"),
        (2, StoreDeniedError(place="cards", code="403"), False, "Failed"),
        (2, StoreDeniedError(place="cards", code="403"), True, "Refused"),
    ],
)
def test_what_is_out_of_balance_has_a_state_of_its_own_and_a_refused_dry_run_is_no_failure(
    story: Story, code: int, failure: CardlinkError | None, dry_run: bool, state: str
) -> None:
    @entry("look", form=Form("look", "look at {issuer}", actor="none"))
    def look(context: Context, issuer: Issuer, *, dry_run: bool = False) -> Result:
        """Look at an issuer.

        Args:
            issuer: At whom.
            dry_run: Show what it would see.
        """
        return Result({}, [f"{issuer}: seen"], exit_code=code, failure=failure)

    with temporary_settings({PREFECT_API_URL: f"{story.stage.url}/api"}):
        ended: Any = form("look", [look])(issuer=ISSUER, dry_run=dry_run, return_state=True)

    assert state == ended.name
    assert ended.is_failed() == (state == "Failed")


def test_a_deployment_whose_last_run_failed_is_known_until_one_ends_well(story: Story) -> None:
    stage, name = story.stage, f"reconciliation-{LATE}"
    with temporary_settings({PREFECT_API_URL: f"{stage.url}/api"}):
        found = failures(LATE)
        for state in ("FAILED", "COMPLETED"):
            run = pending(stage, name)
            stage.call(f"flow_runs/{run}/set_state", {"state": {"type": state}, "force": True})
            found += failures(LATE)

    assert found == [(name, "Failed")]


def test_a_flow_run_without_a_sign_of_life_is_marked_as_crashed_and_a_living_one_is_not(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SILENT", timedelta(seconds=30))
    monkeypatch.setattr(watch, "PAUSE", 1.0)
    name = f"nightly-{ISSUER}"
    dead, alive = (pending(stage, name) for _ in range(2))
    for run in (dead, alive):
        stage.call(f"flow_runs/{run}/set_state", {"state": {"type": "RUNNING"}, "force": True})
    time.sleep(31)  # Running was a sign of life
    emit(stage, "heartbeat", {alive: ""})
    heard = {
        "filter": {
            "resource": {"id": [f"prefect.flow-run.{alive}"]},
            "event": {"name": ["prefect.flow-run.heartbeat"]},
        }
    }
    # the server stores events every few seconds
    wait_for(lambda: stage.call("events/filter", heard)["events"])

    with temporary_settings({PREFECT_API_URL: f"{stage.url}/api"}):
        found = failures(ISSUER)

    states = [stage.call(f"flow_runs/{run}")["state"]["type"] for run in (dead, alive)]
    stage.call(f"flow_runs/{alive}/set_state", {"state": {"type": "COMPLETED"}, "force": True})
    assert ["CRASHED", "RUNNING"] == states
    assert (name, "Crashed") in found


def pending(stage: Stage, deployment: str) -> str:
    """Create a flow run that no worker takes; return its id."""
    place = f"deployments/{stage.deployments()[deployment]}/create_flow_run"
    return str(stage.call(place, {"state": {"type": "PENDING"}})["id"])


def emit(on: Stage, event: str, deployments: dict[str, str]) -> None:
    """Emit an event of flow runs, each of a deployment, as Prefect does."""
    role = {"prefect.resource.role": "deployment", "prefect.resource.id": "prefect.deployment.x"}
    moment = datetime.now(UTC).isoformat()
    events = [
        {
            "id": str(uuid4()),
            "occurred": moment,
            "event": f"prefect.flow-run.{event}",
            "resource": {"prefect.resource.id": f"prefect.flow-run.{run}"},
            "related": [{**role, "prefect.resource.name": name}] if name else [],
        }
        for run, name in deployments.items()
    ]
    on.call("events", events)


def test_of_two_hundred_watches_the_one_that_is_silent_is_told(story: Story) -> None:
    stage, names = story.stage, {str(uuid4()): f"watch-bank-{number:03d}" for number in range(200)}
    spec = next(one for one in automations() if one["name"] == "cardlink watch silent")
    spec = {**spec, "name": "soon", "trigger": {**spec["trigger"], "within": 15}}
    [block] = [
        one["id"]
        for one in stage.call("block_documents/filter", {})
        if one["name"] == "cardlink-webhook"
    ]
    living = {run: name for run, name in names.items() if name != "watch-bank-077"}

    def told() -> list[str]:
        return sorted(
            {one["subject"] for one in stage.delivered if "watch-bank-" in one["subject"]}
        )

    stage.call("automations/", json.loads(automation(spec, [block]).model_dump_json()))
    emit(stage, "Pending", names)
    for _ in range(4):
        time.sleep(5)
        emit(stage, "Completed", living)
    wait_for(told)

    assert ["cardlink: watch-bank-077 is silent"] == told()


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [("[alerts]", "[alerts", "(at line"), ("[alerts]", "[alerts]\nreport_to = 1", "report_to")],
    ids=["no TOML", "an unknown key"],
)
def test_an_error_in_a_toml_is_told_by_the_watch_of_its_issuer(
    story: Story, was: str, now: str, said: str
) -> None:
    file = story.stage.folder / f"{LATE}.toml"
    text = file.read_text()
    file.write_text(text.replace(was, now))

    done = story.stage.do(f"watch-{LATE}", issuer=LATE)

    file.write_text(text)
    assert "Failed" == done.state
    assert f"{LATE}.toml" in done.message
    assert said in done.message


def test_metrics_lie_in_the_store_and_prefects_own_are_served(story: Story) -> None:
    ours = (story.stage.folder / "store" / LATE / "metrics" / "openmetrics.txt").read_text()
    with urlopen(f"{story.stage.url}/api/metrics", timeout=120) as answer:
        theirs = list(text_string_to_metric_families(answer.read().decode()))

    assert ours.endswith("# EOF\n")
    assert any(family.name.startswith("prefect_") for family in theirs)


def test_prefects_database_holds_no_card_number(story: Story) -> None:
    extract = (story.stage.folder / "store" / ISSUER / "extracts" / EXTRACT).read_bytes()
    numbers = set(re.findall(rb"(?<!\d)[2-6]\d{15}(?!\d)", extract))
    kept = [path for path in (story.stage.folder / "prefect").rglob("*") if path.is_file()]
    logs = [story.stage.folder / name for name in ("server.log", "worker.log")]

    said = str(
        [
            story.stage.call(f"{kind}/filter", {"limit": 200})
            for kind in ("flow_runs", "logs", "artifacts")
        ]
    )

    assert len(numbers) > 5
    assert not [
        path.name
        for path in [*kept, *logs]
        if any(number in path.read_bytes() for number in numbers)
    ]
    assert not any(number.decode() in said for number in numbers)


@pytest.mark.skipif(
    POSTGRES is None,
    reason="no PostgreSQL server is installed (Debian: apt-get install postgresql)",
)
def test_the_night_ran_on_postgresql(night: Night) -> None:
    assert night.stage.database == "PostgreSQL"
    log = (night.stage.folder / "server.log").read_text()
    assert "database is locked" not in log


def test_missed_nights_are_listed_and_exactly_that_list_is_sent_from_one_form(story: Story) -> None:
    span = {"issuer": LATE, "first_day": "2020-01-01", "last_day": "2100-01-01"}
    found = story.stage.artifacts()
    [rehearsed] = [
        one["data"] for key, one in found.items() if re.match(f"{LATE}.*-dry-chunks", key or "")
    ]

    listed = story.stage.do("backfill", **span)
    told = story.stage.artifacts()[f"{LATE}-backfill"]
    digest = told["description"].rpartition(" ")[2]
    wrong = story.stage.start("backfill", **span, send_list="0" * 12)
    refused, sent = story.stage.ended(wrong), story.stage.do("backfill", **span, send_list=digest)

    assert ("Completed", "Failed", "Completed") == (listed.state, refused.state, sent.state)
    assert ["late.csv"] == [row["extract"] for row in json.loads(told["data"])]
    assert "what would be sent now is not list 000000000000" in refused.message
    chunks = story.stage.cardlink("upload", LATE)["chunks"]
    # as the dry run showed
    assert [one["rows"] for one in json.loads(rehearsed)] == [one["rows"] for one in chunks]


def test_a_renewal_shows_from_its_form_how_many_links_are_due(story: Story) -> None:
    done = story.stage.do(f"renew-{ISSUER}", issuer=ISSUER, within_days=365)

    told = story.stage.artifacts()[f"{ISSUER}-renewal"]
    assert "Completed" == done.state
    assert re.match(r"[1-9]\d* links that expire by ", told["description"])


def test_a_receiver_with_a_schedule_has_a_deployment_that_delivers_and_announces_it_once(
    story: Story,
) -> None:
    stage, name = story.stage, f"deliver-{ISSUER}-mailer"
    toml = stage.folder / f"{ISSUER}.toml"
    text = toml.read_text()
    toml.write_text(f'{text}[deliveries.mailer]\nschedule = "30 5 * * *"\nprefect_event = true\n')
    install(stage)
    scheduled = stage.call(f"deployments/{stage.deployments()[name]}")

    done = stage.do(name, **scheduled["parameters"], **scheduled["schedules"][0]["parameters"])
    for _ in range(2):
        stage.do(f"watch-{ISSUER}", issuer=ISSUER)
    events = stage.call("events/filter", {"filter": {"event": {"prefix": ["cardlink.links."]}}})
    toml.write_text(text)
    install(stage)

    assert "30 5 * * *" == scheduled["schedules"][0]["schedule"]["cron"]
    assert "mailer: delivery 1 written" in done.message
    assert [("mailer", 1)] == [
        (event["payload"]["receiver"], event["payload"]["number"]) for event in events["events"]
    ]
    assert name not in stage.deployments()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("chromium")) as opened:
        opened.size(1280, 1000)
        yield opened


@needs_browser
@pytest.mark.parametrize(
    ("deployment", "texts"),
    [
        (
            "rerun",
            ["write nothing", "dry_run", "row-jump", ISSUER, "its cards would be sent twice"],
        ),
        ("outbox", ["a cancelled chunk is never sent", "uploaded", "release", "dry_run"]),
        ("resubmit", ["as codes or corrections say", "dry_run", "sent a second time"]),
        ("mend", ["a dead process's claim", "reseal", "RESULT_SHORT"]),
        (f"nightly-{ISSUER}", ["weekend or holiday", ISSUER]),
        (f"ingest-{ISSUER}", ["rebuilt even without new results"]),
        (f"watch-{ISSUER}", ["Whose extracts, runs, results"]),
        (f"reconciliation-{ISSUER}", ["First business date"]),
        (f"renew-{ISSUER}", ["Renew links that expire within", "dry_run", ISSUER]),
        ("backfill", ["The digest of the list to send", "The first business date", ISSUER]),
        (f"placements-{ISSUER}", ["that were queried recently"]),
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
        page.see(text)


@needs_browser
def test_a_run_started_from_the_form_completes_and_shows_what_it_found(
    page: Page, story: Story
) -> None:
    story.stage.do(f"watch-{ISSUER}", issuer=ISSUER)  # it offers the extracts
    story.stage.form(page, "rerun")
    known = story.stage.newest("rerun")
    page.choose("Issuer", ISSUER)
    page.choose("extract", EXTRACT)
    page.type_into("actor", "tester")

    page.click("Submit")

    run = wait_for(lambda: story.stage.newest("rerun", known))
    page.go(f"{story.stage.url}/runs/flow-run/{run}")
    page.see(f"is committed as run {story.run}: a real run would send nothing")
    page.see("Completed")
    page.click("Artifacts")
    page.see("sample-bank-rerun")


@needs_browser
def test_the_list_of_runs_and_the_page_of_the_night_say_what_came_of_it(
    page: Page, story: Story, night: Night
) -> None:
    first = night.ended.message.partition(";")[0]  # a name ends where it gets too long
    page.go(f"{story.stage.url}/runs")
    page.see(first)

    page.go(f"{story.stage.url}/runs/flow-run/{night.ended.id}")
    page.click("Details")
    page.see("State Message")
    page.click("See More")
    page.see(OUTCOME)

    assert page.text().count(first) >= 2


@needs_browser
def test_the_link_on_the_page_of_the_ingest_opens_the_report(page: Page, story: Story) -> None:
    found = story.stage.artifacts()
    page.go(f"{story.stage.url}/artifacts/artifact/{found[f'{ISSUER}-ingest']['latest_id']}")
    page.see("links received = rows linked")
    page.see(f"The report of {story.run}")

    url = page.js(
        "[...document.querySelectorAll('a')]"
        f".find(one => one.innerText.includes('The report of {story.run}')).href"
    )
    page.go(str(url))

    page.see("What does not balance" if "break" in story.ingested.message else "links received")
    assert story.stage.settings["CARDLINK_REPORTS_URL"] in str(url)


@needs_browser
def test_the_link_to_the_forms_shows_all_deployments_by_hand_and_no_other(
    page: Page, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_UI_URL", story.stage.url)
    wanted = {"deployments": {"tags": {"all_": ["by-hand"]}}}
    names = {one["name"] for one in story.stage.call("deployments/filter", wanted)}

    page.go(forms_url())
    page.see(f"{len(names)} Deployments")

    shown = page.js("[...document.querySelectorAll('a')].map(one => one.innerText.trim())")
    assert names <= {*shown}
    assert {f"nightly-{ISSUER}", f"ingest-{ISSUER}"}.isdisjoint(shown)


def test_a_chosen_run_that_is_gone_by_now_is_refused_in_a_sentence(stage: Stage) -> None:
    done = stage.do("mend", run=f"{ISSUER}-20261119-00000000", verb="abandon", reason="stale")

    assert "Failed" == done.state
    assert done.message.startswith(f"No run {ISSUER}-20261119-00000000.")


@needs_browser
def test_a_mistake_of_the_operator_is_one_sentence_without_a_stack_trace(
    page: Page, story: Story
) -> None:
    other = "as codes or corrections say"
    mistakes = {
        story.twice.id: "the form outbox (action: cancel)",
        story.stage.do(
            "outbox", action="hold", run=story.run
        ).id: "hold needs the field reason of the form outbox",
        story.stage.do(
            "resubmit", run=story.run, which=other, reason="again"
        ).id: "rows to resubmit are not given",
    }

    for run, sentence in mistakes.items():
        page.go(f"{story.stage.url}/runs/flow-run/{run}")
        page.see("Failed")
        page.see(sentence)
        assert "Traceback" not in page.text()
        assert not re.search(r"--[a-z]", page.text())


@needs_browser
def test_the_outbox_form_does_nothing_until_a_move_is_chosen_and_then_shows_it_first(
    page: Page, story: Story
) -> None:
    story.stage.form(page, "outbox")
    known = story.stage.newest("outbox")
    page.click("type")  # instead of choosing one
    page.type_into("run", story.run)
    page.type_into("actor", "tester")
    page.click("Submit")
    page.see("'action' is a required property")
    started = story.stage.newest("outbox", known)
    done = story.stage.do(
        "outbox", action="cancel", run=story.run, reason="ticket INC0012345, agreed 2026-11-20"
    )

    assert "" == started
    assert done.message.startswith("dry run, nothing was recorded")


@needs_browser
def test_a_wrong_parameter_is_refused_by_the_form_in_plain_words(page: Page, story: Story) -> None:
    story.stage.form(page, "outbox")
    page.choose("action", "uploaded")
    page.click("type")
    page.type_into("run", "last night")
    page.type_into("actor", "tester")

    page.click("Submit")

    page.see("'last night' does not match")


@needs_browser
def test_the_artifacts_of_the_night_render_as_tables(page: Page, story: Story) -> None:
    found = story.stage.artifacts()

    for key, text in (
        (f"{story.run}-chunks", "-00001.csv.pgp"),
        (f"{story.run}-balance", "received = rows linked"),
    ):
        page.go(f"{story.stage.url}/artifacts/artifact/{found[key]['latest_id']}")
        page.see(text)


@needs_browser
def test_the_worklist_is_shown_with_the_command_for_each_thing_to_do(
    page: Page, story: Story
) -> None:
    done = story.stage.do("worklist", issuer=ISSUER)

    told = story.stage.artifacts()[f"{ISSUER}-worklist"]
    lines = json.loads(told["data"])
    assert "Completed" == done.state
    assert f"{ISSUER}: {len(lines)} things to do" == told["description"]
    assert lines
    page.go(f"{story.stage.url}/artifacts/artifact/{told['latest_id']}")
    for line in lines:
        page.see(line["first"])


@needs_browser
def test_the_page_of_a_dry_run_shows_what_would_be_sent_and_where_other_rows_go(
    page: Page, story: Story
) -> None:
    found = story.stage.artifacts()
    [shown] = [one for key, one in found.items() if re.match(f"{LATE}.*-dry-rows", key or "")]

    page.go(f"{story.stage.url}/artifacts/artifact/{shown['latest_id']}")

    for text in ("submitted", f"{SENT}", "rejected", f"{REFUSED}"):
        page.see(text)


def test_make_ui_says_where_to_look_and_ends_with_all_its_processes(tmp_path: Path) -> None:
    port = free_port()
    settings = {**os.environ, "CARDLINK_UI_PORT": str(port), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "flows.extensions.simulator.ui"]

    with ended(
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env=settings,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    ) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "Ctrl-C" in line:
                break
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        process.wait()

    assert process.returncode == 0
    assert any(f"http://127.0.0.1:{port}" in line for line in said)
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{port}/api/health", timeout=120)
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True)
    assert left.stdout == ""
