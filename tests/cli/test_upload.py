"""What waits for its upload: listed, copied to a folder, recorded as uploaded; by one command."""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path

from click.testing import CliRunner, Result

from flows.cli.main import main
from tests.night import submitted
from tests.test_command_line import TOML


def typed(folder: Path, *words: str) -> Result:
    """Run a command in a folder with an issuer."""
    with chdir(folder):
        return CliRunner().invoke(main, words)


def night(folder: Path) -> str:
    """Return the run of one night whose chunk waits for its upload."""
    bench, _, manifest = submitted(folder)
    settings = TOML.format(fingerprint=bench.key.fingerprint)
    (folder / "portal.asc").write_bytes(bench.key.public)
    (folder / "bank.toml").write_text(settings)
    return manifest.run


def test_what_waits_is_listed_copied_and_recorded_by_one_command(tmp_path: Path) -> None:
    run = night(tmp_path)

    listed = typed(tmp_path, "upload", "bank", "--json")
    copied = typed(tmp_path, "upload", "bank", "--to", "up", "--json")
    done = typed(tmp_path, "upload", "bank", "--to", "up", "--done", "--json", "--actor", "anna")

    facts = [json.loads(each.stdout) for each in (listed, copied, done)]
    assert [["waiting"]] * 2 == [[chunk["state"] for chunk in each["chunks"]] for each in facts[:2]]
    assert 'cardlink upload bank --to "FOLDER"' == facts[0]["next"]
    assert "cardlink upload bank --to up --done" == facts[1]["next"]
    assert ["uploaded"] == [chunk["state"] for chunk in facts[2]["runs"][0]["chunks"]]
    assert {f"{run}-00001.csv.pgp", "SHA256SUMS"} == {
        file.name for file in (tmp_path / "up").iterdir()
    }


def test_a_run_needs_no_folder_to_be_recorded(tmp_path: Path) -> None:
    run = night(tmp_path)

    dry = typed(tmp_path, "upload", run, "1", "--done", "--dry-run")
    done = typed(tmp_path, "upload", run, "1", "--done")

    assert [0, 0] == [dry.exit_code, done.exit_code]
    assert dry.stdout.startswith("dry run, nothing was recorded")
    assert f"{run}: chunk 1 marked as uploaded" in done.stdout


def test_of_a_run_with_a_folder_only_what_was_copied_there_is_recorded(tmp_path: Path) -> None:
    run = night(tmp_path)
    (tmp_path / "up").mkdir()
    (tmp_path / "up" / "SHA256SUMS").touch()

    nothing = typed(tmp_path, "upload", run, "--to", "up", "--done")
    typed(tmp_path, "upload", run, "--to", "up")
    done = typed(tmp_path, "upload", run, "--to", "up", "--done")

    assert "none of these chunks waits for its upload" in nothing.stdout
    assert f"{run}: chunk 1 marked as uploaded" in done.stdout
