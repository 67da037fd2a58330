"""A run's report, history and lists are brought to a folder by one command."""

from __future__ import annotations

import re
from pathlib import Path

from flows.commands.context import Context
from flows.commands.run_report import report
from tests import keys
from tests.again import night
from tests.cli.test_reconcile import TOML


def place(folder: Path) -> str:
    """Configure an issuer with a night of which the partner refused rows; return its run."""
    (folder / "bank.toml").write_text(
        TOML.format(name="bank", fingerprint=keys.sound().fingerprint)
    )
    (folder / "store").mkdir(exist_ok=True)
    _, run = night(folder)
    return run


def test_everything_about_a_run_is_brought_to_a_folder_that_only_its_owner_reads(
    tmp_path: Path,
) -> None:
    run = place(tmp_path)
    folder = tmp_path / "desk" / "report"

    brought = report(Context(tmp_path), run, to=folder)

    names = {path.name for path in folder.iterdir()}
    template = f"{run}-corrections.csv"
    assert {"report.html", "links.csv", "errors.csv", "history.txt", template} < names
    assert names == {*brought.facts["files"]}
    assert {0o600} == {path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert 0o700 == folder.stat().st_mode & 0o777
    linked = set(re.findall(r'href="([^"#]+)', (folder / "report.html").read_text()))
    assert linked < names


def test_a_template_that_is_there_stays_and_the_other_files_are_new(tmp_path: Path) -> None:
    run = place(tmp_path)
    folder = tmp_path / "desk"
    report(Context(tmp_path), run, to=folder)
    template = folder / f"{run}-corrections.csv"
    template.write_text("filled in")
    (folder / "summary.json").write_text("old")

    brought = report(Context(tmp_path), run, to=folder)

    assert ("filled in", False) == (
        template.read_text(),
        (folder / "summary.json").read_text() == "old",
    )
    assert f"{template} was there already and stays as it is" in brought.lines


def test_the_history_is_shown_without_rebuilding_anything(tmp_path: Path) -> None:
    run = place(tmp_path)

    shown = report(Context(tmp_path), run, history=True)

    assert {"run", "history"} == shown.facts.keys()
    assert any("committed" in line for line in shown.lines)
