from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

SCRIPT = """
import sys
from flows.cli import terminal
from flows.submissions.build import Progress
terminal.OFTEN = terminal.SELDOM = 0.0
with terminal.progress_line("bank.csv", verbose=sys.argv[1] == "-v") as line:
    line(Progress(1000, 1, 0.5))
"""


def said(verbose: str, stderr: int) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, verbose],
        stdout=subprocess.PIPE,
        stderr=stderr,
        check=True,
        text=True,
    )
    return ran.stderr or ""


def test_without_a_terminal_nothing_is_said() -> None:
    assert "" == said("", subprocess.PIPE)


@pytest.mark.slow
def test_with_v_a_line_is_said_without_a_terminal() -> None:
    told = said("-v", subprocess.PIPE)

    assert told.startswith("bank.csv: 1,000 rows, ")
    assert told.endswith(" left\n")


def test_on_a_terminal_the_line_is_written_over_and_cleared() -> None:
    ours, theirs = pty.openpty()

    said("", theirs)

    os.close(theirs)
    told = os.read(ours, 4096).decode()
    os.close(ours)
    assert told.startswith("\rbank.csv: 1,000 rows, ")
    assert told.endswith("\r" + " " * len(told.split("\r")[1]) + "\r")
