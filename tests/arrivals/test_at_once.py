"""From a drop to the first chunk, and from a result to its report, by nobody's hand: a real Prefect
server and worker, and a server of S3 and SQS that sends the events of its bucket.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, NamedTuple

import boto3.session
import pytest

from flows.simulator.demo import ISSUER
from tests.leftovers import ended
from tests.ops.stage import Stage, on_stage, wait_for
from tests.servers import S3Server, moto

# the first test pays for the stage too
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
EXTRACT = f"{ISSUER}-20261120.csv"


class Drop(NamedTuple):
    """A stage whose store is a bucket, which sends its events to a queue."""

    stage: Stage
    server: S3Server
    queue: str

    def client(self, service: str) -> Any:
        """Return a client of the account's owner."""
        return client_of(service, self.server.endpoint)

    def put(self, key: str, content: bytes) -> None:
        """Drop a file for the issuer."""
        self.client("s3").put_object(Bucket="cards", Key=f"x/{ISSUER}/{key}", Body=content)

    def keys(self, part: str) -> list[str]:
        """Return the issuer's objects whose keys hold a text."""
        listed = self.client("s3").list_objects_v2(Bucket="cards", Prefix=f"x/{ISSUER}/")
        return [entry["Key"] for entry in listed.get("Contents", ()) if part in entry["Key"]]

    def messages(self) -> int:
        """Return how many messages are in the queue, hidden or not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.client("sqs").get_queue_attributes(QueueUrl=self.queue, AttributeNames=names)
        return sum(map(int, answer["Attributes"].values()))

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
                [sys.executable, "-m", "flows.arrivals"],
                env=self.stage.settings,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        with ended(process):
            yield process


@cache
def client_of(service: str, endpoint: str) -> Any:
    """Return a client: to make one takes a tenth of a second."""
    session = boto3.session.Session("test", "test", region_name="us-east-1")
    return session.client(service, endpoint_url=endpoint)


@pytest.fixture(scope="module")
def drop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drop]:
    with ExitStack() as stack:
        server = stack.enter_context(moto())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in server.environment.items():
            patch.setenv(name, value)
        sqs = client_of("sqs", server.endpoint)
        queue = sqs.create_queue(QueueName="arrivals")["QueueUrl"]
        stage = stack.enter_context(on_stage(tmp_path_factory.mktemp("stage")))
        toml = stage.folder / f"{ISSUER}.toml"
        text = toml.read_text().replace('root = "store"', 'root = "s3://cards/x"')
        toml.write_text(f'{text}\n[arrivals]\nqueue = "{queue}"\n')
        opened = Drop(stage, server, queue)
        notify(opened)
        yield opened


def notify(drop: Drop) -> None:
    """Let the bucket send its events to the queue, as deploy/README.md says."""
    arn = "arn:aws:sqs:us-east-1:123456789012:arrivals"
    configured = [
        {
            "QueueArn": arn,
            "Events": ["s3:ObjectCreated:*"],
            "Filter": {
                "Key": {"FilterRules": [{"Name": "prefix", "Value": f"x/{ISSUER}/{folder}/"}]}
            },
        }
        for folder in ("extracts", "results")
    ]
    drop.client("s3").put_bucket_notification_configuration(
        Bucket="cards", NotificationConfiguration={"QueueConfigurations": configured}
    )


def test_a_drop_becomes_chunks_and_a_result_its_report_by_nobodys_hand(drop: Drop) -> None:
    extract = (drop.stage.folder / "store" / ISSUER / "extracts" / EXTRACT).read_bytes()
    nightly, ingest = f"nightly-{ISSUER}", f"ingest-{ISSUER}"
    with drop.arrivals(), drop.arrivals():  # two of them do no harm
        wait_for(lambda: drop.keys("/metrics/arrivals.json"))
        began = time.monotonic()
        drop.put(f"extracts/{EXTRACT}", extract)
        wait_for(lambda: drop.keys("-00001.csv.pgp"))
        to_chunk = time.monotonic() - began
        wait_for(lambda: drop.keys("/manifest.json"))
        done = drop.stage.cardlink("simulate", ISSUER, "--secret-key", "portal-secret.asc")
        began = time.monotonic()
        wait_for(lambda: drop.keys("/report/report.html") and drop.keys("/ingested/"))
        to_report = time.monotonic() - began
        wait_for(lambda: not drop.messages())
    # to be read, with `-s`, on a quiet machine; nothing is asserted of it
    sys.stdout.write(f"drop to chunk {to_chunk:.1f} s, result to report {to_report:.1f} s\n")

    assert done
    assert [1, 1] == [len(drop.runs(name)) for name in (nightly, ingest)]
    assert " came, " in drop.stage.cardlink("worklist", ISSUER)["arrivals"][ISSUER]["text"]


def test_events_that_come_again_and_a_killed_process_change_nothing_that_is_stored(
    drop: Drop,
) -> None:
    before = {*drop.keys("/runs/"), *drop.keys("/commits/")}
    known = len(drop.runs(f"nightly-{ISSUER}"))
    record = {
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": "cards"}, "object": {"key": f"x/{ISSUER}/extracts/{EXTRACT}"}},
    }
    with drop.arrivals() as process:
        wait_for(lambda: drop.keys("/metrics/arrivals.json"))
        for _ in range(3):
            drop.client("sqs").send_message(
                QueueUrl=drop.queue, MessageBody=json.dumps({"Records": [record]})
            )
        wait_for(lambda: len(drop.runs(f"nightly-{ISSUER}")) > known)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with drop.arrivals():
        wait_for(lambda: not drop.messages())
        wait_for(lambda: all(run["end_time"] for run in drop.runs(f"nightly-{ISSUER}")))

    assert before == {*drop.keys("/runs/"), *drop.keys("/commits/")}
    assert {"COMPLETED"} == {run["state_type"] for run in drop.runs(f"nightly-{ISSUER}")}


def test_a_queue_that_is_gone_is_a_line_of_the_check_and_the_runs_of_the_net_go_on(
    drop: Drop,
) -> None:
    drop.client("sqs").delete_queue(QueueUrl=drop.queue)
    with drop.arrivals():
        wait_for(
            lambda: "no such queue" in str(drop.stage.cardlink("worklist", ISSUER)["arrivals"])
        )
        found = drop.stage.cardlink("check", ISSUER)["checks"]
        night = drop.stage.do(f"nightly-{ISSUER}", issuer=ISSUER)

    wrong = [line["text"] for line in found if line["error"]]
    assert 1 == len(wrong)
    assert "there is no such queue" in wrong[0]
    assert "Completed" == night.state
