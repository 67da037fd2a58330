"""Every outcome that a test sees is one of deploy/outcome.schema.json."""

from __future__ import annotations

import json
import sys
from functools import cache, wraps
from pathlib import Path
from typing import Any

import jsonschema_rs

SCHEMA = json.loads((Path(__file__).parents[1] / "deploy" / "outcome.schema.json").read_text())
SHARED = {"request", "until", "digest", "would", "error", "message", "issuers", "refused"}
wrong: list[str] = []  # what the schema does not have, since they were looked at last


@cache
def _validator() -> Any:
    return jsonschema_rs.validator_for(SCHEMA, validate_formats=True)


def problems(outcome: dict[str, Any]) -> list[str]:
    """Return where an outcome differs from the schema, without its values."""
    definition = SCHEMA["$defs"].get(outcome["command"].replace(" ", "-"))
    if definition is None:
        return []  # a command of a test alone; each of ours has one
    known = {*SCHEMA["properties"], *SHARED}.union(*map(_properties, _shapes(definition)))
    strange = sorted(outcome.keys() - known)
    if definition.get("additionalProperties"):
        strange = []
    found = [f"{outcome['command']}: {name} is not in the schema" for name in strange]
    if not _validator().is_valid(outcome):
        found += list(_reasons(outcome, definition))
    return found


def _shapes(definition: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a definition, or those of a command whose options decide about its outcome."""
    names = [shape["$ref"].rpartition("/")[2] for shape in definition.get("anyOf", ())]
    return [SCHEMA["$defs"][name] for name in names] or [definition]


def _properties(definition: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = definition.get("properties", {})
    return properties


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
