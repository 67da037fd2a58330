"""Every outcome that a test sees is one of deploy/outcome.schema.json, which is written by hand."""

from __future__ import annotations

import json
import sys
from functools import cache, wraps
from pathlib import Path
from typing import Any

import jsonschema_rs

SCHEMA = json.loads((Path(__file__).parents[1] / "deploy" / "outcome.schema.json").read_text())
ENVELOPE = ("version", "command", "next", "exit_code")
SHARED = ("error", "request", "done", "several")  # outcomes that any command can have
wrong: list[str] = []  # what the schema does not have, since they were looked at last


@cache
def _validator() -> Any:
    return jsonschema_rs.validator_for(SCHEMA, validate_formats=True)


def problems(outcome: dict[str, Any]) -> list[str]:
    """Return where an outcome differs from the schema, without its values."""
    definition = SCHEMA["$defs"].get(outcome["command"].replace(" ", "-"))
    if definition is None:
        return []  # a command of a test alone; each of ours has one
    shapes = [definition, *(SCHEMA["$defs"][name] for name in SHARED)]
    known = set(SCHEMA["properties"]).union(*map(_properties, shapes))
    strange = sorted(outcome.keys() - known)
    found = [f"{outcome['command']}: {name} is not in the schema" for name in strange]
    if not _validator().is_valid(outcome):
        found += _reasons(outcome, definition)
    envelope = {name: outcome[name] for name in ENVELOPE}
    for facts in _of_several(outcome):
        found += problems({**envelope, **facts})
    return found


def _properties(shape: dict[str, Any]) -> set[str]:
    """Return the names of a shape's properties, with those of the shapes that it refers to."""
    names = set(shape.get("properties", ()))
    if "$ref" in shape:
        names |= _properties(SCHEMA["$defs"][shape["$ref"].rpartition("/")[2]])
    return names.union(*map(_properties, shape.get("anyOf", ())))


def _of_several(outcome: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the facts of each issuer or run where a command was for several."""
    is_for_several = isinstance(outcome.get("refused"), dict)
    return outcome["issuers"] if is_for_several else []


def _reasons(outcome: dict[str, Any], definition: dict[str, Any]) -> list[str]:
    own = jsonschema_rs.validator_for(
        {**definition, "$defs": SCHEMA["$defs"]}, validate_formats=True
    )
    places = [
        f"{'/'.join(map(str, error.instance_path))}: {error.message[:200]}"
        for error in own.iter_errors(outcome)
    ]
    return [f"{outcome['command']}: {place}" for place in places or ["the envelope differs"]]


def watch() -> None:
    """Look at every outcome that a command in this process prints, as text too."""
    command_line: Any = sys.modules.get("flows.cli.main")
    if command_line is None or hasattr(command_line.print_result, "__wrapped__"):
        return
    from flows.cli.outcome import outcome

    printed = command_line.print_result

    @wraps(printed)
    def looked_at(result: Any, command: str, shared: Any) -> None:
        wrong.extend(problems(json.loads(json.dumps(outcome(result, command, shared.words)))))
        printed(result, command, shared)

    command_line.print_result = looked_at
