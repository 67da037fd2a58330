"""A process has a name of its own, by which another can prove that it is gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flows.runs import process
from flows.runs.process import is_gone, process_name

NO_PROCESS = 2**22 + 1
pytestmark = pytest.mark.skipif(not process_name(os.getpid()), reason="there is no /proc here")


def test_a_process_that_is_not_there_has_no_name() -> None:
    assert "" == process_name(NO_PROCESS)


def test_a_process_keeps_its_name_whatever_its_command_is_called() -> None:
    command = Path("/proc/self/comm")
    called = command.read_text()
    name = process_name(os.getpid())

    command.write_text("a) Z (b")
    try:
        renamed = process_name(os.getpid())
    finally:
        command.write_text(called)

    assert name == renamed


def test_a_living_process_that_is_hidden_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    own = process_name(os.getpid())
    boot, space, *_ = own.split()
    names = {os.getpid(): own, NO_PROCESS: ""}
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(process, "process_name", names.__getitem__)
    monkeypatch.setattr(os, "kill", lambda *sent: signals.append(sent))

    assert not is_gone(f"{boot} {space} {NO_PROCESS} 1")
    assert [(NO_PROCESS, 0)] == signals
