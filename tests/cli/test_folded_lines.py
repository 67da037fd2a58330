"""A command that is longer than the terminal is wide can be pasted as it is shown."""

from __future__ import annotations

import shlex

from flows.cli.terminal import folded
from flows.steps import COMMAND_LINE, WHY, Step

CODES = [f"address.postal_code.reason{number}" for number in range(9)]
GIVE_UP = Step("mend give-up", "bank", code=CODES, reason=WHY)


def test_a_long_command_is_folded_into_lines_that_a_shell_joins() -> None:
    shown = folded(f"   or give up: {GIVE_UP}", GIVE_UP, COMMAND_LINE, 80)

    lines = shown.splitlines()
    assert "   or give up: cardlink mend give-up bank \\" == lines[0]
    assert all(len(line) <= 80 for line in lines)
    pasted = shown.partition(": ")[2].replace("\\\n", "")
    assert shlex.split(str(GIVE_UP)) == shlex.split(pasted)


def test_a_command_that_fits_stays_one_line() -> None:
    step = Step("submit", "bank")

    assert f"next: {step}" == folded(f"next: {step}", step, COMMAND_LINE, 80)
