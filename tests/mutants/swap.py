"""A fault put into a function of the running process, wherever it was imported or wrapped, and taken
out again.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from tests.mutants.sources import ROOT, compiled

OWN = ("flows", "schemas", "tests")


class MisfitError(Exception):
    """The code cannot be put into the running process."""


def imported(file: str) -> None:
    """Import the module of a file, which a command may otherwise import only when it runs."""
    name = ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
    if name not in sys.modules:
        __import__(name)


@contextmanager
def fault(file: str, function: str, source: str) -> Iterator[None]:
    """Give each function object of that name in that file the code it has in `source`, for as long
    as this lasts; what was cached meanwhile is forgotten.
    """
    changed = _changes(str(ROOT / file), function, source)
    forget_cached()
    try:
        _put_in(changed)
        yield
    finally:
        for target, code, _ in changed:
            target.__code__ = code
        forget_cached()


def _put_in(changed: list[tuple[FunctionType, CodeType, CodeType]]) -> None:
    for target, _, mutated in changed:
        try:
            target.__code__ = mutated
        except ValueError as error:  # it has other free variables
            raise MisfitError(target.__qualname__) from error


def _changes(
    path: str, function: str, source: str
) -> list[tuple[FunctionType, CodeType, CodeType]]:
    try:
        codes = list(_codes(compiled(source, path), function))
    except SyntaxError as error:
        raise MisfitError(function) from error
    targets = list(_targets(path, function))
    lines = sorted({target.__code__.co_firstlineno for target in targets})
    if not lines or len(lines) != len(codes):
        raise MisfitError(function)
    mutated = dict(zip(lines, codes, strict=True))
    return [
        (target, target.__code__, mutated[target.__code__.co_firstlineno]) for target in targets
    ]


def forget_cached() -> None:
    """Empty the caches of functions, ours and those of the tests, and the nights that tests share.

    Keys stay: gpg makes them, and modules of tests hold some from the beginning.
    """
    if night := sys.modules.get("tests.night"):
        night.MADE.clear()
    for cached in _live().caches:
        if cached.__module__.startswith(OWN) and cached.__module__ != "tests.keys":
            cached.cache_clear()


def _codes(code: CodeType, function: str) -> Iterator[CodeType]:
    """Yield the codes of that qualified name, in the order of the file."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == function:
                yield constant
            yield from _codes(constant, function)


def _targets(path: str, function: str) -> Iterator[FunctionType]:
    for one in _live().functions:
        if one.__code__.co_qualname == function and one.__code__.co_filename == path:
            yield one


class _Live(NamedTuple):
    """The functions and caches of this process, as of so many modules."""

    functions: list[FunctionType]
    caches: list[functools._lru_cache_wrapper[Any]]


_LOOKS: dict[int, _Live] = {}  # the last look, by the number of modules: it takes as long as a test


def _live() -> _Live:
    """Return the functions and caches that there are: modules make them when they are imported."""
    modules = len(sys.modules)
    if modules not in _LOOKS:
        _LOOKS.clear()
        gc.unfreeze()  # what is frozen is not listed
        objects = gc.get_objects()
        gc.freeze()
        caches = [one for one in objects if type(one) is functools._lru_cache_wrapper]
        _LOOKS[modules] = _Live([one for one in objects if type(one) is FunctionType], caches)
    return _LOOKS[modules]
