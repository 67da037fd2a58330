"""A stage for an operator: a real Prefect server (on PostgreSQL where installed), a worker, a
webhook receiver.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from flows.commands.form import Form
from flows.extensions.simulator.demo import ISSUER, prepare
from flows.extensions.simulator.ui import environment, page_server, server, worker
from flows.registry import ENTRIES
from tests.leftovers import ended
from tests.ops.browser import Page
from tests.servers import free_port

ROOT = Path(__file__).parent.parent.parent
POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))), None)
PATIENCE = 900.0  # seconds: a machine with other work is slow, not wrong
# an issuer whose extract does not come, with no night on any day of this century
LATE = "late-bank"
FAST = {
    "PREFECT_WORKER_QUERY_SECONDS": "1",
    "PREFECT_SERVER_METRICS_ENABLED": "true",
    "PREFECT_SERVER_ENCRYPTION_KEY": "c2VjcmV0IG9mIHRoZSB0ZXN0cywgMzIgYnl0ZXMhISE=",
}
BY_HAND = {
    one.form.name for one in ENTRIES if isinstance(one.form, Form) and one.form.actor == "required"
}


class Run(NamedTuple):
    """A flow run that ended: name, state, what it logged."""

    id: str
    name: str
    state: str
    message: str
    logs: list[str]


class Stage(NamedTuple):
    """Everything that runs, and where."""

    url: str
    folder: Path
    settings: dict[str, str]
    delivered: list[dict[str, str]]
    database: str

    def call(self, path: str, body: object = None, method: str = "") -> Any:
        """Call Prefect's own interface."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(
            f"{self.url}/api/{path}",
            data,
            {"Content-Type": "application/json"},
            method=method or None,
        )
        with urlopen(request, timeout=PATIENCE) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    def deployments(self) -> dict[str, str]:
        """Return the deployments' ids by name."""
        return {one["name"]: one["id"] for one in self.call("deployments/filter", {})}

    def start(self, deployment: str, **parameters: object) -> str:
        """Start a run as the UI does, a form by hand in the name of a person; return its id."""
        parameters = {**({"actor": "tester"} if deployment in BY_HAND else {}), **parameters}
        created = self.call(
            f"deployments/{self.deployments()[deployment]}/create_flow_run",
            {"parameters": parameters},
        )
        return str(created["id"])

    def refusal(self, deployment: str, **parameters: object) -> str:
        """Return what the server says to parameters it does not take."""
        try:
            self.start(deployment, **parameters)
        except HTTPError as error:
            with error:
                return error.read().decode()
        return ""

    def ended(self, run: str) -> Run:
        """Wait for the end of a run."""
        found = wait_for(lambda: (one := self.call(f"flow_runs/{run}"))["end_time"] and one)
        if "concurrency limit" in (found["state"]["message"] or ""):  # a scheduled one was first
            path = f"deployments/{found['deployment_id']}/create_flow_run"
            repeated = self.call(path, {"parameters": found["parameters"]})
            return self.ended(str(repeated["id"]))
        wanted = {"logs": {"flow_run_id": {"any_": [run]}}, "sort": "TIMESTAMP_ASC"}

        def logs() -> list[str]:  # the last lines come in a batch after the end
            lines = self.call("logs/filter", wanted)
            last = any(
                "Finished in state" in line["message"] and line["task_run_id"] is None
                for line in lines
            )
            return [str(line["message"]) for line in lines] if last else []

        return Run(
            run,
            found["name"],
            found["state"]["name"],
            found["state"]["message"] or "",
            wait_for(logs),
        )

    def do(self, deployment: str, **parameters: object) -> Run:
        """Start a run and wait for its end."""
        return self.ended(self.start(deployment, **parameters))

    def artifacts(self) -> dict[str, Any]:
        """Return the newest artifact of each key."""
        return {one["key"]: one for one in self.call("artifacts/latest/filter", {"limit": 200})}

    def newest(self, deployment: str, other_than: str = "") -> str:
        """Return the id of the newest run of a deployment, nothing where it is the one that is
        known.
        """
        wanted = {
            "flow_runs": {"deployment_id": {"any_": [self.deployments()[deployment]]}},
            "limit": 1,
        }
        found = self.call("flow_runs/filter", {**wanted, "sort": "EXPECTED_START_TIME_DESC"})
        return next((str(one["id"]) for one in found if one["id"] != other_than), "")

    def form(self, page: Page, deployment: str) -> None:
        """Open the form of a deployment."""
        page.go(f"{self.url}/deployments/deployment/{self.deployments()[deployment]}/run")
        page.see("Validate parameters")

    def cardlink(self, *arguments: str) -> dict[str, Any]:
        """Run a command of the command line beside the flows."""
        starter = [sys.executable, "-c", "from flows.cli.__main__ import run; run()", "--json"]
        done = subprocess.run(
            [*starter, *arguments], cwd=self.folder, env=self.settings, capture_output=True
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def wait_for(holds: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Return what holds, once it does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.2)
    raise AssertionError(f"it did not happen in {seconds} s")


@contextmanager
def on_stage(folder: Path) -> Iterator[Stage]:
    """Run all of it until the block ends."""
    port, delivered = free_port(), []  # type: tuple[int, list[dict[str, str]]]
    prepare(folder, None)
    with ExitStack() as stack:
        settings = {**environment(folder, port, free_port()), **FAST, "PYTHONPATH": str(ROOT)}
        database = "SQLite"
        if POSTGRES is not None:
            settings["PREFECT_API_DATABASE_CONNECTION_URL"] = stack.enter_context(
                postgres(POSTGRES.parent)
            )
            database = "PostgreSQL"
        address = stack.enter_context(receiver(delivered))
        settings["CARDLINK_CHANNELS"] = f"webhook = {address}"
        stack.enter_context(server(settings, folder / "server.log", port))
        found = Stage(f"http://127.0.0.1:{port}", folder, settings, delivered, database)
        install(found)
        stack.enter_context(page_server(settings, folder / "pages.log"))
        stack.enter_context(worker(settings, folder / "worker.log"))
        yield found


def install(on: Stage) -> str:
    """Install deployments, channels and automations, without schedules that come between; return
    what it says.
    """
    command = [sys.executable, "-m", "flows.cli", "install"]
    said = subprocess.run(
        command, env=on.settings, check=True, capture_output=True, text=True
    ).stdout
    unscheduled(on)
    return said


def unscheduled(on: Stage) -> None:
    """Pause every deployment, and take away the runs that are planned already."""
    for deployment in on.deployments().values():
        on.call(f"deployments/{deployment}", {"paused": True}, "PATCH")
    for run in on.call(
        "flow_runs/filter", {"flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}}}
    ):
        on.call(f"flow_runs/{run['id']}", method="DELETE")


def late_bank(on: Stage) -> None:
    """Add an issuer whose extract does not come."""
    text = (
        (on.folder / f"{ISSUER}.toml")
        .read_text()
        .replace(f'"{ISSUER}"', f'"{LATE}"')
        .replace(f"{ISSUER}-*", "*")
    )
    calendar = '\n[schedule]\nextract_by = 00:00:00\n[alerts]\nreport_url = "https://reports.example.com/cards"\n'
    (on.folder / f"{LATE}.toml").write_text(text + calendar)
    install(on)


@contextmanager
def receiver(delivered: list[dict[str, str]]) -> Iterator[str]:
    """Listen on loopback for notifications; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            delivered.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}/alerts"
        listening.shutdown()


@contextmanager
def postgres(programs: Path) -> Iterator[str]:
    """Run a PostgreSQL server with an empty database on loopback; yield its address for Prefect."""
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    port, folder = free_port(), Path(tempfile.mkdtemp(prefix="pg-"))
    if user:
        shutil.chown(folder, user, user)
    options: dict[str, Any] = {"user": user, "group": user, "cwd": folder}
    options |= {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    made = [
        "--auth",
        "trust",
        "--username",
        "prefect",
        "--no-sync",
        "--no-instructions",
        "--pgdata",
        "data",
    ]
    subprocess.run([str(programs / "initdb"), *made], check=True, **options)
    quick = [
        "-c",
        "fsync=off",
        "-c",
        "unix_socket_directories=",
        "-c",
        "listen_addresses=127.0.0.1",
    ]
    process = subprocess.Popen(
        [str(programs / "postgres"), "-D", "data", "-p", str(port), *quick],
        start_new_session=True,
        **options,
    )
    try:
        ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        wait_for(lambda: subprocess.run(ready, check=False).returncode == 0)
        yield f"postgresql+asyncpg://prefect@127.0.0.1:{port}/postgres"
    finally:
        with ended(process):
            process.send_signal(signal.SIGINT)  # the quick way to end: it waits for no client
            process.wait(PATIENCE)
        shutil.rmtree(folder)
