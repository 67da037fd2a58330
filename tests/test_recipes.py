"""The recipes of CONTRIBUTING.md: each snippet is pasted into a copy of the project, in order, and
what the recipe says to run is run there.

A comment that readers do not see says where a snippet goes: `<!-- paste: FILE after: LINE -->`,
`before: LINE` or `instead of: LINE`, where LINE is the first such line of the file; `at the end`
and `new file` need none.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.slow  # each recipe runs its tests in a copy of the project

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
BLOCK = re.compile(
    r"^ *(?:<!-- paste: (?P<file>\S+) (?P<place>[a-z ]+?)(?:: (?P<anchor>.+?))? -->\n+ *)?"
    r"```(?P<language>\w+)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A fenced block of the page, and where it is to be pasted."""

    language: str
    text: str
    file: str
    place: str
    anchor: str


def recipes() -> dict[str, list[Block]]:
    """Return the blocks of each recipe by its title."""
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    return {
        section.splitlines()[0]: list(blocks(section))
        for section in sections
        if section.startswith("Add ")
    }


def blocks(section: str) -> Iterator[Block]:
    for block in BLOCK.finditer(section):
        yield Block(
            block["language"],
            textwrap.dedent(block["text"]),
            block["file"] or "",
            block["place"] or "",
            block["anchor"] or "",
        )


def paste(project: Path, block: Block) -> None:
    """Put a snippet where its comment says."""
    path = project / block.file
    if block.place == "new file":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
        return
    lines = path.read_text().splitlines(keepends=True)
    if block.place == "at the end":
        path.write_text("".join([*lines, "\n\n", block.text]))
        return
    numbers = [number for number, line in enumerate(lines) if line.strip() == block.anchor]
    assert numbers, f"{block.file} has no line {block.anchor!r}"
    number = numbers[0]
    indent = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
    start, end = {
        "before": (number, number),
        "after": (number + 1, number + 1),
        "instead of": (number, number + 1),
    }[block.place]
    lines[start:end] = [textwrap.indent(block.text, indent)]
    path.write_text("".join(lines))


def run(project: Path, command: str) -> None:
    """Run what a recipe says, with the copy's own modules."""
    settings = {**os.environ, "PYTHONPATH": str(project)}
    done = subprocess.run(
        ["bash", "-euc", command], cwd=project, env=settings, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}{done.stderr[-3000:]}"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project as git knows it, with the packages of this one."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).exists():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@example.com commit -qm a"):
        run(tmp_path, f"git {command}")
    return tmp_path


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("title", recipes())
def test_a_recipe_works_as_it_is_printed(project: Path, title: str) -> None:
    for block in recipes()[title]:
        if block.language == "sh":
            run(project, block.text)
        else:
            paste(project, block)


def test_every_snippet_of_a_recipe_says_where_it_goes() -> None:
    unplaced = {
        title: [block.text for block in recipe if block.language != "sh" and not block.file]
        for title, recipe in recipes().items()
    }

    assert {} == {title: texts for title, texts in unplaced.items() if texts}


def test_a_rule_changes_four_files(project: Path) -> None:
    for block in recipes()["Add a rule"]:
        if block.language != "sh":
            paste(project, block)
    run(project, ".venv/bin/python -m tests.reference")

    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=project, capture_output=True, text=True, check=True
    )

    names = {line[3:] for line in changed.stdout.splitlines() if line[3:] != ".venv"}
    expected = {
        "README.md",
        "deploy/REASONS.md",
        "sample_data/extracts/sample-bank-20261120.csv",
        "schemas/rules.py",
    }
    assert expected == names
