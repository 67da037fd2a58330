"""Breaks any function of ours: it raises a foreign exception that shouts everything it was
given.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, NoReturn

import polars as pl

OURS: Final = (
    *(
        f"flows.{room}"
        for room in (
            "runs",
            "extracts",
            "submissions",
            "results",
            "reports",
            "resend",
            "operations",
        )
    ),
    *(
        "flows.extensions.partner_api",
        "flows.adapters",
        "flows.configuration",
        "flows.wiring",
        "schemas",
    ),
)
BOUNDARY: Final = ("flows.errors", "flows.redaction")  # what is being tested


def called(work: Callable[[], object]) -> list[FunctionType]:
    """Return every function of ours that `work` calls, in whatever thread, in the order of their
    names.
    """
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith(OURS):
            codes.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    found = (
        one for one in gc.get_objects() if isinstance(one, FunctionType) and one.__code__ in codes
    )
    replaceable = {
        one for one in found if not one.__closure__ and not one.__module__.startswith(BOUNDARY)
    }
    return sorted(replaceable, key=lambda one: (one.__module__, one.__qualname__))


@contextmanager
def broken(function: FunctionType) -> Iterator[None]:
    """Let a function raise for the length of a `with` block, wherever it was imported to."""
    sound = function.__code__
    function.__code__ = _raising.__code__
    try:
        yield
    finally:
        function.__code__ = sound


def shout(*given: object) -> NoReturn:
    """Raise a foreign exception whose text, cause, notes and attributes hold every cell it was
    given.
    """
    text = "\n".join(_cells(one) for one in given)
    error = pl.exceptions.ComputeError(f"conversion failed: {text}")
    error.failure_cases = text  # type: ignore[attr-defined]  # as pandera's errors carry them
    error.add_note(text)
    raise error from ValueError(text)


def _raising(*given: object, **named: object) -> Any:  # its code runs in another function's module
    from tests.leaks.failing import shout  # that module does not have it

    shout(*given, *named.values())


def _cells(one: object) -> str:
    if isinstance(one, pl.DataFrame):
        return str(one.rows())
    if isinstance(one, bytes | bytearray | memoryview):
        return bytes(one).decode("utf-8", "replace")
    if isinstance(one, list | tuple):
        return " ".join(map(_cells, one))
    return f"{one!r} {vars(one) if hasattr(one, '__dict__') else ''}"
