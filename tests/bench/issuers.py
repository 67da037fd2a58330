"""`make bench-issuers`: the nightly runs of many issuers on a Prefect work pool, by one worker of
one core and by two.

Three scenarios on one real server, with the commands of deploy/SCALE.md: one worker; two workers;
two workers, one of which is killed with its flow in the middle and not replaced. After each
scenario, every store is recounted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from flows.adapters.gpg_opener import GpgOpener
from flows.adapters.local import LocalStore
from flows.extensions.simulator.extract import write_sample
from flows.extensions.simulator.portal_key import make_portal_key
from flows.extensions.simulator.ui import POOL, environment, server
from flows.runs.keys import keys_of
from flows.runs.store import Store, read
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from schemas.ledger import SUBMITTED
from tests.bench.measure import machine
from tests.bench.scene import DAY, Scene, write_toml
from tests.leftovers import ended, with_its_parent
from tests.night import edges, runs_in
from tests.ops.stage import POSTGRES, ROOT, Stage, install, postgres, wait_for
from tests.servers import free_port

AT_LEAST = 1.8  # times as fast with two workers as with one
WAIT = 3600.0  # seconds for all runs of a scenario
BIN = Path(sys.executable).parent
WORKER = f"prefect worker start --pool {POOL} --type process --limit 1"
LIMIT = f"prefect work-pool set-concurrency-limit {POOL} {{runs}}"
SCENARIOS = {"one": "one worker", "two": "two workers", "killed": "two workers, one killed"}
SETTINGS = {
    # the default of 10 leaves a worker of one slot idle between runs
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",  # no schedule comes between
}
BAD = 0.01


class Portfolio(NamedTuple):
    """The issuers of one folder, each with an extract of so many rows, sealed with one key."""

    scene: Scene
    names: list[str]
    rows: int

    @property
    def store(self) -> Path:
        """The folder of all their stores."""
        return self.scene.folder / "store"

    def clear(self) -> None:
        """Leave the extracts only."""
        for name in self.names:
            self.scene.put_aside(
                *(path for path in (self.store / name).iterdir() if path.name != "extracts")
            )

    def begun(self, name: str) -> str:
        """Return the id of an issuer's run that has chunks and is not committed, or nothing."""
        committed = {run.id for run in runs_in(self.scene.folder, name).committed()}
        folders = (self.store / name / "runs").glob("*/chunks")
        found = (folder.parent.name for folder in folders if any(folder.iterdir()))
        return next((run for run in found if run not in committed), "")


class Killed(NamedTuple):
    """The run that died with its worker, what Prefect called it when all others had ended, seconds
    to finish it.
    """

    run: str
    chunks: int
    shown: str
    seconds: float


class Outcome(NamedTuple):
    """What one scenario took: seconds from the start of the pool to the last end, and how long each
    core was busy.
    """

    seconds: float
    busy: list[float]
    killed: Killed | None
    wrong: list[str]


def make_portfolio(folder: Path, issuers: int, rows: int) -> Portfolio:
    """Make so many issuers with an extract of `rows` rows each, no card twice."""
    portfolio = Portfolio(
        Scene(folder, make_portal_key()), [f"bank-{number:02d}" for number in range(issuers)], rows
    )
    for seed, name in enumerate(portfolio.names):
        extracts = portfolio.store / name / "extracts"
        extracts.mkdir(parents=True)
        with (extracts / f"{name}.csv").open("wb") as out:
            write_sample(out, rows, as_of=DAY, bad=BAD, seed=seed)
        write_toml(folder, name, portfolio.scene.key)
    (folder / "portal.asc").write_bytes(portfolio.scene.key.public)
    return portfolio


@contextmanager
def on_server(portfolio: Portfolio) -> Iterator[Stage]:
    """Run a Prefect server with every issuer deployed on it until the block ends."""
    folder, port = portfolio.scene.folder, free_port()
    settings = {**environment(folder, port, free_port()), **SETTINGS, "PYTHONPATH": str(ROOT)}
    with ExitStack() as stack:
        if POSTGRES is not None:
            settings["PREFECT_API_DATABASE_CONNECTION_URL"] = stack.enter_context(
                postgres(POSTGRES.parent)
            )
        stack.enter_context(server(settings, folder / "server.log", port))
        stage = Stage(f"http://127.0.0.1:{port}", folder, settings, [], "")
        install(stage)
        yield stage


@contextmanager
def worker(stage: Stage, core: int) -> Iterator[int]:
    """Run a worker, and whatever it starts, on one core until the block ends; yield its process."""
    command = with_its_parent(
        ["taskset", "-c", str(core), str(BIN / WORKER.split()[0]), *WORKER.split()[1:]]
    )
    with (stage.folder / f"worker-{core}.log").open("ab") as log:
        process = subprocess.Popen(
            command, env=stage.settings, stdout=log, stderr=log, start_new_session=True
        )
    with ended(process):
        yield process.pid
        kill(process.pid)


def run_all(stage: Stage, portfolio: Portfolio, cores: Sequence[int], *, killing: bool) -> Outcome:
    """Run `nightly` of every issuer with a worker on each core, recount every store, and clear
    it.
    """
    nightly = {issuer: stage.deployments()[f"nightly-{issuer}"] for issuer in portfolio.names}
    command(stage, LIMIT.format(runs=len(cores)))
    pause(stage, paused=True)
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(stage, core)) for core in cores]
        wait_for(lambda: len(online(stage)) >= len(cores))
        runs = {issuer: start(stage, deployment) for issuer, deployment in nightly.items()}
        began, before = time.monotonic(), busy()
        pause(stage, paused=False)
        dead, killed = "", None
        if killing:
            wait_for(lambda: count_ended(stage, runs) >= len(runs) // 3, WAIT)
            dead = str(wait_for(lambda: kill_one(stage, portfolio, runs, workers), WAIT))
        wait_for(lambda: count_ended(stage, runs) >= len(runs) - bool(dead), WAIT)
        if dead:
            killed = take_up(stage, portfolio, runs, dead)
        seconds = time.monotonic() - began
        spent = [after - at for after, at in zip(busy(), before, strict=True)]
    wrong = [*unfinished(stage, runs), *recount(portfolio)]
    portfolio.clear()
    return Outcome(seconds, spent, killed, wrong)


def start(stage: Stage, deployment: str) -> str:
    """Schedule a run of a deployment for now, as a quick run does; return its id."""
    made = stage.call(
        f"deployments/{deployment}/create_flow_run", {"parameters": {"on_any_day": True}}
    )
    return str(made["id"])


def pause(stage: Stage, *, paused: bool) -> None:
    """Pause the work pool, or let it go on."""
    stage.call(f"work_pools/{POOL}", {"is_paused": paused}, "PATCH")


def online(stage: Stage) -> list[str]:
    """Name the workers that the server takes for alive."""
    found = stage.call(
        f"work_pools/{POOL}/workers/filter", {"workers": {"status": {"any_": ["ONLINE"]}}}
    )
    return [one["name"] for one in found]


def count_ended(stage: Stage, runs: Mapping[str, str]) -> int:
    """Count the flow runs that have ended, however."""
    ends = {"type": {"any_": ["COMPLETED", "FAILED", "CRASHED", "CANCELLED"]}}
    time.sleep(0.5)  # asking is work for the server too
    return int(
        stage.call(
            "flow_runs/count", {"flow_runs": {"id": {"any_": [*runs.values()]}, "state": ends}}
        )
    )


def kill_one(
    stage: Stage, portfolio: Portfolio, runs: Mapping[str, str], workers: Sequence[int]
) -> str:
    """Kill the worker that is first to have chunks of an uncommitted run, with its flow; return
    whose run it was.
    """
    wanted = {
        "flow_runs": {"id": {"any_": [*runs.values()]}, "state": {"type": {"any_": ["RUNNING"]}}}
    }
    places = {
        one["id"]: one["infrastructure_pid"] for one in stage.call("flow_runs/filter", wanted)
    }
    families = {str(process): worker for worker in workers for process in processes_of(worker)}
    running = {
        issuer: families[place]
        for issuer, run in runs.items()
        if (place := (places.get(run) or "").rpartition(":")[2]) in families
    }
    end = time.monotonic() + 1  # then others may run
    while time.monotonic() < end:
        for issuer, worker in running.items():
            if portfolio.begun(issuer):
                kill(worker)
                return issuer
        time.sleep(0.005)
    return ""


def take_up(stage: Stage, portfolio: Portfolio, runs: dict[str, str], issuer: str) -> Killed:
    """Do for a run that died what deploy/RUNBOOK.md says, and wait for its end."""
    [folder], at = (portfolio.store / issuer / "runs").iterdir(), time.monotonic()
    chunks = len(list((folder / "chunks").iterdir()))
    shown = str(stage.call(f"flow_runs/{runs[issuer]}")["state"]["name"])
    change = {
        "state": {"type": "CRASHED", "name": "Crashed", "message": "its worker was killed"},
        "force": True,
    }
    stage.call(f"flow_runs/{runs[issuer]}/set_state", change)
    runs[issuer] = start(stage, stage.deployments()[f"nightly-{issuer}"])
    wait_for(lambda: count_ended(stage, runs) == len(runs), WAIT)
    return Killed(folder.name, chunks, shown, time.monotonic() - at)


def unfinished(stage: Stage, runs: Mapping[str, str]) -> list[str]:
    """Name the flow runs that did not complete."""
    found = {issuer: stage.call(f"flow_runs/{run}")["state"] for issuer, run in runs.items()}
    return [
        f"{issuer}: {state['name']}"
        for issuer, state in found.items()
        if state["type"] != "COMPLETED"
    ]


def recount(portfolio: Portfolio) -> list[str]:
    """Say what is lost or twice: every row of every issuer has to stand once, in one committed
    run.
    """
    with closing(GpgOpener([portfolio.scene.key.secret])) as opener:
        store = LocalStore(portfolio.scene.folder / "store")
        return [
            f"{name}: {what}"
            for name in portfolio.names
            for what in wrongs(store, opener, name, portfolio.rows)
        ]


def wrongs(store: Store, opener: GpgOpener, issuer: str, rows: int) -> Iterator[str]:
    """Yield what is wrong with the store of one issuer after its run."""
    committed = list(StoredRuns(edges(store), issuer).manifests())
    if len(committed) != 1 or len(StoredRuns(edges(store), issuer).ids) != 1:
        yield f"{len(StoredRuns(edges(store), issuer).ids)} runs, {len(committed)} committed"
        return
    [manifest] = committed
    keys, counts = keys_of(manifest.run), manifest.counts
    ledger = pl.concat(StoredRun(edges(store), keys).ledger())
    if ledger["row"].sort().to_list() != list(range(1, rows + 1)):
        yield f"the ledger has {ledger.height} records of {ledger['row'].n_unique()} rows"
    if (
        counts.read != rows
        or counts.submitted + counts.rejected + counts.duplicate + counts.suppressed != rows
    ):
        yield f"the counts are of {counts.read} rows"
    if {entry.key for entry in store.keys(keys.chunks)} != {
        keys.chunks + chunk.name for chunk in manifest.chunks
    }:
        yield "the chunks stored are not those that the manifest names"
    sent = ledger.filter(pl.col("fate") == SUBMITTED).sort("chunk", "position")
    if sent.height != counts.submitted or sent["cuid"].n_unique() != sent.height:
        yield f"{sent.height} rows sent, {sent['cuid'].n_unique()} cardholders, {counts.submitted} counted"
    for chunk in (
        manifest.chunks[0],
        manifest.chunks[len(manifest.chunks) // 2],
        manifest.chunks[-1],
    ):
        content = opener.open(read(store, keys.chunks + chunk.name), 1 << 20)
        cuids = [line.partition(b",")[0].decode() for line in content.splitlines()[1:]]
        if cuids != sent.filter(pl.col("chunk") == chunk.number)["cuid"].to_list():
            yield f"chunk {chunk.number} holds other rows than the ledger says"


def command(stage: Stage, text: str) -> None:
    """Run a command as it stands in the documents."""
    program, *words = text.split()
    subprocess.run(
        [str(BIN / program), *words], env=stage.settings, check=True, capture_output=True
    )


def processes_of(leader: int) -> list[int]:
    """Return a process and all it started."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(stat.parent.name))
    found = [leader]
    for process in found:
        found += parents.get(process, [])
    return found


def kill(leader: int) -> None:
    """Kill a process and all it started, with signal 9."""
    for process in processes_of(leader):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def busy() -> list[float]:
    """Return the seconds each core has worked since the machine started."""
    lines = [
        line.split()
        for line in Path("/proc/stat").read_text().splitlines()
        if line.startswith("cpu")
    ]
    tick = os.sysconf("SC_CLK_TCK")
    return [(sum(map(int, line[1:])) - int(line[4]) - int(line[5])) / tick for line in lines[1:]]


def measure(portfolio: Portfolio, only: Iterable[str]) -> Iterator[tuple[str, Outcome]]:
    """Run the scenarios that are asked for."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    with on_server(portfolio) as stage:
        for name in only:
            yield (
                name,
                run_all(
                    stage, portfolio, cores[: 1 if name == "one" else 2], killing=name == "killed"
                ),
            )


def tell(name: str, outcome: Outcome, rows: int) -> str:
    """Return the lines of one scenario."""
    spent = " + ".join(f"{seconds:.0f}" for seconds in outcome.busy)
    speed = f"{rows / outcome.seconds * 60:,.0f} rows a minute"
    lines = [f"{SCENARIOS[name]:26}{outcome.seconds:8.1f} s{speed:>30}, cores busy {spent} s"]
    if (killed := outcome.killed) is not None:
        lines.append(
            f"    {killed.run}: killed after {killed.chunks} chunks, then shown as {killed.shown};"
        )
        lines.append(f"    {killed.seconds:.1f} s to take it up and finish it")
    return "\n".join([*lines, *(f"    WRONG {what}" for what in outcome.wrong)])


def main() -> int:
    """Measure; 1 where two workers are not fast enough, or anything is lost or there twice."""
    parser = argparse.ArgumentParser(prog="make bench-issuers", description=__doc__)
    parser.add_argument("--issuers", type=int, default=20)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of each issuer's extract")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=[*SCENARIOS])
    parser.add_argument(
        "--out", type=Path, default=Path("dist/bench"), help="folder of issuers.json"
    )
    parser.add_argument("--work", type=Path, default=None, help="folder of the stores")
    asked = parser.parse_args()
    folder, found = (
        Path(tempfile.mkdtemp(prefix="cardlink-issuers-", dir=asked.work)),
        dict[str, Outcome](),
    )
    try:
        for name, outcome in measure(make_portfolio(folder, asked.issuers, asked.rows), asked.only):
            print(tell(name, outcome, asked.issuers * asked.rows), flush=True)
            found[name] = outcome
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report(asked, found)


def report(asked: argparse.Namespace, found: Mapping[str, Outcome]) -> int:
    """Keep the figures as JSON; return the exit code."""
    faster = found["one"].seconds / found["two"].seconds if {"one", "two"} <= found.keys() else None
    if faster is not None:
        print(f"two workers are {faster:.2f} times as fast as one, asked {AT_LEAST}")
    facts: dict[str, Any] = {
        "machine": machine(),
        "issuers": asked.issuers,
        "rows": asked.rows,
        "faster": faster,
    }
    facts["scenarios"] = {
        name: {**one._asdict(), "killed": one.killed and one.killed._asdict()}
        for name, one in found.items()
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "issuers.json").write_text(json.dumps(facts, indent=2) + "\n")
    return 1 if (faster or AT_LEAST) < AT_LEAST or any(one.wrong for one in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
