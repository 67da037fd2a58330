"""A real Prefect server with the versions that are installed: it starts, and a schedule fires.

With an SQLAlchemy that Prefect does not know, schedules silently never do.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from tests.servers import free_port

ROOT = Path(__file__).parent.parent
DEPLOY = """
from datetime import timedelta
from flows.nightly import nightly
nightly.to_deployment("often", interval=timedelta(minutes=10), parameters={"issuer": "sample-bank"}).apply()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[dict[str, str]]:
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")} | {
        "PREFECT_HOME": str(tmp_path),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_UI_ENABLED": "false",
        "PYTHONPATH": str(ROOT),
    }
    prefect = str(Path(sys.executable).parent / "prefect")
    process = subprocess.Popen(
        [prefect, "server", "start", "--host", "127.0.0.1", "--port", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: call(environment, "health") is True, 90)
        yield environment
    finally:
        process.terminate()
        process.wait(30)


def call(environment: dict[str, str], path: str, body: object = None) -> object:
    request = Request(
        f"{environment['PREFECT_API_URL']}/{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urlopen(request, timeout=5) as answer:
        found: object = json.loads(answer.read())
        return found


def wait_for(holds: object, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if holds():  # type: ignore[operator]  # a function without arguments
                return
        except (URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(0.3)
    raise AssertionError("it did not happen in time")


def test_a_schedule_of_a_deployed_flow_makes_scheduled_runs(server: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-c", DEPLOY], env=server, cwd=ROOT, check=True, timeout=60, capture_output=True)

    scheduled = {"flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}}}

    wait_for(lambda: call(server, "flow_runs/filter", scheduled), 45)
