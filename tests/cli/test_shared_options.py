"""The options of every command, wherever they stand on a line, and lines that nobody takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from flows.cli.main import main


@pytest.mark.parametrize(
    "line",
    [
        "--config none --json audit verify bank",
        "audit --config none --json verify bank",
        "audit verify bank --config none --json",
        "audit verify --json bank --config none",
        "--config elsewhere audit verify bank --json --config none",
    ],
)
def test_the_options_of_every_command_count_wherever_they_stand(line: str) -> None:
    done = CliRunner().invoke(main, line.split())

    facts = json.loads(done.stdout)
    assert ("NoIssuerError", "audit verify") == (facts["error"], facts["command"])
    assert facts["message"].startswith(f"No issuer bank in {Path.cwd() / 'none'}.")


@pytest.mark.parametrize(
    ("line", "command", "problem"),
    [
        ("submit --json", "submit", "Missing argument 'ISSUER'. `cardlink submit --help` shows"),
        ("--json outbox hold", "outbox hold", "Missing argument 'RUN'."),
        ("submit --sned bank --json", "submit", "No such option '--sned'."),
        ("--json", "", "Missing command."),
        ("sumbit --json", "", "No such command 'sumbit'."),
        ("--jsn submit --json", "", "No such option '--jsn'."),
    ],
)
def test_a_line_that_no_command_takes_is_json_where_that_is_asked_for(
    line: str, command: str, problem: str
) -> None:
    done = CliRunner().invoke(main, line.split())

    facts = json.loads(done.stdout)
    assert (2, 2, "UsageError") == (done.exit_code, facts["exit_code"], facts["error"])
    assert (command, problem) == (facts["command"], facts["message"][: len(problem)])
    assert "" == done.stderr


def test_nothing_that_could_be_a_card_is_repeated_from_a_line_that_no_command_takes() -> None:
    lines = [
        ["4111111111111111"],
        ["submit", "bank", "4111111111111111"],
        ["--json", "4111111111111111"],
    ]

    done = [CliRunner().invoke(main, line) for line in lines]

    assert [2, 2, 2] == [each.exit_code for each in done]
    assert not [each for each in done if "41111111" in each.output]


def test_help_shows_the_options_of_a_command_and_names_those_of_every_command() -> None:
    done = CliRunner().invoke(main, ["audit", "verify", "--help"])

    assert "Of every command: --config, --json, --verbose, --no-color." in done.stdout
    assert "  --config" not in done.stdout


@pytest.mark.parametrize(
    ("variables", "arguments", "is_colored"),
    [
        ({}, [], True),
        ({"NO_COLOR": "1"}, [], False),
        ({"NO_COLOR": ""}, [], True),
        ({"TERM": "dumb"}, [], False),
        ({}, ["--no-color"], False),
    ],
)
def test_an_error_is_colored_on_a_terminal_unless_colors_are_not_wanted(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    arguments: list[str],
    is_colored: bool,
) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    done = CliRunner().invoke(main, ["worklist", "nobody", *arguments], color=True)

    assert is_colored == (done.stderr != click.unstyle(done.stderr))


def test_a_stop_before_anything_is_loaded_is_json_where_that_is_asked_for(tmp_path: Path) -> None:
    code = (
        "import signal\n"
        "from flows import stopping\n"
        "import flows.cli.__main__ as entry\n"
        "entry._try_threads = lambda: signal.raise_signal(signal.SIGTERM)\n"
        "entry.run()"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, "--json", "worklist"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )

    facts = json.loads(done.stdout)
    assert (75, "") == (done.returncode, done.stderr)
    assert ("StoppedError", 75) == (facts["error"], facts["exit_code"])
    assert facts["message"].startswith("Stopped by SIGTERM. Run the same command again")
