"""A campaign: a sample of mutants, the tests that can notice each, and what became of them."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutants.by_hand import faults
from tests.mutants.in_process import DOUBTFUL, read
from tests.mutants.sources import ROOT, Mutant

HERE = Path(__file__).parent
CALLS = ROOT / ".mutants" / "calls"
VERDICTS = ROOT / ".mutants" / "verdicts"  # by a file's content, so that an ended run can go on
ACCEPTED = HERE / "accepted.toml"
TESTED = HERE / "subjects.toml"
PATIENCE = 300  # seconds by the clock in which a test ends, however busy the machine


class Calls(NamedTuple):
    """Which tests call a function, and the CPU seconds each test takes."""

    tests: dict[str, list[str]]
    seconds: dict[str, float]

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that may notice a mutant, by file: first those of the folder that has the
        name of the mutant's, those with quick tests before others.
        """
        tests = self.tests.get(f"{mutant.file}:{mutant.function}", [])
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in dict.fromkeys(tests):
            by_file[test.partition("::")[0]].append(test)
        folder = f"tests/{mutant.file.split('/')[1]}/"
        first = sorted(
            by_file.values(),
            key=lambda several: (not several[0].startswith(folder), self._mean(several)),
        )
        return [test for several in first for test in several]

    def _mean(self, tests: Sequence[str]) -> float:
        return sum(self.seconds[test] for test in tests) / len(tests)


def read_calls(folder: Path) -> Calls:
    """Read what the plugin `calls` wrote; tests that failed without any fault are left out."""
    tests: dict[str, list[str]] = defaultdict(list)
    seconds: dict[str, float] = {}
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            noted = json.loads(line)
            names = list(noted["seconds"])
            seconds |= noted["seconds"]
            for function, numbers in noted["tests"].items():
                tests[function] += (names[at] for at in numbers if names[at] not in noted["failed"])
    return Calls(dict(tests), seconds)


def note_calls(folder: Path) -> None:
    """Run the tests of `make test` once, to know which function each calls."""
    print("noting which test calls what: this takes as long as the tests, once", file=sys.stderr)
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile"),
            *("--no-loadscope-reorder", "-p", "tests.mutants.calls", "--calls", str(folder)),
        ],
        cwd=ROOT,
        env=os.environ | {"POLARS_MAX_THREADS": "1"},
        check=False,
        stdout=sys.stderr,
    )


def accepted() -> dict[tuple[str, str, str], str]:
    """Return the reasons of mutants that no test can or should notice."""
    entries = tomllib.loads(ACCEPTED.read_text())["accepted"]
    return {(one["file"], one["was"], one["becomes"]): one["reason"] for one in entries}


def files_of(names: Sequence[str]) -> list[str]:
    """Return the files named, those of a folder or of a group of the table; all of the table."""
    groups: dict[str, list[str]] = tomllib.loads(TESTED.read_text())
    named = [file for name in names or groups for file in groups.get(name, [name])]
    return [file for name in named for file in _python_files(name)]


def _python_files(name: str) -> Iterator[str]:
    path = ROOT / name
    for one in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        yield str(one.relative_to(ROOT))


def sample(files: Iterable[str], count: int, seed: int, *, edges: bool = False) -> list[Mutant]:
    """Return so many mutants of the files, all of them for 0, chosen by the seed; only those of
    limits and precedence where they are asked for.

    Those outside of functions are left out: they would need a process each.
    """
    from tests.mutants.mutations import Mutations  # mutmut comes with the extra `release`

    by_file = [Mutations(file, edges=edges) for file in files]
    mutations = [(several, at) for several in by_file for at in range(len(several))]
    random.Random(seed).shuffle(mutations)  # a sample that can be drawn again
    chosen: list[Mutant] = []
    for several, at in mutations:
        if count and len(chosen) == count:
            break
        mutant = several[at]
        if mutant.was and mutant.function:
            chosen.append(mutant)
    return chosen


def jobs_of(mutants: Sequence[Mutant], calls: Calls, seconds: int) -> list[dict[str, Any]]:
    """Return what is to be run for each mutant: as many of the quickest tests as the time allows,
    at least one, and a limit well above what they take.
    """
    jobs = []
    for mutant in mutants:
        tests = calls.of(mutant)
        chosen: list[str] = []
        total = 0.0
        for test in tests:
            total += calls.seconds[test]
            if chosen and total > seconds:
                break
            chosen.append(test)
        limit = int(10 + 3 * sum(calls.seconds[test] for test in chosen))
        jobs.append(
            {"id": mutant.id, "tests": chosen, "left": len(tests) - len(chosen), "limit": limit}
            | mutant._asdict()
        )
    return jobs


def run_in_processes(
    jobs: Sequence[dict[str, Any]], folder: Path
) -> dict[int | str, dict[str, Any]]:
    """Return the verdicts of mutants by id: a process runs all of them, and another goes on where a
    mutant ended it. What a test noticed before, by the verdicts of the folder, is not tried again.
    """
    files = sorted({test.partition("::")[0] for job in jobs for test in job["tests"]})
    work, verdicts = folder / "jobs.json", folder / "verdicts.jsonl"
    work.write_text(json.dumps(list(jobs)))
    known = {id: verdict for id, verdict in _settled(verdicts).items() if verdict["by"]}
    verdicts.write_text("".join(json.dumps(verdict) + "\n" for verdict in known.values()))
    patience = 4 * PATIENCE + 10 * max(job["limit"] for job in jobs)
    while not known.keys() >= {job["id"] for job in jobs}:
        before = verdicts.stat().st_size
        with (folder / "output").open("w") as output:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider"),
                    *("-p", "tests.mutants.in_process", "--mutants", str(work)),
                    *("--verdicts", str(verdicts), "--timeout", str(PATIENCE), *files),
                ],
                cwd=ROOT,
                env=os.environ
                | {"POLARS_MAX_THREADS": "1", "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "h")},
                stdout=output,
                stderr=output,
            )
            _wait(process, verdicts, patience)
        known = _settled(verdicts)
        if verdicts.stat().st_size == before:
            raise RuntimeError(f"no mutant was run:\n{(folder / 'output').read_text()[-3000:]}")
    return known


def _settled(verdicts: Path) -> dict[int | str, dict[str, Any]]:
    return {id: one for id, one in read(verdicts).items() if one["verdict"] != DOUBTFUL}


def _wait(process: subprocess.Popen[bytes], verdicts: Path, seconds: int) -> None:
    """Wait for a process; kill it where it has written nothing for so long, as its mutant waits."""
    began = time.time()
    while process.poll() is None:
        time.sleep(0.2)
        if time.time() - max(began, verdicts.stat().st_mtime) > seconds:
            process.kill()


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def run(arguments: argparse.Namespace) -> int:
    """Run the sample, print each mutant that survives, then the figures; 1 where any survived."""
    if arguments.files == ["faults"]:
        return try_faults(arguments.only)
    if not any(arguments.calls.glob("*.jsonl")):
        note_calls(arguments.calls)
    calls = read_calls(arguments.calls)
    reasons = accepted()
    mutants = sample(
        files_of(arguments.files), arguments.count, arguments.seed, edges=arguments.edges
    )
    # the files of a folder have many tests in common
    by_folder: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in sorted(mutants, key=attrgetter("file", "line")):  # a function's in a row
        by_folder[str(Path(mutant.file).parent)].append(mutant)
    total = Counter[str]()
    for folder, several in by_folder.items():
        figures = Counter(_results(several, calls, reasons, arguments.seconds))
        print(f"{folder}: {_words(figures)}", flush=True)
        total += figures
    print(f"all: {_words(total)}")
    return int(total["survived"] > 0)


def try_faults(only: str) -> int:
    """Put in each fault of the table whose file's name has `only`; 1 where one is not noticed."""
    known = [fault for fault in faults() if only in fault.mutant.file]
    jobs: list[dict[str, Any]] = [
        {"id": at, "tests": fault.tests, "left": 0, "limit": 300} | fault.mutant._asdict()
        for at, fault in enumerate(known)
    ]
    verdicts = run_jobs(jobs)
    for job, fault in zip(jobs, known, strict=True):
        verdict = verdicts[job["id"]]
        print(f"{verdict['verdict']}: {fault.what} ({verdict['by'] or fault.mutant.file})")
    return int(any(verdict["verdict"] != "killed" for verdict in verdicts.values()))


def run_jobs(jobs: Sequence[dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    """Run jobs in processes, those that need the same files of tests in one."""
    groups: dict[frozenset[str], list[dict[str, Any]]] = defaultdict(list)
    for job in jobs:
        groups[frozenset(test.partition("::")[0] for test in job["tests"])].append(job)
    verdicts: dict[int | str, dict[str, Any]] = {}
    for group in groups.values():
        with tempfile.TemporaryDirectory(prefix="m-", dir=_memory()) as folder:
            verdicts |= run_in_processes(group, Path(folder))
    return verdicts


def _results(
    mutants: Sequence[Mutant],
    calls: Calls,
    reasons: dict[tuple[str, str, str], str],
    seconds: int,
) -> Iterator[str]:
    judged = [mutant for mutant in mutants if mutant.key not in reasons]
    yield from ["accepted"] * (len(mutants) - len(judged))
    jobs = jobs_of(judged, calls, seconds)
    verdicts: dict[int | str, dict[str, Any]] = {}
    tested = [job for job in jobs if job["tests"]]
    if tested:
        files = sorted({job["file"] for job in tested})
        source = b"".join((ROOT / file).read_bytes() for file in files)
        folder = VERDICTS / sha256(source).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        verdicts = run_in_processes(tested, folder)
    for job in jobs:
        verdict = verdicts.get(job["id"], {"verdict": "untested", "by": "", "tried": 0})
        word = verdict["verdict"]
        if word not in ("killed", "timeout"):
            print(_line(job, verdict), flush=True)
        yield word


def _line(job: dict[str, Any], verdict: dict[str, Any]) -> str:
    tests = f"{verdict['tried']} tests, {job['left']} left out"
    return (
        f"{verdict['verdict']} {job['file']}:{job['line']} {job['function']} ({tests})\n"
        f"  was     {job['was']}\n  becomes {job['becomes']}"
    )


def _words(figures: Counter[str]) -> str:
    counts = ", ".join(f"{number} {word}" for word, number in sorted(figures.items()))
    return f"{sum(figures.values())} mutants: {counts}"
