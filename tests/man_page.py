"""The man page, written from the entries: `deploy/cardlink.1`, which the wheel installs where `man`
looks.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from flows.cli.main import COMMANDS, command_of, main
from flows.cli.sections import GROUPS, SECTIONS
from flows.cli.shared_options import options
from flows.commands.entry import Entry

EXIT_CODES = {
    "0": "Done and balanced.",
    "1": "An internal error.",
    "2": "Usage, configuration, key, an extract that cannot be read, or a service that refuses.",
    "3": "Rejects or errors above the limit, or a second person is needed.",
    "4": "Out of balance, or an audit trail tampered with.",
    "75": "A temporary failure, or stopped: run the same command again.",
}
VARIABLES = {
    "CARDLINK_CONFIG": "Folder of the issuers' TOML files; by default the current folder.",
    "NO_COLOR": "Nothing is shown in color.",
}
ENTRIES = {entry.name: entry for entry in COMMANDS}


def man_page() -> str:
    """Return the page in the macros of man(7)."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield '.\\" Written by `python -m tests.reference`.'
    yield '.TH CARDLINK 1 "" cardlink "User commands"'
    yield ".SH NAME"
    yield "cardlink \\- a card link for every cardholder of a nightly extract"
    yield ".SH SYNOPSIS"
    yield ".B cardlink"
    yield "[\\fIoptions\\fR] \\fIcommand\\fR [\\fIarguments\\fR]"
    yield ".SH DESCRIPTION"
    yield _text((main.help or "").partition("\n\n")[0])
    yield "Results go to stdout, progress and the next step to stderr."
    yield ".SH OPTIONS"
    yield "They may stand before the command or after it."
    for option in options():
        yield from _item(", ".join(option.opts), option.help or "")
    for title, names in SECTIONS.items():
        yield f'.SH "{title.upper()}"'
        for name in names:
            yield from _commands(name)
    yield ".SH EXIT STATUS"
    for code, meaning in EXIT_CODES.items():
        yield from _item(code, meaning)
    yield ".SH ENVIRONMENT"
    for variable, meaning in VARIABLES.items():
        yield from _item(variable, meaning)


def _commands(name: str) -> Iterator[str]:
    """Yield a command, or all of a group."""
    if name in ENTRIES:
        yield from _command(ENTRIES[name])
        return
    yield _text(GROUPS[name])
    for entry in COMMANDS:
        if entry.name.startswith(f"{name} "):
            yield from _command(entry)


def _command(entry: Entry[...]) -> Iterator[str]:
    command = command_of(entry)
    usage = command.collect_usage_pieces(click.Context(command, info_name=entry.name))
    yield f'.SS "cardlink {entry.name} {_text(" ".join(usage))}"'
    for paragraph in entry.summary.split("\n\n"):
        yield ".PP"
        yield _text(paragraph)
    for parameter in entry.parameters:
        label = parameter.name.upper() if parameter.argument else parameter.option
        yield from _item(label, parameter.help)
    yield ".PP"
    yield "Example:"
    for line in entry.examples:
        yield f".RS\n.B {_text(line)}\n.RE"


def _item(label: str, meaning: str) -> Iterator[str]:
    yield ".TP"
    yield f".B {_text(label)}"
    yield _text(meaning)


def _text(text: str) -> str:
    """Return a text of which nothing is a request or an escape of roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    plain = " ".join(escaped.split())
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
