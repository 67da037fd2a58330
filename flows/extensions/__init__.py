"""The extensions: each folder here brings something more, and can be taken away.

An extension reads what the kernel has and writes its own. The kernel imports none of them. It finds
those that are there, and asks their packages for:

- `COMMANDS`: the names of its modules with commands;
- `settings.TABLES`: its tables of an issuer's TOML, by name; `example.toml` has an example of each
  key;
- functions of its module `hooks`, each of which it may have or not: `condition(issuer, store, now)`
  returns
  a `Condition` of what runs beside the flows; `alert_kinds()` its kinds of alerts;
  `gauges()` its metrics; `schedules(issuer)` the variables of `prefect.yaml` that it sets.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any


def extensions() -> Iterator[ModuleType]:
    """Yield the packages of the extensions that are there, by name."""
    for module in iter_modules(__path__, f"{__name__}."):
        yield import_module(module.name)


def modules_named(kind: str) -> Iterator[ModuleType]:
    """Yield the modules of the extensions that their packages name as theirs of this kind."""
    for extension in extensions():
        for name in getattr(extension, kind, ()):
            yield import_module(f"{extension.__name__}.{name}")


def hooks(name: str) -> Iterator[Callable[..., Any]]:
    """Yield the functions of that name of the extensions that have one."""
    for module in _modules("hooks"):
        if hasattr(module, name):
            yield getattr(module, name)


def starts_often(issuer: Any) -> bool:
    """Return whether an extension starts an issuer's runs more often than its schedule says."""
    return any(variables(issuer) for variables in hooks("schedules"))


def settings_tables() -> dict[str, Any]:
    """Return the tables that the extensions bring to a TOML: field and default by name."""
    tables: dict[str, Any] = {}
    for module in _modules("settings"):
        tables |= module.TABLES
    return tables


def settings_examples() -> Iterator[str]:
    """Yield the examples of the keys of these tables, as TOML."""
    for module in _modules("settings"):
        yield Path(str(module.__file__)).with_name("example.toml").read_text("utf-8")


def _modules(name: str) -> Iterator[ModuleType]:
    """Yield the modules of that name of the extensions that have one."""
    for extension in extensions():
        module = f"{extension.__name__}.{name}"
        if find_spec(module) is not None:
            yield import_module(module)
