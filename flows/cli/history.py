"""`cardlink history RUN`: the audit trail of a run, a line for each thing that happened."""

from __future__ import annotations

from pathlib import Path

from flows.cli.answer import Answer
from flows.core.names import RunId
from flows.steps.operate.history import Happening, history
from flows.steps.runs import UnknownRunError
from flows.wiring import wire


def show_history(folder: Path, run: str) -> Answer:
    """Tell who did what to a run and when, oldest first."""
    parsed = RunId.parse(run)
    if parsed is None:
        raise UnknownRunError(run)
    found = history(wire(folder, parsed.issuer).edges.store, run)
    facts = {"run": run, "history": [one._asdict() for one in found]}
    return Answer(facts, [line for one in found for line in _lines(one)])


def _lines(one: Happening) -> list[str]:
    by = f" by {one.by}" if one.by else ""
    facts = [f"    {name}: {_told(value)}" for name, value in one.facts.items()]
    return [f"{one.at[:19].replace('T', ' ')}  {one.what}{by}", *facts]


def _told(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
