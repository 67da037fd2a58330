"""A command on a real terminal: its prompts are answered as somebody would, its stdout is a pipe of
its own.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_STARTER = (
    "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "from flows.cli.__main__ import run; run()"
)
CTRL_C = "\x03"
PATIENCE = 300.0  # seconds for a prompt to come on a machine with other work


class Seen(NamedTuple):
    """What the terminal showed, what went to stdout, and the exit code."""

    terminal: str
    stdout: str
    code: int


Reply = str | Callable[[], object]


def on_terminal(
    folder: Path,
    environment: Mapping[str, str],
    arguments: Sequence[str],
    talk: Sequence[tuple[str, Reply]],
) -> Seen:
    """Run `cardlink` with `arguments`; as each text of `talk` shows, type its reply (with Enter) or
    call it.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _STARTER, *arguments],
        cwd=folder,
        env={**os.environ, **environment, "PYTHONPATH": str(Path.cwd())},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        shown = ""
        at = 0
        for text, reply in talk:
            shown = _until(ours, shown, text, at)
            at = shown.index(text, at) + len(text)
            if callable(reply):
                reply()
            else:
                time.sleep(0.05)  # the echo is off a moment after the prompt
                os.write(ours, (reply if reply == CTRL_C else f"{reply}\n").encode())
        stdout, _ = process.communicate(timeout=PATIENCE)
        return Seen(shown + _rest(ours), stdout.decode(), process.returncode)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        os.close(ours)


def _until(terminal: int, shown: str, text: str, at: int) -> str:
    """Read until a text shows after what was answered last."""
    until = time.monotonic() + PATIENCE
    while text not in shown[at:]:
        assert time.monotonic() < until, f"{text!r} did not show: {shown}"
        shown += _read(terminal)
    return shown


def _rest(terminal: int) -> str:
    rest = ""
    while more := _read(terminal):
        rest += more
    return rest


def _read(terminal: int) -> str:
    ready, _, _ = select.select([terminal], [], [], 0.1)
    try:
        return os.read(terminal, 65536).decode() if ready else ""
    except OSError:  # the other end is closed
        return ""
