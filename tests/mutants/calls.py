"""A plugin of pytest that notes which functions of ours each test calls, and how long it takes:
`pytest -p tests.mutants.calls --calls FOLDER`, also with workers. Each process writes a file of its
own there, with a line for each file of tests, once that is through.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from types import CodeType

import pytest

from tests.mutants.sources import ROOT, compile_with, compiled, functions

CALL = "_function_was_called"
called: set[str] = set()


@dataclass
class FileOfTests:
    """What the tests of one file call; `shared` is by fixture that several tests may use."""

    path: str
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    tests: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    shared: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    users: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def line(self) -> str:
        """Return it as JSON, with the number of a test for its name."""
        for fixture, shared in self.shared.items():
            for function in shared:
                self.tests[function] |= self.users[fixture]
        numbers = {name: at for at, name in enumerate(self.seconds)}
        tests = {
            name: sorted(numbers[test] for test in tests) for name, tests in self.tests.items()
        }
        return json.dumps({"seconds": self.seconds, "failed": self.failed, "tests": tests})


class Recorder:
    """Hooks around tests and fixtures of a process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.written = folder / f"{os.environ.get('PYTEST_XDIST_WORKER', 'all')}.jsonl"
        self.written.unlink(missing_ok=True)
        self.current = FileOfTests("")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        """Note what a fixture calls for every test that shares it."""
        before = set(called)
        called.clear()
        result = yield
        if fixturedef.scope != "function":
            self.current.shared[fixturedef.argname] |= called
        called.update(before)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note what a test calls, its fixtures included."""
        path = item.nodeid.partition("::")[0]
        if path != self.current.path:
            self.flush()
            self.current = FileOfTests(path)
        called.clear()
        began = process_time()
        result = yield
        self.current.seconds[item.nodeid] = round(process_time() - began, 3)
        for function in called:
            self.current.tests[function].add(item.nodeid)
        for fixture in getattr(item, "fixturenames", ()):
            self.current.users[fixture].add(item.nodeid)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which tests fail without any fault."""
        if report.failed:
            self.current.failed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write what the last file noted."""
        self.flush()

    def flush(self) -> None:
        """Add the line of a file that is through."""
        if self.current.seconds:
            with self.written.open("a") as file:
                file.write(self.current.line() + "\n")


def noting(path: Path) -> CodeType:
    """Return a module's code in which each function notes that it was called."""
    tree = ast.parse(path.read_text())
    file = str(path.relative_to(ROOT))
    for name, function in functions(tree):
        call = ast.parse(f"{CALL}({f'{file}:{name}'!r})").body[0]
        after_docstring = int(ast.get_docstring(function, clean=False) is not None)
        function.body.insert(after_docstring, ast.copy_location(call, function.body[0]))
    return compiled(ast.fix_missing_locations(tree), str(path))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the folder of what is noted."""
    parser.addoption("--calls", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Note from here on."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Recorder(config.getoption("--calls")))


setattr(builtins, CALL, called.add)
compile_with(noting)
