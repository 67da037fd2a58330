"""The ways a portal may stringify one error object: the error column of a failed row (interface.md 2.7, 7).

The interface says "a stringified object with the failing CUID and the error(s)" and no more: hence a choice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from flows.simulator.validation import Fault

Shape = Callable[[str, Sequence[Fault]], str]
CUT = 60  # characters a truncating portal leaves


def _nested(cuid: str, faults: Sequence[Fault]) -> dict[str, Any]:
    entities: dict[str, Any] = {}
    for fault in faults:
        under = entities.setdefault(fault.entity, {"_errors": []})
        under["_errors"].append({"property": fault.property, "name": fault.kind, "message": fault.message})
    return {"cuid": cuid, "errors": entities}


def _flat(cuid: str, faults: Sequence[Fault]) -> dict[str, Any]:
    rows = [{"name": f.kind, "message": f.message, "property": f"{f.entity}.{f.property}"} for f in faults]
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
    return {"cuid": cuid, "errors": [f"{f.entity}.{f.property}: {f.message}" for f in faults]}


def _text(cuid: str, faults: Sequence[Fault]) -> str:
    return f"Cardholder {cuid} could not be created: " + "; ".join(f"{f.entity} {f.message}" for f in faults)


def _inspect(value: object) -> str:
    """Write `value` as node's util.inspect does."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key}: {_inspect(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[ " + ", ".join(map(_inspect, value)) + " ]"
    return f"'{value}'" if isinstance(value, str) else str(value)


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
