"""`make ui`: a local Prefect server with its UI, the sample issuer deployed on it, and a worker, until Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from flows.demo import ISSUER, make_room, prepare, sample_data
from flows.errors import TryAgainError

PORT = 4200
START = 120  # seconds a server may take on a new database on a slow disk
POOL = "cardlink"
BIN = Path(sys.executable).parent
SETTINGS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_UI_V2_ENABLED": "false",  # the second one contacts an analytics host from the browser
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
}
TEXT = """
The Prefect UI is at {url}

  1. Deployments > rerun > Run > Custom run: extract sample-bank-20261120.csv; the dry run shows what would go
  2. Deployments > nightly-{issuer} > Run > Quick run: the night itself; its Artifacts tab shows where the rows went
  3. cardlink --config {folder} outbox list {issuer}
     cardlink --config {folder} simulate {issuer} --secret-key {folder}/portal-secret.asc    (plays the partner)
  4. Deployments > ingest-{issuer} > Run > Quick run: the balance and the report

Ctrl-C ends it; the next `make ui` begins anew.
"""


class ServerSilentError(TryAgainError):
    """The local Prefect server did not answer."""

    message = "The Prefect server did not respond at {url} within {seconds} seconds."
    next_step = "Look into {log}, then run the same command again."


def environment(folder: Path, port: int) -> dict[str, str]:
    """Return the environment of server, deployment and worker: everything below `folder`, nothing of the user's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "CARDLINK_"))}
    api = f"http://127.0.0.1:{port}/api"
    return {
        **kept,
        **SETTINGS,
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_LOGGING_SETTINGS_PATH": str(sample_data().parent / "deploy" / "logging.yaml"),
        "PREFECT_API_URL": api,
        "CARDLINK_CONFIG": str(folder),
        "CARDLINK_WORK_POOL": POOL,
    }


@contextmanager
def server(settings: dict[str, str], log: Path, port: int) -> Iterator[None]:
    """Run a Prefect server on loopback until the block ends; ServerSilentError where it does not come up."""
    command = [str(BIN / "prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with _running(command, settings, log) as process:
        _wait(settings["PREFECT_API_URL"], process, log)
        yield


@contextmanager
def worker(settings: dict[str, str], log: Path) -> Iterator[None]:
    """Run a process worker until the block ends."""
    command = [str(BIN / "prefect"), "worker", "start", "--pool", settings["CARDLINK_WORK_POOL"], "--type", "process"]
    with _running(command, settings, log):
        yield


@contextmanager
def _running(command: list[str], settings: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process in a group of its own, so that Ctrl-C reaches this one first, and end it with its children."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=settings, stdout=out, stderr=out, start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end and process.poll() is None:
        try:
            urlopen(f"{url}/health", timeout=2).close()  # noqa: S310 - our own server on loopback
        except (URLError, OSError):
            time.sleep(0.3)
        else:
            return
    raise ServerSilentError(url=url, seconds=START, log=str(log))


def serve(folder: Path, port: int) -> None:
    """Prepare the sample issuer, start server and worker, say where to look, and wait to be ended."""
    folder = folder.resolve()
    make_room(folder)
    prepare(folder, None)
    settings = environment(folder, port)
    _print_text("the Prefect server starts (about ten seconds on a new database)")
    with ExitStack() as stack:
        stack.enter_context(server(settings, folder / "server.log", port))
        _print_text("the sample issuer is deployed")
        subprocess.run([sys.executable, "-m", "flows.install"], env=settings, check=True)
        stack.enter_context(worker(settings, folder / "worker.log"))
        _print_text(TEXT.format(url=f"http://127.0.0.1:{port}", issuer=ISSUER, folder=os.path.relpath(folder)))
        with suppress(KeyboardInterrupt):
            signal.pause()
        _print_text("ending")


def _print_text(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    """Serve below ./ui at CARDLINK_UI_PORT or 4200 until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    serve(Path("ui"), int(os.environ.get("CARDLINK_UI_PORT") or PORT))


if __name__ == "__main__":
    main()
