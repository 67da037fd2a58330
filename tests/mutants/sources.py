"""The modules of `flows` and `schemas`, compiled from another source than their file's while a
process imports them. No file is written.
"""

from __future__ import annotations

import ast
import importlib.machinery
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from types import CodeType
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCES = (str(ROOT / "flows"), str(ROOT / "schemas"))


class Mutant(NamedTuple):
    """A file with one small fault. `function` is the outermost one that holds it, "" where it is
    outside of the body of any: such a mutant needs a process of its own.
    """

    file: str
    function: str
    line: int
    was: str
    becomes: str
    code: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what names it also after other lines have moved."""
        return self.file, self.was, self.becomes

    @property
    def id(self) -> str:
        """Return what no other mutant has, also of two in one line."""
        return sha256(f"{self.file} {self.code}".encode()).hexdigest()


def compile_with(code_of: Callable[[Path], CodeType | None]) -> None:
    """Let later imports of our modules use the code that `code_of` returns for their file, where it
    returns one.
    """
    loader = importlib.machinery.SourceFileLoader
    get_code = loader.get_code

    def chosen(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        changed = code_of(Path(path)) if path.startswith(SOURCES) else None
        return changed or get_code(self, fullname)

    # the one hook that also passes by kept bytecode
    setattr(loader, "get_code", chosen)  # noqa: B010  # mypy knows no other loader's method


def compiled(source: str | ast.Module, file: str) -> CodeType:
    """Compile a module by its own future statements alone: with ours, FastAPI would meet texts for
    annotations, and refuse or forget what they name.
    """
    code = compile(source, file, "exec", dont_inherit=True)
    assert isinstance(code, CodeType)
    return code


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the outermost functions and methods of a module with their qualified names."""
    for statement in tree.body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield statement.name, statement
            case ast.ClassDef():
                for method in statement.body:
                    if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield f"{statement.name}.{method.name}", method
