"""The settings in effect, each with its origin: the issuer's TOML, a default, or the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

OURS: Final = ("CARDLINK_", "AWS_", "PREFECT_API_", "PREFECT_HOME", "PREFECT_LOGGING_")
# Variables whose values are no secrets; of the others only that they are set is shown.
REPORTED: Final = ("_FILE", "_CONFIG", "_ACTOR", "_ACTORS", "_POOL", "_REGION", "_PROFILE", "_HOME", "_PATH", "_LEVEL")


class Setting(NamedTuple):
    """One setting in effect: its dotted name, its value, its origin."""

    name: str
    value: Any
    origin: Literal["file", "default", "environment"]


def settings_in_effect(
    effective: Mapping[str, Any], given: Mapping[str, Any], environment: Mapping[str, str]
) -> list[Setting]:
    """Return every setting of an issuer, then those of the environment, without any secret.

    `effective` is the issuer's whole model as plain values, `given` the content of its TOML.
    """
    named = sorted(name for name in environment if name.startswith(OURS))
    added = [Setting(name, _shown(name, environment[name]), "environment") for name in named]
    return [*_flat(effective, given), *added]


def _flat(effective: Mapping[str, Any], given: Any, prefix: str = "") -> Iterator[Setting]:
    for name, value in effective.items():
        in_file = isinstance(given, Mapping) and name in given
        below = given[name] if in_file else {}
        if isinstance(value, Mapping) and value:
            yield from _flat(value, below, f"{prefix}{name}.")
        else:
            yield Setting(f"{prefix}{name}", value, "file" if in_file else "default")


def _shown(name: str, value: str) -> str:
    if name.endswith("_URL"):
        url = urlsplit(value)
        return url._replace(netloc=url.netloc.rpartition("@")[2], path="", query="", fragment="").geturl()
    return value if name.endswith(REPORTED) else "(set)"
