"""Ask somebody at the terminal for one value, on stderr; what is secret is typed unseen."""

from __future__ import annotations

import signal

import click


def ask(label: str, *, secret: bool = False, default: str | None = None, show_default: bool = False) -> str:
    """Return what is typed in; click.Abort on Ctrl-C and at the end of the input."""
    signal.siginterrupt(signal.SIGINT, True)  # polars takes Ctrl-C so that reads go on: a prompt could not be left
    typed: str = click.prompt(label, default=default, hide_input=secret, show_default=show_default, err=True)
    return typed.encode("utf-8", "replace").decode()  # a terminal in another encoding gives half surrogates
