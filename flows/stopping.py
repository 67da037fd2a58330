"""Stop signals: the first raises KeyboardInterrupt in the main thread, once; a stop that hangs is
cut short after GRACE seconds. Later signals are ignored, so that an impatient second Ctrl-C does
not interrupt what the first one tidies up.

The entry point listens before anything that takes time is imported, so this imports nothing that
does.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, SimpleNamespace
from typing import Final, Literal

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# seconds in which a stopped command gives its claim back and removes what is private
GRACE: Final = 8
EXIT_CODE: Final = 75
MESSAGE: Final = "Stopped by {signal}."
NEXT_STEP: Final = (
    "Run {same_command} again; it resumes from what is already published, and repeats nothing."
)

_heard = SimpleNamespace(phase="off", first="", report="")
groups: set[int] = set()  # process groups of children, which end with us


def install_handlers(report: str = "") -> None:
    """Hear stop signals, unless whoever started us ignores them; while we start, one ends the
    process at once.

    `report` is a line for stdout with MESSAGE in it, in place of the sentence on stderr.
    """
    _heard.phase = "starting"
    _heard.report = report
    signal.signal(signal.SIGALRM, _leave)
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)


def enter(phase: Literal["working", "over"]) -> None:
    """Let the first stop signal raise KeyboardInterrupt while we are working, and not when that is
    over.
    """
    _heard.phase = phase if _heard.phase != "off" else "off"


def received() -> str:
    """Return the name of the first stop signal, "" for none."""
    return str(_heard.first)


def finish() -> None:
    """Ignore stop signals at the very end: Python restores their defaults, and what was done would
    look killed.
    """
    signal.alarm(0)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a block end before a stop is heard: what it makes or gives back is never left half
    done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    late: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        late.append(number)
        _receive(number)

    # those of a Prefect flow too
    before = {stop_signal: signal.signal(stop_signal, note) for stop_signal in SIGNALS}
    try:
        yield
    finally:
        for stop_signal, handler in before.items():
            signal.signal(stop_signal, handler)
        for number in late[:1]:
            signal.raise_signal(number)


def kill(group: int) -> None:
    """Kill what is left of a process group."""
    with suppress(OSError):
        os.killpg(group, signal.SIGKILL)


def _receive(number: int) -> None:
    if not _heard.first and _heard.phase != "off":
        _heard.first = signal.Signals(number).name
        signal.alarm(GRACE)


def _stop(number: int, frame: FrameType | None) -> None:
    _receive(number)
    if _heard.phase == "starting":
        _leave(number, frame)
    if _heard.phase == "working":
        _heard.phase = "over"
        raise KeyboardInterrupt(number)


def _leave(_number: int, _frame: FrameType | None) -> None:
    """End at once, like a kill: nothing counts before its commit, and the next command removes what
    is left.
    """
    with suppress(OSError):
        message = MESSAGE.format(signal=_heard.first)
        next_step = NEXT_STEP.format(same_command="the same command")
        text = f"{message} {next_step}"
        if _heard.report:
            os.write(1, f"{_heard.report.replace(MESSAGE, text)}\n".encode())
        else:
            os.write(2, f"cardlink: {text}\n".encode())
    for group in [*groups]:
        kill(group)
    os._exit(EXIT_CODE)
