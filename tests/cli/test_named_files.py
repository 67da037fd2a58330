"""A file or folder that cannot be used is named to whoever typed it, and nothing else happens."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from errno import ENOENT
from pathlib import Path

import pytest

from flows.cli.main import COMMANDS
from flows.commands.named_files import usable_files
from tests.cli.test_mend import cardlink
from tests.operations.test_questions import answered
from tests.test_dry_runs import objects

# a line of each command that takes a path, with one below a file
LINES = {
    "init": "init other-bank --from {file}/x",
    "upload": "upload bank --to {file}/x",
    "outbox uploaded": "outbox uploaded bank --fetched {file}/x",
    "report": "report {run} --to {file}/x",
    "questions": "questions bank --to {file}/x",
    "answers": "answers {file}/x --reason mail",
    "corrections": "corrections bank --to {file}/x",
    "audit witness-key": "audit witness-key audit.example {file}/x",
    "backup": "backup {file}/x",
    "sample": "sample {file}/x",
    "simulate": "simulate bank --alone --secret-key {file}/x",
    "practice": "practice --dir {file}/x",
    "demo": "demo --dir {file}/x",
    "deploy-files": "deploy-files {file}/x",
}
ELSEWHERE = {
    "check",  # tests/cli/test_check.py: it goes on, and says so in its own line
    "service probe",  # asks the service first
}


def test_a_path_that_cannot_be_used_is_named_by_every_command_and_changes_nothing(
    tmp_path: Path,
) -> None:
    run = answered(tmp_path)[0]
    file = tmp_path / "file"
    file.touch()
    before = set(objects(tmp_path))

    for name, line in LINES.items():
        done = cardlink(tmp_path, *line.format(file=file, run=run).split())

        assert (name, 2) == (name, done.exit_code)
        assert re.search(rf"{file}(/x(/SHA256SUMS)?)? \(.+\) cannot be .*: \w+", done.stderr), name
    assert before == set(objects(tmp_path))


def test_a_file_that_is_written_where_no_path_is_given_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"questions-{datetime.now(UTC):%Y%m%d}.csv").mkdir()

    done = cardlink(tmp_path, "questions", "bank")

    assert 2 == done.exit_code
    assert "(in this folder) cannot be read or written" in done.stderr


def test_a_path_that_nobody_named_is_not_shown(tmp_path: Path) -> None:
    of_a_store = FileNotFoundError(ENOENT, "No such file", "demo/store/bank/results/cards.csv")

    with pytest.raises(FileNotFoundError), usable_files({"--to": tmp_path}):
        raise of_a_store


def test_every_command_that_takes_a_path_is_among_them() -> None:
    taking = {
        entry.name
        for entry in COMMANDS
        if any(parameter.type is Path for parameter in entry.parameters)
    }

    assert taking == LINES.keys() | ELSEWHERE
