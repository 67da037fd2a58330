"""The fields of a form: names, types, checks, defaults and help, made from its entries.

Nothing of Prefect: `flows.forms` makes the flow whose form has them.
"""

import inspect
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from flows.commands.entry import Entry
from flows.commands.form import Form
from flows.commands.parameters import CARD
from flows.commands.signature import REQUIRED, Parameter
from flows.errors import OperatorError
from flows.redaction import redact

NONE = "none"  # what a list of names offers for an optional field


class FieldEmptyError(OperatorError):
    """A form was submitted without a field that its command needs."""

    message = (
        "{label} needs the field {field} of the form {form}, which is empty. Nothing was done."
    )
    next_step = "Fill it in and submit the form again."


def fields_of(built: Form, entries: Sequence[Entry[...]]) -> list[inspect.Parameter]:
    """Return the parameters of a form, required ones first.

    A choice takes the place of the parameters it sets.
    """
    covered = _covered(built)
    fields: dict[str, inspect.Parameter] = {}
    for name, parameter in parameters_of_form(entries).items():
        if name not in covered:
            default = _default(built, entries, parameter)
            fields[name] = _field(name, kind_of(parameter, default), default)
    if built.picks:
        labels = tuple(entry.label for entry in entries)
        fields[built.picks] = _field(built.picks, Literal[labels], REQUIRED)
    for choice in built.choices:
        kind: Any = Literal[tuple(choice.sets)]
        fields[choice.name] = _field(choice.name, kind, next(iter(choice.sets)))
    return sorted(fields.values(), key=lambda field: field.default is not REQUIRED)


def parameters_of_form(entries: Sequence[Entry[...]]) -> dict[str, Parameter]:
    """Return a parameter for each field: of several commands, one that takes an issuer beside a
    run, else the first.
    """
    widest: dict[str, Parameter] = {}
    for entry in entries:
        for parameter in entry.parameters:
            if parameter.name not in widest or parameter.field.offers == "targets":
                widest[parameter.name] = parameter
    return widest


def _covered(built: Form) -> set[str]:
    """Return the parameters that are no fields of a form: what its choices set, and `without`."""
    covered = set(built.without)
    for choice in built.choices:
        for settings in choice.sets.values():
            covered.update(settings)
    return covered


def _default(built: Form, entries: Sequence[Entry[...]], parameter: Parameter) -> Any:
    """Return what a form's field holds at first; REQUIRED where it has to be filled in."""
    if parameter.name in built.needs:
        return REQUIRED
    if parameter.name == "actor" and built.actor == "required":
        return REQUIRED
    if parameter.name == "dry_run":
        return True  # a form does a dry run first
    if parameter.default is REQUIRED:
        return _default_of_required(entries, parameter)
    return None if parameter.many else parameter.default


def _default_of_required(entries: Sequence[Entry[...]], parameter: Parameter) -> Any:
    """Return the default of a field that a command needs.

    Its only name, or nothing where another command of the form does without it.
    """
    names = _names(parameter)
    if len(names) == 1:
        return names[0]
    if not all(_takes(entry, parameter.name) for entry in entries):
        return NONE if parameter.field.names else ""
    return None if parameter.many else REQUIRED


def _names(parameter: Parameter) -> list[str]:
    """Return the names that a field offers; none where it takes any text."""
    return list(parameter.field.names()) if parameter.field.names else []


def _takes(entry: Entry[...], name: str) -> bool:
    return any(parameter.name == name for parameter in entry.parameters)


def _requires(entry: Entry[...], name: str) -> bool:
    required = (each.name for each in entry.parameters if each.default is REQUIRED)
    return name in required


def _field(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind
    )


def kind_of(parameter: Parameter, default: Any = REQUIRED) -> Any:
    """Return the type of a form's field, with everything the form checks."""
    kind: Any = parameter.type
    field = parameter.field
    offered = _offered(parameter, default)
    if offered:
        kind = StrEnum.__call__(parameter.name, [(name, name) for name in offered])
    elif field.pattern:
        pattern = f"^({field.pattern})?$" if default == "" else f"^{field.pattern}$"
        kind = Annotated[str, Field(pattern=pattern, max_length=field.longest)]
    elif field.words:  # Prefect's server checks the pattern before it stores the text
        shape: dict[str, Any] = {"pattern": rf"^(?![\s\S]*(?:{CARD}))"}
        kind = Annotated[
            str, Field(max_length=field.longest, json_schema_extra=shape), AfterValidator(redact)
        ]
    elif field.least is not None:
        kind = Annotated[parameter.type, Field(ge=field.least, le=field.most)]
    if parameter.many:
        kind = list[kind]
    return kind | None if default is None else kind


def _offered(parameter: Parameter, default: Any) -> list[str]:
    """Return the names that a field offers, with NONE first where that is its default."""
    if parameter.field.names and default == NONE:
        return [NONE, *_names(parameter)]
    return _names(parameter)


def filled_in(
    built: Form, entries: Sequence[Entry[...]], values: Mapping[str, Any]
) -> tuple[Entry[...], dict[str, Any]]:
    """Return the entry a form was filled in for, and its parameters."""
    picked = next(
        entry for entry in entries if not built.picks or entry.label == values[built.picks]
    )
    arguments: dict[str, Any] = {}
    for choice in built.choices:
        arguments |= choice.sets[values[choice.name]]
    for parameter in picked.parameters:
        value = values.get(parameter.name)
        if value is not None:
            arguments[parameter.name] = _argument(parameter, value)
        if parameter.default is REQUIRED and not arguments.get(parameter.name):
            raise FieldEmptyError(label=picked.label, field=parameter.name, form=built.name)
    return picked, arguments


def _argument(parameter: Parameter, value: Any) -> Any:
    """Return a field's value as the command takes it."""
    if parameter.many:
        return tuple(value)
    if not parameter.field.names:
        return value
    if value == NONE and NONE not in _names(parameter):
        return ""
    return str(value)


def _required_by(field: inspect.Parameter, entries: Sequence[Entry[...]]) -> str:
    """Return which commands need a field that the form does not require, since others do not."""
    if field.default is REQUIRED:
        return ""
    needing = [entry.label for entry in entries if _requires(entry, field.name)]
    return f" Required by: {', '.join(needing)}." if needing and field.default in ("", NONE) else ""


def docstring_of(
    built: Form, entries: Sequence[Entry[...]], fields: Sequence[inspect.Parameter]
) -> str:
    """Return the docstring from which Prefect takes a form's help texts."""
    commands = " ".join(f"{entry.label.capitalize()}: {entry.summary}" for entry in entries)
    commands = " ".join(commands.split())  # the help of a field is one paragraph
    helps: dict[str, str] = {}
    for entry in entries:
        helps |= {parameter.name: parameter.help for parameter in entry.parameters}
    helps |= {choice.name: choice.help for choice in built.choices}
    helps[built.picks] = commands
    for field in fields:
        helps[field.name] += _required_by(field, entries)
    summary = commands if built.picks else entries[0].summary
    lines = [f"    {field.name}: {helps[field.name]}" for field in fields]
    return "\n".join([summary, "", "Args:", *lines])
