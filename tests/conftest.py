"""Fixtures of all tests: servers, one of each kind for a test process, and databases. And what holds for the
whole session: temporary files in memory where that is possible, and nothing left running at its
end."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings

from flows.database.connection import Database
from tests import leftovers, published_outcomes, servers

settings.register_profile("quick", max_examples=10, deadline=None)  # a busy machine is no failure
settings.register_profile("thorough", max_examples=300, deadline=None)  # `make test-all`
settings.load_profile("quick")

LONGEST = (
    "test_operating",
    "twenty",
    "test_year",
    "quarter",
    "test_twelve",
    "leaks",
    "test_demo",
    "hundred",
    "test_resubmission.py",
    "test_iam",
    "test_s3_faults",
    "test_kept_links",
    "test_command_line",
    "test_worklist",
    "test_changed.py",
    "test_watch",
    "test_links.py",
    "test_portfolio.py",
    "test_renewal",
    "test_stored",
    "test_delivery",
    "test_guard",
    "test_attribute",
    "test_dry_runs",
    "test_sample_data",
    "test_exports",
    "test_validate",
    "torture",
    "test_single_links",
    "bench",
)
MEMORY = Path("/dev/shm")
LEFT = pytest.StashKey[list[str]]()
FOLDER = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary files in memory: half of the time of the tests is a disk that syncs. They
    are in a folder of the session, which goes with it. Mark what is started.
    """
    gc.disable()  # until all is imported
    # for the last look for garbage of Python itself: duckdb names what it leaves
    atexit.register(gc.unfreeze)
    config.stash[LEFT] = []
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK):
        folder = tempfile.mkdtemp(prefix="t-", dir=MEMORY)  # short: sockets are below it
        os.environ["TMPDIR"] = config.stash[FOLDER] = folder
        tempfile.tempdir = None  # asked for anew
        config.option.basetemp = config.option.basetemp or f"{folder}/p"  # of `tmp_path`
    # workers of xdist have that of their controller; a session within a test has its own, or it
    # would end the worker that started it
    if not hasattr(config, "workerinput"):
        os.environ[leftovers.MARKER] = uuid4().hex
        leftovers.sweep_at_the_end(os.environ[leftovers.MARKER])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, so that workers end together; of a test with several cases, one on
    the second kind of database is enough for `make test`.
    """
    on_second_kind = set[str]()
    for item in items:
        test, _, case = item.nodeid.partition("[")
        if "PostgreSQL-" in case or "-PostgreSQL" in case:
            if test in on_second_kind:
                item.add_marker(pytest.mark.slow)
            on_second_kind.add(test)

    def rank(item: pytest.Item) -> int:
        return next((at for at, name in enumerate(LONGEST) if name in item.nodeid), len(LONGEST))

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """Leave what is imported and collected out of every later look for garbage."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # frames are many objects and few cycles
    gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let the session's folder go."""
    if folder := config.stash.get(FOLDER, ""):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over what a worker tells of its threads."""
    node.config.stash[LEFT] += getattr(node, "workeroutput", {}).get("left", [])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Fail where a test left a thread or a process, once fixtures and workers have ended; end the
    processes.
    """
    yield
    config = session.config
    threads = [f"a thread: {name}" for name in leftovers.threads()]
    if hasattr(config, "workerinput"):
        config.workeroutput["left"] = threads  # type: ignore[attr-defined]  # xdist's own way to its controller
        return
    left = leftovers.that_stay(os.environ[leftovers.MARKER])
    for process in left:
        process.end()
    found = [*config.stash[LEFT], *threads, *(f"a process: {one.id} {one.command}" for one in left)]
    if found:
        if reporter := config.pluginmanager.get_plugin("terminalreporter"):
            reporter.write_line("\n".join(["", "left running by tests:", *found]), red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def _outcomes_are_as_published() -> Iterator[None]:
    """Hold what each command of a test reports to the schema of `--json`."""
    published_outcomes.watch()
    yield
    differences = sorted(set(published_outcomes.wrong))
    published_outcomes.wrong.clear()
    assert differences == [], "what a command prints is described in deploy/outcome.schema.json"


@pytest.fixture(scope="session")
def moto_server() -> Iterator[servers.S3Server]:
    """A moto server with an empty bucket; share it by prefix."""
    with servers.moto() as server:
        yield server


@pytest.fixture(scope="session")
def postgresql_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[servers.PostgresqlServer]:
    """A PostgreSQL server; each test makes a database in it."""
    with servers.postgresql(tmp_path_factory.mktemp("pg")) as server:
        yield server


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def database_address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty database, of each kind."""
    if request.param == "SQLite":
        yield f"sqlite:///{tmp_path}/cardlink.db"
        return
    with request.getfixturevalue("postgresql_server").database() as address:
        yield address


@pytest.fixture
def database(database_address: str) -> Iterator[Database]:
    """An empty database, of each kind."""
    opened = Database(database_address)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def ministack_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.S3Server]:
    """A ministack server with an empty bucket; share it by prefix."""
    with servers.ministack(tmp_path_factory.mktemp("ministack")) as server:
        yield server
