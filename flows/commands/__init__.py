"""Every command once: a typed function, of which `flows.cli` makes the command line and
`flows.forms` the form.

Put here what a command calls and what it reports. Keep out the work itself, and anything of click
or Prefect. What a module imports by itself is light, since `cardlink --help` imports them all; what
its commands need is `on_first_use`.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any


class _Whole(SourceFileLoader):
    """Load a module together with those it imports.

    Two threads must not meet one that is half loaded.
    """

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        modules = [value for value in vars(module).values() if isinstance(value, ModuleType)]
        for imported in modules:
            vars(imported)  # any attribute loads it


class _Lazy(PathFinder):
    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = super().find_spec(fullname, path, target)
        if spec and isinstance(spec.loader, SourceFileLoader):
            spec.loader = LazyLoader(_Whole(spec.loader.name, spec.loader.path))
        return spec


@contextmanager
def on_first_use() -> Iterator[None]:
    """Load what this block imports (`from package import module`) when something of it is used."""
    sys.meta_path.insert(0, _Lazy)
    try:
        yield
    finally:
        sys.meta_path.remove(_Lazy)
