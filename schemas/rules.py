"""The table `[rules]` of the issuer's TOML: how strict the checks are and what normalising may fill in."""

from __future__ import annotations

from schemas.settings import Settings


class Rules(Settings):
    """Severity of the checks that the partner leaves open."""
