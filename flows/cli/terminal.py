"""The terminal: results on stdout, everything else on stderr, prompts, and the progress of a pass."""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import TYPE_CHECKING

import click

from flows.redaction import redacted, shown

if TYPE_CHECKING:
    from flows.commands.result import Result
    from flows.submissions.build import Progress

OFTEN, SELDOM = 0.2, 10.0  # seconds between two lines: on a terminal, and in a log


def say(line: str, *, err: bool = False) -> None:
    """Print a line as `shown`: it may repeat what the partner or an issuer wrote."""
    click.echo(shown(line), err=err)


class Terminal:
    """The person who typed the command."""

    @property
    def attended(self) -> bool:
        """Return whether a person can be prompted."""
        return sys.stdin.isatty()

    def show(self, text: str) -> None:
        """Print a result before the command ends."""
        say(text)

    def say(self, text: str) -> None:
        """Print a line that is no result."""
        say(text, err=True)

    def ask(self, label: str, *, secret: bool = False, default: str | None = None, show_default: bool = False) -> str:
        """Return what is typed, unseen if it is secret; KeyboardInterrupt on Ctrl-C and at the input's end."""
        signal.siginterrupt(signal.SIGINT, True)  # polars makes reads resume after Ctrl-C: a prompt could not be left
        try:
            label = shown(label)
            typed: str = click.prompt(label, default=default, hide_input=secret, show_default=show_default, err=True)
        except click.Abort:
            pass
        else:
            return typed.encode("utf-8", "replace").decode()  # a terminal in another encoding gives half surrogates
        raise KeyboardInterrupt


def print_result(result: Result, *, as_json: bool) -> None:
    """Print a result as text, its next step on stderr, or as one JSON object."""
    if as_json:
        facts = {**result.facts, "next": result.next_step, "exit_code": result.exit_code}
        click.echo(json.dumps(redacted(facts), default=str).replace("\x7f", "\\u007f"))
        return
    for line in result.lines:
        say(line)
    if result.next_step:
        say(f"next: {result.next_step}", err=True)


class ProgressLine:
    """Show the progress over one extract, on a terminal or if verbose. Use it as a context."""

    def __init__(self, extract: str, *, verbose: bool) -> None:
        self._extract = extract
        self._terminal = sys.stderr.isatty()
        self._began = time.monotonic()
        self._pause = OFTEN if self._terminal else SELDOM if verbose else float("inf")
        self._next = self._began + self._pause
        self._width = 0

    def __call__(self, progress: Progress) -> None:
        """Show the progress after one block, unless the last line is too recent."""
        from flows.submissions.build import describe_pace

        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._pause
        line = f"{self._extract}: {describe_pace(progress.rows, progress.share, now - self._began)}"
        if self._terminal:
            click.echo(f"\r{line:<{self._width}}", err=True, nl=False)
            self._width = len(line)
        else:
            say(line, err=True)

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave a terminal's line empty for what comes after."""
        if self._width:
            click.echo("\r" + " " * self._width + "\r", err=True, nl=False)
