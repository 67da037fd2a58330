"""What keeps tests from leaving processes behind: a mark that is inherited, groups that end, a
parent's death.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from uuid import uuid4

import pytest

from tests.leftovers import MARKER, ended, processes, that_stay, threads

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")
PARENT = """
import subprocess, sys
from tests.leftovers import with_its_parent
subprocess.run(with_its_parent(["sh", "-c", "echo begun; exec sleep 60"]), start_new_session=True)
"""


SESSION = """
import os, subprocess, time
from tests.leftovers import MARKER, sweep_at_the_end
sweep_at_the_end(os.environ[MARKER])
subprocess.Popen(["sh", "-c", "echo begun; exec sleep 60"], start_new_session=True)
time.sleep(60)
"""


def marked_environment() -> dict[str, str]:
    return {**os.environ, MARKER: uuid4().hex}


def test_a_process_whose_parent_is_gone_is_found_by_its_mark() -> None:
    settings = marked_environment()
    subprocess.run(["sh", "-c", "sleep 60 >/dev/null 2>&1 &"], env=settings, check=True)

    while not any("sleep 60" in each.command for each in processes(settings[MARKER])):
        time.sleep(0.05)  # the shell may be about to become `sleep`
    [left] = processes(settings[MARKER])
    left.end()

    assert [] == that_stay(settings[MARKER])


def test_a_process_ends_with_its_children_whatever_happens_in_the_block() -> None:
    settings = marked_environment()
    family = ["sh", "-c", "sleep 60 & sleep 60"]

    with (
        pytest.raises(KeyboardInterrupt),
        ended(subprocess.Popen(family, env=settings, start_new_session=True)),
    ):
        raise KeyboardInterrupt

    assert [] == that_stay(settings[MARKER])


def test_a_server_ends_when_its_parent_is_killed() -> None:
    settings = marked_environment()
    parent = subprocess.Popen([sys.executable, "-c", PARENT], env=settings, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert b"begun\n" == parent.stdout.readline()

    parent.kill()
    parent.communicate()  # until nobody holds the other end

    assert [] == that_stay(settings[MARKER])


def test_what_a_session_started_ends_with_it_however_it_ends() -> None:
    settings = marked_environment()
    session = subprocess.Popen(
        [sys.executable, "-c", SESSION], env=settings, stdout=subprocess.PIPE
    )
    assert session.stdout is not None
    assert b"begun\n" == session.stdout.readline()

    session.kill()
    session.communicate()  # until nobody holds the other end

    assert [] == that_stay(settings[MARKER])


def test_a_thread_that_would_keep_the_process_is_named() -> None:
    going = threading.Event()
    thread = threading.Thread(target=going.wait, name="left behind")
    thread.start()

    named = threads()

    going.set()
    thread.join()
    assert "left behind" in named
    assert "left behind" not in threads()
