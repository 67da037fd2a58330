"""Faults put in by hand, `faults.toml`: each with what it does, and the tests that notice it."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.mutants.sources import ROOT, Mutant, functions

FAULTS = Path(__file__).parent / "faults.toml"


class Fault(NamedTuple):
    """A mutant with a sentence, and the files of tests that notice it."""

    what: str
    mutant: Mutant
    tests: list[str]


def faults(path: Path = FAULTS) -> list[Fault]:
    """Return the faults of the table; ValueError where the text to change is not there once."""
    return [_fault(**entry) for entry in tomllib.loads(path.read_text())["fault"]]


def _fault(what: str, file: str, was: str, becomes: str, tests: list[str]) -> Fault:
    source = (ROOT / file).read_text()
    if source.count(was) != 1:
        raise ValueError(f"{file} has {source.count(was)} times: {was}")
    line = source[: source.index(was)].count("\n") + 1
    mutant = Mutant(
        file, _function_at(source, line), line, was, becomes, source.replace(was, becomes)
    )
    return Fault(what, mutant, tests)


def _function_at(source: str, line: int) -> str:
    """Return the outermost function or method that holds a line, "" for none."""
    for name, function in functions(ast.parse(source)):
        if function.lineno <= line <= (function.end_lineno or 0):
            return name
    return ""
