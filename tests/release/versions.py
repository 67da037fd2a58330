"""The demo, and the quick tests of runs, forms and the command line, under each Python of this machine and both
ends of the range of Prefect: `make versions`, which is a part of `make test-all`.

Environments are kept below `.versions`; `VERSIONS=3.13` takes one Python. uv makes them: all share the unpacked packages
of one cache, and nothing is compiled before it is imported, which takes a tenth of the CPU that pip takes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / ".versions"
UV = (sys.executable, "-m", "uv")
NEWEST = ""  # what pip takes of what pyproject.toml allows
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TESTS = (
    "tests/runs",
    "tests/ops/test_flows.py",
    "tests/ops/test_form_words.py",
    "tests/ops/test_form_choices.py",
    "tests/test_command_line.py",
)
FREE = ("prefect", "certifi")  # the newest Prefect wants a newer certifi than constraints.txt has


class Pair(NamedTuple):
    """A Python and a version of Prefect; NEWEST is the newest that is allowed."""

    python: str
    prefect: str

    def __str__(self) -> str:
        return f"Python {self.python}, Prefect {self.prefect or 'newest'}"


def oldest_prefect() -> str:
    """Return the lower end of the range of Prefect in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [wanted] = [each for each in project["dependencies"] if each.startswith("prefect>")]
    [oldest] = re.findall(r">=([\d.]+)", wanted)
    return str(oldest)


def pairs(pythons: Sequence[str], oldest: str) -> Iterator[Pair]:
    """Yield what is tried: the newest Prefect with each Python, the oldest with the outer ones."""
    for python in pythons:
        yield Pair(python, NEWEST)
    for python in sorted({*pythons[:1], *pythons[-1:]}):
        yield Pair(python, oldest)


def interpreter(python: str) -> Path | None:
    """Return an interpreter of this version, None where the machine has none."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    built = sorted(root.glob(f"versions/{python}.*/bin/python"))
    on_path = shutil.which(f"python{python}")
    candidates = [*reversed(built), *([Path(on_path)] if on_path else [])]
    return next((path for path in candidates if _quiet(path, "-c", "") == 0), None)


def constraints(prefect: str) -> str:
    """Return the constraints for a version of Prefect: all but what the newest has of its own."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    kept = [line for line in lines if line.partition("==")[0] not in FREE]
    return "\n".join([*kept, *([f"prefect=={prefect}"] if prefect else [])])


def environment(pair: Pair, base: Path) -> Path:
    """Return the interpreter of an environment with this pair, which is made where it is not."""
    home = FOLDER / f"{pair.python}-{pair.prefect or 'newest'}"
    python = home / "bin" / "python"
    home.mkdir(parents=True, exist_ok=True)
    (home / "constraints.txt").write_text(constraints(pair.prefect))
    _run(*UV, "venv", "--quiet", "--allow-existing", "--python", base, home)
    options = ("--constraint", home / "constraints.txt", "--editable", f"{ROOT}[test]")
    _run(*UV, "pip", "install", "--quiet", "--upgrade", "--python", python, *options)
    return python


def passes(python: Path) -> bool:
    """Return whether the demo and the tests pass with this interpreter; they print what does not."""
    with tempfile.TemporaryDirectory() as folder:
        demo: list[str | Path] = [python.with_name("cardlink"), "demo"]
        shown = subprocess.run(demo, cwd=folder, capture_output=True, text=True, check=False)
    sys.stdout.write(shown.stdout + shown.stderr if shown.returncode else "demo passed\n")
    sys.stdout.flush()
    tests: list[str | Path] = [python, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", *TESTS]
    return not shown.returncode | subprocess.run(tests, cwd=ROOT, check=False).returncode


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


def _quiet(*command: str | Path) -> int:
    return subprocess.run(command, capture_output=True, check=False).returncode


def main(pythons: Sequence[str]) -> int:
    """Try each pair; return 1 where one does not pass."""
    bases = {python: interpreter(python) for python in pythons or PYTHONS}
    lines = [f"Python {name}: none here" for name, base in bases.items() if base is None]
    failed = False
    for pair in pairs([name for name, base in bases.items() if base], oldest_prefect()):
        sys.stdout.write(f"{pair}\n")
        sys.stdout.flush()
        passed = passes(environment(pair, bases[pair.python] or Path(sys.executable)))
        lines.append(f"{pair}: {'passed' if passed else 'FAILED'}")
        failed = failed or not passed
    sys.stdout.write("\n".join(["", *lines, ""]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
