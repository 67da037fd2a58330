"""`cardlink status`, apart from the other commands: it is asked all day, and their imports take longer than it."""

from __future__ import annotations

from pathlib import Path

from flows.cli.answer import Answer, table
from flows.steps.operate.status import Standing, standings
from flows.wiring import issuers, load_issuer, open_store


def show_status(folder: Path, name: str | None) -> Answer:
    """Show every run of one issuer or of all, newest first."""
    found = [
        standing
        for issuer in ([name] if name else issuers(folder))
        for standing in standings(open_store(load_issuer(folder, issuer).root, folder), issuer)
    ]
    head = ("run", "state", *Standing._fields[2:])
    lines = table(head, [list(standing) for standing in found]) if found else ["no runs yet"]
    return Answer({"runs": [standing._asdict() for standing in found]}, lines)
