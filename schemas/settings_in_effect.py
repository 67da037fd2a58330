"""The settings that count for an issuer, each with where it comes from, without any secret."""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

OURS: Final = ("CARDLINK_", "AWS_", "PREFECT_API_", "PREFECT_HOME", "PREFECT_LOGGING_")
# Variables whose values are no secrets; of the others only that they are set is shown.
REPORTED: Final = (
    "_FILE",
    "_CONFIG",
    "_ACTOR",
    "_ACTORS",
    "_POOL",
    "_REGION",
    "_PROFILE",
    "_HOME",
    "_PATH",
    "_LEVEL",
)


def settings_in_effect(
    effective: Mapping[str, Any], content: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Return value and origin of an issuer's settings, then of the environment's, without any
    secret.

    `effective` is the issuer's whole model as plain values, `content` that of its TOML.
    """
    settings = dict(_flat(effective, content))
    for name, value in sorted(environment.items()):
        if name.startswith(OURS):
            settings[name] = {"value": _shown(name, value), "from": "environment"}
    return settings


def _shown(name: str, value: str) -> str:
    """Return what may be shown of a variable's value: of an address the host alone."""
    if name.endswith("_URL"):
        return _host(value)
    return value if name.endswith(REPORTED) else "(set)"


def _host(address: str) -> str:
    url = urlsplit(address)
    host = url.netloc.rpartition("@")[2]
    return url._replace(netloc=host, path="", query="", fragment="").geturl()


def _flat(
    effective: Mapping[str, Any], content: Any, prefix: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in effective.items():
        in_file = isinstance(content, Mapping) and name in content
        below = content[name] if in_file else {}
        if isinstance(value, Mapping) and value:
            yield from _flat(value, below, f"{prefix}{name}.")
        elif name == "webhook" and isinstance(value, str):  # its path may hold a token
            yield f"{prefix}{name}", {"value": _host(value), "from": "file"}
        else:
            yield f"{prefix}{name}", {"value": value, "from": "file" if in_file else "default"}
