"""How help arranges the commands: those of every day first, rare ones last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

SECTIONS: Final[Mapping[str, Sequence[str]]] = {
    "Every day": ("submit", "upload", "ingest", "deliver", "worklist", "show", "decide"),
    "Look": (
        "report",
        "trace",
        "cardholders",
        "reconcile",
        "programme",
    ),
    "Send again": ("resubmit", "corrections", "renew", "backfill"),
    "Decide": (
        "outbox",
        "mend",
        "dismiss",
        "questions",
        "answers",
        "link-form",
        "acknowledge",
    ),
    "The partner's interface": ("link", "record", "placements", "job", "service"),
    "Set up": (
        "init",
        "settings",
        "check",
        "agree",
        "changelog",
        "install",
        "deploy-files",
        "completion",
    ),
    "Keep and prove": ("audit", "purge", "person", "backup", "recover"),
    "Practise": ("demo", "practice", "practice people", "sample", "simulate"),
}
# what the first words of commands of two words say in help
GROUPS: Final = {
    "outbox": "Hold chunks back from the upload, release or cancel them.",
    "mend": "Put right what went wrong: each command has --dry-run, and records who, when and why.",
    "audit": "Prove that the audit trail is whole, and hand out the evidence of a run.",
    "job": "Follow a placement job at the partner.",
    "service": "The partner's API: what it answers, and the settings that fit it.",
    "person": "What is stored of one person: export all of it, or forget them.",
}
