"""The progress of a submit on stderr: one line that is written over on a terminal, a line now and then with -v."""

from __future__ import annotations

import sys
import time

import click

from flows.core.run.pace import pace
from flows.steps.night.making import Progress

OFTEN, SELDOM = 0.2, 10.0  # seconds between two lines: on a terminal, and where every line stays


class ProgressLine:
    """Show how far the pass over one extract is; silent where nobody looks. Use it as a context."""

    def __init__(self, extract: str) -> None:
        self._extract = extract
        self._terminal = sys.stderr.isatty()
        self._shown = self._terminal or bool(click.get_current_context().obj["verbose"])
        self._began = time.monotonic()
        self._next = self._began + (OFTEN if self._terminal else SELDOM)
        self._width = 0

    def __call__(self, progress: Progress) -> None:
        """Take the news of one block."""
        now = time.monotonic()
        if not self._shown or now < self._next:
            return
        self._next = now + (OFTEN if self._terminal else SELDOM)
        told = f"{self._extract}: {pace(progress.rows, progress.share, now - self._began)}"
        if self._terminal:
            click.echo(f"\r{told:<{self._width}}", err=True, nl=False)
            self._width = len(told)
        else:
            click.echo(told, err=True)

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave a terminal's line empty for what comes after."""
        if self._width:
            click.echo("\r" + " " * self._width + "\r", err=True, nl=False)
