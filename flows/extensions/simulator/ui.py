"""`make ui`: a local Prefect server with its UI, the sample issuer and a worker, until Ctrl-C."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

from flows.errors import TryAgainError
from flows.extensions.simulator.demo import ISSUER, make_room, prepare
from flows.steps import Step
from flows.wiring import shipped

PORT = 4200
START = 600  # seconds a server may take: a new database on a slow disk, a machine with other work
POOL = "cardlink"
PREFECT = [sys.executable, "-m", "prefect"]
SETTINGS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # the second one contacts an analytics host from the browser
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
}
TEXT = """
The Prefect UI is at {url}

  1. Deployments > rerun > Run > Custom run: extract sample-bank-20261120.csv;
     the dry run shows what would be sent
  2. Deployments > nightly-{issuer} > Run > Quick run: the night;
     its Artifacts tab shows where the rows went
  3. Copy the chunks to a folder, and play the partner:
     {upload}
     {simulate}
  4. Deployments > ingest-{issuer} > Run > Quick run: the balance, and a link to the report

Ctrl-C stops it; the next `make ui` starts over.
"""


class ServerSilentError(TryAgainError):
    """The local Prefect server did not start."""

    message = "The Prefect server did not start at {url} within {seconds} seconds."
    next_step = "Read {log}, then run {same_command} again."


def environment(folder: Path, port: int, pages: int) -> dict[str, str]:
    """Return the environment of all processes, without settings of the user's.

    Everything is below `folder` and on these ports.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PREFECT_", "CARDLINK_"))
    }
    return {
        **inherited,
        **SETTINGS,
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_LOGGING_SETTINGS_PATH": str(shipped("deploy") / "logging.yaml"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_UI_URL": f"http://127.0.0.1:{port}",
        "CARDLINK_CONFIG": str(folder),
        "CARDLINK_REPORTS_URL": f"http://127.0.0.1:{pages}/{secrets.token_urlsafe(24)}",
        "CARDLINK_WORK_POOL": POOL,
    }


@contextmanager
def server(settings: dict[str, str], log: Path, port: int) -> Iterator[None]:
    """Run a Prefect server on loopback until the block ends.

    ServerSilentError if it does not start.
    """
    command = [*PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    url = settings["PREFECT_API_URL"]
    end = time.monotonic() + START
    with _running(command, settings, log) as process:
        while not _responds(url):
            if time.monotonic() > end or process.poll() is not None:
                raise ServerSilentError(url=url, seconds=START, log=str(log))
            time.sleep(0.3)
        yield


@contextmanager
def worker(settings: dict[str, str], log: Path) -> Iterator[None]:
    """Run a process worker until the block ends."""
    pool = settings["CARDLINK_WORK_POOL"]
    command = [*PREFECT, "worker", "start", "--pool", pool, "--type", "process"]
    with _running(command, settings, log):
        yield


@contextmanager
def page_server(settings: dict[str, str], log: Path) -> Iterator[None]:
    """Run the page server that the links to reports lead to, until the block ends."""
    with _running([sys.executable, "-m", "flows.pages"], settings, log):
        yield


@contextmanager
def _running(
    command: list[str], settings: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process in its own group until the block ends, and end it with its children.

    So Ctrl-C reaches us first.
    """
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=settings, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _responds(url: str) -> bool:
    try:
        urlopen(f"{url}/health", timeout=2).close()  # noqa: S310 - our own server on loopback
    except OSError:
        return False
    return True


def main() -> None:
    """Serve the sample issuer from ./ui at CARDLINK_UI_PORT or 4200 until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path("ui").resolve()
    port = int(os.environ.get("CARDLINK_UI_PORT") or PORT)
    make_room(folder)
    prepare(folder, None)
    settings = environment(folder, port, port + 1)
    _print_text("starting the Prefect server (about ten seconds on a new database)")
    with suppress(KeyboardInterrupt), ExitStack() as stack:
        stack.enter_context(server(settings, folder / "server.log", port))
        _print_text("deploying the sample issuer")
        subprocess.run([sys.executable, "-m", "flows.cli", "install"], env=settings, check=True)
        stack.enter_context(page_server(settings, folder / "pages.log"))
        stack.enter_context(worker(settings, folder / "worker.log"))
        stack.callback(_print_text, "stopping")
        _print_text(_text(port, Path(os.path.relpath(folder))))
        signal.pause()


def _text(port: int, folder: Path) -> str:
    """Return what to do in the UI, and the commands beside it."""
    secret_key = folder / "portal-secret.asc"
    return TEXT.format(
        url=f"http://127.0.0.1:{port}",
        issuer=ISSUER,
        upload=Step("upload", ISSUER, to=folder / "upload", config=folder),
        simulate=Step("simulate", ISSUER, secret_key=secret_key, config=folder),
    )


def _print_text(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
