"""The ways a portal may stringify one error object (interface.md 2.7, 7).

That is the error column of a failed row. The interface says "a stringified object with the failing
CUID and the error(s)" and no more: hence a choice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from flows.extensions.simulator.validation import Fault

Shape = Callable[[str, Sequence[Fault]], str]
CUT = 60  # characters a truncating portal leaves
LINE = 80  # characters node writes on a line


def _nested(cuid: str, faults: Sequence[Fault]) -> dict[str, Any]:
    entities: dict[str, Any] = {}
    for fault in faults:
        under = entities.setdefault(fault.entity, {"_errors": []})
        under["_errors"].append(
            {"property": fault.property, "name": fault.kind, "message": fault.message}
        )
    return {"cuid": cuid, "errors": entities}


def _flat(cuid: str, faults: Sequence[Fault]) -> dict[str, Any]:
    rows = [
        {
            "name": fault.kind,
            "message": fault.message,
            "property": f"{fault.entity}.{fault.property}",
        }
        for fault in faults
    ]
    return {"cuid": cuid, "errors": rows}


def _calls(cuid: str, faults: Sequence[Fault]) -> dict[str, Any]:
    rows = [
        {
            "call": f"create_{fault.entity}",
            "index": index,
            "name": fault.kind,
            "message": fault.message,
            "entity_name": fault.entity,
            "property_name": fault.property,
        }
        for index, fault in enumerate(faults)
    ]
    return {"cuid": cuid, "_errors": rows}


def _strings(cuid: str, faults: Sequence[Fault]) -> dict[str, Any]:
    errors = [f"{fault.entity}.{fault.property}: {fault.message}" for fault in faults]
    return {"cuid": cuid, "errors": errors}


def _text(cuid: str, faults: Sequence[Fault]) -> str:
    problems = "; ".join(f"{fault.entity} {fault.message}" for fault in faults)
    return f"Cardholder {cuid} could not be created: {problems}"


def _inspect(value: object, indent: int = 0) -> str:
    """Write `value` as node's util.inspect does: bare keys, single quotes, long lines split."""
    if isinstance(value, dict):
        members = [f"{key}: {_inspect(member, indent + 2)}" for key, member in value.items()]
        return _enclosed("{", members, "}", indent)
    if isinstance(value, list):
        elements = [_inspect(element, indent + 2) for element in value]
        return _enclosed("[", elements, "]", indent)
    return repr(value)


def _enclosed(left: str, parts: Sequence[str], right: str, indent: int) -> str:
    width = 2 * len(parts) + indent + len(left) + 10 + sum(map(len, parts))
    if width <= LINE and "\n" not in "".join(parts):
        return f"{left} {', '.join(parts)} {right}"
    edge = "\n" + " " * indent
    return f"{left}{edge}  " + f",{edge}  ".join(parts) + f"{edge}{right}"


SHAPES: dict[str, Shape] = {
    "nested": lambda cuid, faults: json.dumps(_nested(cuid, faults)),
    "objects": lambda cuid, faults: json.dumps(_flat(cuid, faults)),
    "calls": lambda cuid, faults: json.dumps(_calls(cuid, faults)),
    "strings": lambda cuid, faults: json.dumps(_strings(cuid, faults)),
    "twice": lambda cuid, faults: json.dumps(json.dumps(_nested(cuid, faults))),
    "escaped": lambda cuid, faults: json.dumps(_flat(cuid, faults)).replace('"', '\\"'),
    "inspect": lambda cuid, faults: _inspect(_flat(cuid, faults)),
    "repr": lambda cuid, faults: repr(_nested(cuid, faults)),
    "cut": lambda cuid, faults: json.dumps(_nested(cuid, faults))[:CUT],
    "text": _text,
    "object": lambda cuid, faults: "[object Object]",
}
