"""The JSON Schema of what `--json` prints, made of the facts of each command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from schemas.outcomes.commands import FACTS

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
# what every outcome has
ENVELOPE: dict[str, Any] = {
    "version": {"const": 1, "description": "Raised where a field goes or changes its meaning."},
    "command": {"type": "string", "description": "The command; empty where the line names none."},
    "next": {"type": "string", "description": "The command to type next, as a line to paste."},
    "exit_code": {"enum": [0, 1, 2, 3, 4, 75]},
}
# what an outcome may have, whatever the command
BESIDE: dict[str, Any] = {
    "unread": {"type": "array", "description": "Issuers that could not be read, and why."},
    "settings_changed": TEXTS,
    "acknowledgements": {"type": "array"},
    "not_acknowledged": TEXT,
}
ERROR = {
    "title": "What ended a command",
    "properties": {"error": TEXT, "message": TEXT},
    "required": ["error", "message"],
}
REQUEST = {
    "title": "A request that waits for a second person",
    "properties": {
        "request": TEXT,
        "until": {"type": "string", "format": "date-time"},
        "digest": TEXT,
        "would": {"type": "object", "description": "The facts of its dry run."},
    },
    "required": ["request", "until", "digest", "would"],
}


def document() -> dict[str, Any]:
    """Return the schema of every outcome."""
    definitions: dict[str, Any] = {"error": ERROR, "request": REQUEST}
    for command, facts in FACTS.items():
        own = TypeAdapter(facts).json_schema(ref_template="#/$defs/{model}")
        definitions |= own.pop("$defs", {})
        definitions[_definition(command)] = {**own, "title": f"cardlink {command}"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What cardlink --json prints",
        "description": "Fields may be added within a version. Times are ISO 8601, in UTC or with "
        "their offset; durations are numbers whose names end with the unit.",
        "type": "object",
        "properties": ENVELOPE | BESIDE,
        "required": [*ENVELOPE],
        "anyOf": [{"$ref": "#/$defs/error"}, *map(_of_command, FACTS)],
        "$defs": definitions,
    }


def _definition(command: str) -> str:
    """Return the name of a command's definition: no URI has spaces."""
    return command.replace(" ", "-")


def _of_command(command: str) -> Mapping[str, Any]:
    """Return the outcomes of a command: its own, a request, or one for each of several issuers."""
    own = {"$ref": f"#/$defs/{_definition(command)}"}
    several = {
        "properties": {
            "issuers": {"type": "array", "items": {"anyOf": [own, {"$ref": "#/$defs/request"}]}},
            "refused": {"type": "object", "additionalProperties": TEXT},
        },
        "required": ["issuers", "refused"],
    }
    return {
        "properties": {"command": {"const": command}},
        "required": ["command"],
        "anyOf": [own, {"$ref": "#/$defs/request"}, several],
    }
