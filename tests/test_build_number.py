"""Two wheels that are not the same have not the same number, and a later one has a later number."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from build_number import number
from flows import __version__
from flows.installed import installed_build


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree of release 1.2.0 without its history."""
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "__init__.py").write_text('"""It."""\n\n__version__ = "1.2.0"\n')
    for name in ("CHANGELOG.md", "pyproject.toml"):
        (tmp_path / name).touch()
    return tmp_path


def git(tree: Path, *words: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"]
    outside = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(tree), *who, *words]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **outside})


def commit(tree: Path) -> str:
    git(tree, "add", "--all")
    git(tree, "commit", "--allow-empty", "--message", "x")
    return number(tree)


def test_before_and_after_a_release_each_commit_has_a_later_number(tree: Path) -> None:
    git(tree, "init")

    before = [commit(tree), commit(tree)]
    git(tree, "tag", "v1.2.0")
    release = number(tree)
    after = [commit(tree), commit(tree)]

    assert ["1.2.0.dev1", "1.2.0.dev2"] == [each.partition("+g")[0] for each in before]
    assert "1.2.0" == release
    assert ["1.2.0.post1", "1.2.0.post2"] == [each.partition("+g")[0] for each in after]
    assert [*before, release, *after] == sorted([*after, release, *before], key=Version)


def test_changes_that_are_not_committed_have_numbers_of_their_own(tree: Path) -> None:
    git(tree, "init")
    committed = commit(tree)

    numbers = {committed}
    for text in ("one", "two"):
        (tree / "CHANGELOG.md").write_text(text)
        numbers.add(number(tree))

    assert 3 == len(numbers)
    assert {committed} == {each[: len(committed)] for each in numbers}


def test_a_tree_without_its_history_has_the_number_of_what_is_in_it(tree: Path) -> None:
    first = number(tree)
    (tree / "flows" / "__pycache__").mkdir()
    (tree / "flows" / "__pycache__" / "x.pyc").touch()
    same = number(tree)
    (tree / ".git").mkdir()  # no repository: as where git is missing, or refuses another's
    unreadable = number(tree)
    (tree / "flows" / "more.py").touch()

    assert first == same == unreadable
    assert first != number(tree)
    assert "1.2.0" == Version(first).public


def test_a_checkout_says_its_release_whatever_is_installed_beside_it() -> None:
    assert __version__ == installed_build()
