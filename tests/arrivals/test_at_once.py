"""From a drop to the first chunk, and from a result to its report, by nobody's hand: a real Prefect
server and worker, and a server of S3.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest

from flows.extensions.simulator.demo import ISSUER
from tests.leftovers import ended
from tests.night import runs_in
from tests.ops.stage import Stage, on_stage, wait_for
from tests.servers import client, moto

# the first test pays for the stage too
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
EXTRACT = f"{ISSUER}-20261120.csv"


class Drop(NamedTuple):
    """A stage whose store is a bucket."""

    stage: Stage
    client: Any

    def put(self, key: str, content: bytes) -> None:
        """Drop a file for the issuer."""
        self.client.put_object(Bucket="cards", Key=f"x/{ISSUER}/{key}", Body=content)

    def keys(self, part: str) -> list[str]:
        """Return the issuer's objects whose keys hold a text."""
        listed = self.client.list_objects_v2(Bucket="cards", Prefix=f"x/{ISSUER}/")
        return [entry["Key"] for entry in listed.get("Contents", ()) if part in entry["Key"]]

    def runs(self, deployment: str) -> list[dict[str, Any]]:
        """Return the runs of a deployment that files started."""
        wanted = {
            "deployment_id": {"any_": [self.stage.deployments()[deployment]]},
            "tags": {"all_": ["arrival"]},
        }
        found: list[dict[str, Any]] = self.stage.call(
            "flow_runs/filter", {"flow_runs": wanted, "sort": "EXPECTED_START_TIME_DESC"}
        )
        return found

    @contextmanager
    def arrivals(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the process of arrivals."""
        with (self.stage.folder / "arrivals.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "flows.extensions.arrivals"],
                env=self.stage.settings,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        with ended(process):
            yield process


@pytest.fixture(scope="module")
def drop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drop]:
    with ExitStack() as stack:
        server = stack.enter_context(moto())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in server.environment.items():
            patch.setenv(name, value)
        stage = stack.enter_context(on_stage(tmp_path_factory.mktemp("stage")))
        toml = stage.folder / f"{ISSUER}.toml"
        text = toml.read_text().replace('root = "store"', 'root = "s3://cards/x"')
        toml.write_text(f"{text}\n[arrivals]\nevery_seconds = 2\n")
        yield Drop(stage, client(server.endpoint))


def test_a_drop_becomes_chunks_and_a_result_its_report_by_nobodys_hand(drop: Drop) -> None:
    extract = (drop.stage.folder / "store" / ISSUER / "extracts" / EXTRACT).read_bytes()
    nightly, ingest = f"nightly-{ISSUER}", f"ingest-{ISSUER}"
    with drop.arrivals() as process:
        wait_for(lambda: drop.keys("/metrics/arrivals.json"))
        began = time.monotonic()
        drop.put(f"extracts/{EXTRACT}", extract)
        wait_for(lambda: drop.keys("-00001.csv.pgp"))
        to_chunk = time.monotonic() - began
        wait_for(lambda: [*runs_in(drop.stage.folder, ISSUER).committed()])
        done = drop.stage.cardlink("simulate", ISSUER, "--secret-key", "portal-secret.asc")
        began = time.monotonic()
        wait_for(lambda: drop.keys("/report/report.html"))
        to_report = time.monotonic() - began
        process.terminate()
        code = process.wait()
    # to be read, with `-s`, on a quiet machine; nothing is asserted of it
    sys.stdout.write(f"drop to chunk {to_chunk:.1f} s, result to report {to_report:.1f} s\n")

    assert done
    assert 0 == code
    assert all(drop.runs(name) for name in (nightly, ingest))
    arrivals = drop.stage.cardlink("worklist", ISSUER)["arrivals"]
    assert {"text": "its process works", "is_down": False} == arrivals[ISSUER]


def test_two_processes_and_one_that_is_killed_change_nothing_that_is_stored(drop: Drop) -> None:
    before = drop.keys("/runs/")
    known = len(drop.runs(f"nightly-{ISSUER}"))
    with drop.arrivals() as process, drop.arrivals():  # the extract is of this hour: a run each
        wait_for(lambda: len(drop.runs(f"nightly-{ISSUER}")) > known)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        wait_for(lambda: all(run["end_time"] for run in drop.runs(f"nightly-{ISSUER}")))

    assert before == drop.keys("/runs/")
    assert {"COMPLETED"} == {run["state_type"] for run in drop.runs(f"nightly-{ISSUER}")}
