"""The base of every table of the issuer's TOML: unknown keys are errors, values are never changed after reading."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """One table of the TOML."""

    model_config = ConfigDict(extra="forbid", frozen=True)
