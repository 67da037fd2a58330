"""What a command shows at a terminal, and what is typed there."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from flows.cli.shared_options import SharedOptions, shared_options
from flows.commands import on_first_use
from flows.json_logs import are_json, log_line
from flows.redaction import shown
from flows.steps import COMMAND_LINE, CommandLine, Sentence, Step, Text, in_words

with on_first_use():
    from flows.submissions import build

# seconds between two lines: on a terminal, and in a log
OFTEN = 0.2
SELDOM = 10.0
FOLD = " \\"  # where a shell joins a line with the next one
INDENT = " " * 5  # of what is joined
UNPRINTED: list[str] = []  # why results could not be printed


def say(text: Text, *, err: bool = False, color: str = "") -> None:
    """Print a text as `shown`, with commands that can be pasted.

    It may repeat what the partner or an issuer wrote. Of a color, only a terminal shows anything.
    """
    shared = own_options()
    words = shared.words if shared else COMMAND_LINE
    line = shown(in_words(text, words))
    if err and are_json():
        log_line(line, is_error=color == "red")
        return
    stream = sys.stderr if err else sys.stdout
    if isinstance(text, Sentence) and text.steps and stream.isatty():
        line = folded(line, text.steps[-1], words, shutil.get_terminal_size().columns)
    if color and shared is not None and shared.colorful:
        line = click.style(line, fg=color)
    write(line, err=err)


def folded(line: str, step: Step, words: CommandLine, width: int) -> str:
    """Return a line that ends with a step too long for a terminal as lines that a shell joins."""
    first, *options = map(shown, step.pieces(words.program))
    command = " ".join([first, *options])
    if len(command) <= width or not line.endswith(command):
        return line
    rows = [line.removesuffix(command) + first]
    for option in options:
        joined = f"{rows[-1]} {option}"
        if len(rows) > 1 and len(joined) + len(FOLD) <= width:
            rows[-1] = joined
        else:
            rows.append(f"{INDENT}{option}")
    return f"{FOLD}\n".join(rows)


def own_options() -> SharedOptions | None:
    """Return what the line that is run says for every command, None outside of one."""
    invoked = click.get_current_context(silent=True)
    return shared_options(invoked) if invoked else None


def write(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text; where that fails the command goes on without, since its work matters more."""
    if err and nl and are_json():
        log_line(text)
        return
    try:
        click.echo(text, err=err, nl=nl)
    except OSError as error:
        # also for what Python prints at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if err else 1)
        UNPRINTED.extend([] if err else [str(error.strerror)])


def ask(
    label: str, *, secret: bool = False, default: str | None = None, show_default: bool = False
) -> str:
    """Return what is typed, unseen if it is secret.

    KeyboardInterrupt on Ctrl-C and at the input's end.
    """
    # polars makes reads resume after Ctrl-C: a prompt could not be left
    signal.siginterrupt(signal.SIGINT, True)
    try:
        typed: str = click.prompt(
            shown(label), default, hide_input=secret, show_default=show_default, err=True
        )
    except click.Abort:
        pass
    else:
        # a terminal in another encoding gives half surrogates
        return typed.encode("utf-8", "replace").decode()
    raise KeyboardInterrupt


@contextmanager
def progress_line(extract: str, *, verbose: bool) -> Iterator[Callable[[build.Progress], None]]:
    """Show the progress over one extract, on a terminal or if verbose.

    At the end the terminal's line is left empty.
    """
    terminal = sys.stderr.isatty()
    began = time.monotonic()
    width = 0
    pause = float("inf")
    if terminal:
        pause = OFTEN
    elif verbose:
        pause = SELDOM
    due = began + pause

    def show(progress: build.Progress) -> None:
        nonlocal due, width
        now = time.monotonic()
        if now < due:
            return
        due = now + pause
        line = f"{extract}: {build.describe_pace(progress.rows, progress.share, now - began)}"
        if terminal:
            write(f"\r{line:<{width}}", err=True, nl=False)
            width = len(line)
        else:
            say(line, err=True)

    try:
        yield show
    finally:
        if width:
            write("\r" + " " * width + "\r", err=True, nl=False)
