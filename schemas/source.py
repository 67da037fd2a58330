"""The tables `[source]`, `[columns]`, `[filter]` and `[repairs]` of the issuer's TOML: how its extract is written."""

from __future__ import annotations

from schemas.settings import Settings


class SourceSettings(Settings):
    """How the extract is written: format, delimiter, encoding, header and trailer."""

    pattern: str = "*"
    delimiter: str = ","
    encoding: str = "utf-8"
