"""The extensions: each folder here brings something more, and can be taken away.

An extension reads what the kernel has and writes its own. The kernel finds those that are there by
what their packages say:

- `COMMANDS`: its modules with commands;

and imports nothing of them else.
"""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def extensions() -> Iterator[ModuleType]:
    """Yield the packages of the extensions that are there, by name."""
    for module in iter_modules(__path__, f"{__name__}."):
        yield import_module(module.name)


def modules_named(what: str) -> Iterator[ModuleType]:
    """Yield the modules of the extensions that their packages name as theirs of this kind."""
    for extension in extensions():
        for name in getattr(extension, what, ()):
            yield import_module(f"{extension.__name__}.{name}")
