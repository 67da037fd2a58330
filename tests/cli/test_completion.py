"""What a shell offers on Tab, and the scripts that make it do so."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from flows.cli.completion import VARIABLE
from flows.cli.main import main
from tests.night import submitted
from tests.test_command_line import TOML


def offered(folder: Path, line: str) -> list[str]:
    """Return what is offered for the last word of a line, which may be empty."""
    *words, incomplete = line.split(" ")
    with chdir(folder):
        items = ShellComplete(main, {}, "cardlink", VARIABLE).get_completions(words, incomplete)
    return [item.value for item in items]


@pytest.fixture
def night(tmp_path: Path) -> tuple[Path, str]:
    """Return a folder with an issuer and a run of one chunk, and the run."""
    _, _, manifest = submitted(tmp_path)
    (tmp_path / "bank.toml").write_text(TOML.format(fingerprint="0" * 40))
    return tmp_path, manifest.run


def test_issuers_are_offered_where_a_command_takes_one(night: tuple[Path, str]) -> None:
    folder, _ = night

    assert ["bank"] == offered(folder, "submit b")
    assert ["bank"] == offered(folder, "worklist ")
    assert ["bank"] == offered(folder, f"worklist --config {folder} b")
    assert [] == offered(folder, "submit x")


def test_runs_and_their_chunks_are_offered_where_a_command_takes_them(
    night: tuple[Path, str],
) -> None:
    folder, run = night

    assert [run] == offered(folder, "report ")
    assert ["bank", run] == offered(folder, "upload b")
    assert [run] == offered(folder, "ingest bank --run bank-")
    assert ["1"] == offered(folder, f"outbox hold {run} ")
    assert [] == offered(folder, f"outbox hold {run} 1 ")


def test_what_cannot_be_read_is_not_offered_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "bank.toml").write_text("issuer = ")

    assert [] == offered(tmp_path, "report ")
    assert [] == offered(tmp_path, "outbox hold bank-20261120-01234567 ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])

    assert 0 == done.exit_code
    assert f"{VARIABLE}={shell}_complete" in done.stdout
