"""Every next step that cardlink can show, found in its classes, tables and source, with examples
for what is filled in later.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import shlex
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import click

import flows
import schemas
from flows.cli.main import COMMANDS, main
from flows.commands.context import Context
from flows.commands.entry import Entry
from flows.commands.result import Result
from flows.commands.signature import Parameter
from flows.errors import CardlinkError, sentence_of
from flows.steps import (
    PLACEHOLDERS,
    CommandName,
    Mention,
    Option,
    Placeholder,
    Sentence,
    Slot,
    Step,
    option_name,
)

ROOT = Path(__file__).parent.parent
ENTRIES = {entry.name: entry for entry in COMMANDS}
# what they are replaced by
REPLACED = {
    "WHY": "the partner said so",
    "REASON": "the partner said so",
    "RECEIPT": "receipt 7",
    "YOUR_NAME": "Jo",
    "ISSUER": "bank",
    "EXTRACT": "bank-20261120.csv",
    "RUN": "bank-20261120-01234567",
    "ROW": "7",
    "CUID": "c-1",
    "FILE": "file.csv",
    "FOLDER": "folder",
}
# where steps are made of values alone
GENERIC = {"flows.steps", "flows.commands.entry", "flows.commands.signature"}


@cache
def modules() -> list[str]:
    names = [
        module.name
        for package in (flows, schemas)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    for name in names:
        importlib.import_module(name)
    return names


def errors(root: type[CardlinkError] = CardlinkError) -> list[type[CardlinkError]]:
    """Return every class of error of ours; tests have some of their own."""
    classes = [kind for child in root.__subclasses__() for kind in (child, *errors(child))]
    return [kind for kind in classes if kind.__module__.startswith("flows.")]


def mentions_in(value: object) -> Iterator[Mention]:
    """Yield the mentions in a table, a sentence or an error's class, whatever holds them."""
    if isinstance(value, type):
        if issubclass(value, CardlinkError):
            yield from mentions_in(sentence_of(value))
    elif isinstance(value, Mention):
        yield value
    elif isinstance(value, Sentence):
        yield from mentions_in(value.values)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from mentions_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from mentions_in(part)


@cache
def of_tables() -> list[Mention]:
    """Return the mentions of every error's class and every table of a module."""
    return [
        mention
        for name in modules()
        for value in vars(importlib.import_module(name)).values()
        for mention in mentions_in(value)
    ]


@cache
def of_source() -> list[Mention]:
    """Return the mentions that are made in the source; slots are in place of what is computed."""
    return [mention for name in modules() if name not in GENERIC for mention in made_in(name)]


def made_in(name: str) -> Iterator[Mention]:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    for node in ast.walk(ast.parse(Path(module.__file__).read_text("utf-8"))):
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            kind = vars(module).get(called)
            values = [value_of(value) for value in node.args if not isinstance(value, ast.Starred)]
            named = {word.arg: value_of(word.value) for word in node.keywords if word.arg}
            if kind is Step:
                yield Step(values[0], *values[1:], **named)
            elif kind is CommandName:
                yield CommandName(*values)
            elif kind is Option:
                shown = ["" if isinstance(value, Slot) else value for value in values]
                yield Option(*shown, **named)


def value_of(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    name = getattr(node, "id", getattr(node, "attr", ""))
    return PLACEHOLDERS.get(name) or Slot("computed")


def typed(step: Step) -> list[str]:
    """Return the words of a step after the program, examples in place of slots and placeholders."""
    entry = ENTRIES[step.entry]
    arguments = [parameter for parameter in entry.parameters if parameter.argument]
    # of several values, each is one of the last argument
    arguments += arguments[-1:] * (len(step.arguments) - len(arguments))
    words = step.entry.split()
    words += map(example, step.arguments, arguments)
    for name, value in step.options:
        if name != "config":
            words.append(option_name(name))
            parameter = option_of(entry, option_name(name))
            if parameter is None:
                continue  # the command line refuses it
            if parameter.type is not bool:
                words.append(example(value, parameter))
    return words


def option_of(entry: Entry[...], option: str) -> Parameter | None:
    options = {
        parameter.option: parameter for parameter in entry.parameters if not parameter.argument
    }
    return options.get(option)


def example(value: object, parameter: Parameter) -> str:
    """Return a value, or one that a parameter takes in place of a slot or a placeholder."""
    if isinstance(value, Placeholder):
        return REPLACED[value.name]
    if isinstance(value, list | tuple):
        [value] = value
    if not isinstance(value, Slot):
        return str(value)
    if get_origin(parameter.type) is not None:
        return str(get_args(parameter.type)[0])
    if parameter.field.names and parameter.field.checked:
        return str(next(iter(parameter.field.names())))
    examples: dict[object, str] = {int: "1", float: "1", date: "2026-11-20"}
    return examples.get(parameter.type, "1")


def refused(words: list[str], *, named: bool = False) -> str:
    """Return what the command line would say against some words; where a command is only named, it
    may lack arguments.
    """
    line = " ".join(words)
    try:
        parsed(words, named=named)
    except click.exceptions.Exit:  # --help, --version
        return ""
    except click.ClickException as wrong:
        if named and isinstance(wrong, click.MissingParameter):
            return ""
        return f"cardlink {line}: {wrong.format_message()}"
    return ""


def parsed(words: list[str], *, named: bool = False) -> click.Context:
    """Return what the command line makes of words; of a command only named, as far as it goes."""
    command: click.Command = main
    context = main.make_context("cardlink", words)
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert found is not None
        if named and not words:
            break
        command, context = found, found.make_context(name, words, parent=context)
    return context


def pasted(folder: Path, line: str) -> Result:
    """Run the line of a step, with an example in place of each placeholder."""
    words = [REPLACED.get(word, word) for word in shlex.split(line)[1:]]
    command = parsed(words)
    entry = ENTRIES[command.command_path.removeprefix("cardlink ")]
    return entry.invoke(Context(folder, local_files=True), command.params)
