"""A plugin of pytest that collects tests once and runs some of them for each mutant, in this process:
`pytest -p tests.mutants.in_process --mutants JOBS.json --verdicts VERDICTS.jsonl FILES`. Forks would be
cleaner, but polars has its threads by then, and they do not survive one.
"""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import Phase, settings

from tests.mutants import swap

DOUBTFUL = "doubtful"  # the verdict where a test failed with the fault, and afterwards without it


class Verdict(NamedTuple):
    """What became of a mutant: `killed` by the test that failed, `survived`, `timeout`,
    `untested` or `misfit`, where it needs a process of its own.
    """

    verdict: str
    by: str = ""
    tried: int = 0


class TooLongError(BaseException):
    """The tests of a mutant have used more CPU than they should."""


class Failures:
    """The tests that failed since the last look."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Look at each report."""
        if report.failed:
            self.names.append(report.nodeid)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the files of mutants and verdicts."""
    parser.addoption("--mutants", type=Path, required=True)
    parser.addoption("--verdicts", type=Path, required=True)


def pytest_configure() -> None:
    """Let a property fail by the first example that does: to find a small one takes a mutant's time."""
    phases = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
    settings.register_profile("mutants", settings(), phases=phases)
    settings.load_profile("mutants")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the mutants instead of the tests; one that was begun and has no verdict ended its process.

    A test that fails without the fault too may say nothing, or the fault has left something behind,
    such as a thread: this process ends, and in another that test alone runs without it.
    """
    jobs = json.loads(session.config.getoption("--mutants").read_text())
    verdicts: Path = session.config.getoption("--verdicts")
    earlier = read(verdicts)
    failures = Failures()
    session.config.pluginmanager.register(failures)
    items = {item.nodeid: item for item in session.items}
    noticing: list[str] = []  # the tests that noticed faults, the last one last
    for job in jobs:
        before = earlier.get(job["id"])
        if before and before["verdict"] != DOUBTFUL:
            continue
        note(verdicts, job, Verdict("timeout"))
        if before:
            if passed(items[before["by"]], session, failures):
                note(verdicts, job, Verdict("killed", before["by"], before["tried"]))
                continue
            del items[before["by"]]
        verdict = judge(job, in_turn(job, items, noticing), session, failures)
        if verdict.verdict == "killed":
            if not passed(items[verdict.by], session, failures):
                note(verdicts, job, verdict._replace(verdict=DOUBTFUL))
                return True
            noticing = [*(name for name in noticing if name != verdict.by), verdict.by]
        note(verdicts, job, verdict)
    return True


def in_turn(
    job: Mapping[str, Any], items: Mapping[str, pytest.Item], noticing: Sequence[str]
) -> list[pytest.Item]:
    """Return the tests of a job: first those that noticed an earlier fault, the last one first."""
    tests = {test.nodeid: test for test in chosen(job["tests"], items)}
    likely = [name for name in reversed(noticing) if name in tests]
    return [tests[name] for name in dict.fromkeys([*likely, *tests])]


def read(verdicts: Path) -> dict[int | str, dict[str, Any]]:
    """Return the last verdict of each mutant of a file, by the mutant's id."""
    lines = verdicts.read_text().splitlines() if verdicts.exists() else ()
    return {verdict["id"]: verdict for verdict in map(json.loads, lines)}


def note(verdicts: Path, job: Mapping[str, Any], verdict: Verdict) -> None:
    """Add a line to the file of verdicts; the last one of a mutant counts."""
    with verdicts.open("a") as file:
        file.write(json.dumps({"id": job["id"], **verdict._asdict()}) + "\n")


def chosen(names: Iterable[str], items: Mapping[str, pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the tests of these names; that of a file or of a test with cases stands for all its."""
    for name in names:
        if name in items:
            yield items[name]
        else:
            yield from (item for known, item in items.items() if known.startswith(name))


def judge(
    job: dict[str, Any], tests: Sequence[pytest.Item], session: pytest.Session, failures: Failures
) -> Verdict:
    """Run tests with the fault of a job until one fails."""
    if not tests:
        return Verdict("untested")
    swap.imported(job["file"])
    tried = 0
    try:
        with swap.fault(job["file"], job["function"], job["code"]), limited(job["limit"]):
            following: Sequence[pytest.Item | pytest.Session] = [*tests[1:], session]
            for test, after in zip(tests, following, strict=True):
                tried += 1
                if not passed(test, after, failures):
                    return Verdict("killed", test.nodeid, tried)
    except swap.MisfitError:
        return Verdict("misfit")
    except TooLongError:
        return Verdict("timeout", "", tried)
    finally:
        session._setupstate.teardown_exact(cast(Any, session))  # keeps what the session shares
    return Verdict("survived", "", tried)


def passed(test: pytest.Item, following: pytest.Item | pytest.Session, failures: Failures) -> bool:
    """Run a test, and take down what the following one does not share; return whether it passed."""
    failures.names.clear()
    test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
    return not failures.names


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """End what runs after so many CPU seconds: by an exception, then, where that is caught, by a
    signal.
    """

    def too_long(signum: int, frame: object) -> None:
        raise TooLongError

    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    before = signal.signal(signal.SIGPROF, too_long)
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + 3 * seconds, hard))
    signal.setitimer(signal.ITIMER_PROF, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
