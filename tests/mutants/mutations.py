"""The mutants of a file, as mutmut's operators and our own make them: small faults such as `<` for
`<=`, or the first for the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any, cast

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper
from mutmut.mutation.file_mutation import Mutation, MutationVisitor
from mutmut.mutation.mutators import OPERATORS_TYPE, mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode

from tests.mutants.edges import EDGES, PRECEDENCE
from tests.mutants.sources import ROOT, Mutant

ALL: OPERATORS_TYPE = (*mutation_operators, *PRECEDENCE)
NOTHING_IGNORED = IgnoredCode(set(), set(), set())


class Visitor(MutationVisitor):
    """Mutmut's visitor, which here also enters decorated functions: it leaves them out only
    because it copies functions.
    """

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef):
            return False
        return bool(super()._skip_node_and_children(node))


class Mutations:
    """The mutations of one file, or only those of limits and precedence (`edges`); the code of a
    mutant is made when it is taken.
    """

    def __init__(self, file: str, *, edges: bool = False) -> None:
        self.file = file
        source = (ROOT / file).read_text()
        visitor = Visitor(EDGES if edges else ALL, NOTHING_IGNORED)
        wrapper = MetadataWrapper(cst.parse_module(source))
        self._module = wrapper.visit(visitor)
        self._spans = wrapper.resolve(ByteSpanPositionProvider)
        self._source = source.encode()
        self._lines = source.splitlines()
        self._function_of = {
            id(node): name
            for name, function in functions_of(self._module)
            for node in _inside(function)
        }
        self._mutations = [one for one in visitor.mutations if not _is_text(one)]

    def __len__(self) -> int:
        return len(self._mutations)

    def __getitem__(self, at: int) -> Mutant:
        mutation = self._mutations[at]
        code = self._mutated(mutation.original_node, mutation.mutated_node)
        line, was, becomes = _difference(self._lines, code.splitlines())
        function = self._function_of.get(id(mutation.original_node), "")
        return Mutant(self.file, function, line, was, becomes, code)

    def _mutated(self, node: cst.CSTNode, replacement: cst.CSTNode) -> str:
        """Return the source with one node replaced: in its text, which takes a hundredth of the
        time, where the node is all of its text.
        """
        place = self._spans[node]
        before, end = self._source[: place.start], place.start + place.length
        if self._source[place.start : end] == self._module.code_for_node(node).encode():
            text = self._module.code_for_node(replacement).encode()
            return (before + text + self._source[end:]).decode()
        mutated = self._module.deep_replace(node, cast(Any, replacement))
        assert isinstance(mutated, cst.Module)
        return mutated.code


def functions_of(module: cst.Module) -> Iterator[tuple[str, cst.FunctionDef]]:
    """Yield the outermost functions and methods of a module with their qualified names."""
    for statement in module.body:
        if isinstance(statement, cst.FunctionDef):
            yield statement.name.value, statement
        elif isinstance(statement, cst.ClassDef):
            for method in statement.body.body:
                if isinstance(method, cst.FunctionDef):
                    yield f"{statement.name.value}.{method.name.value}", method


def _inside(function: cst.FunctionDef) -> Iterator[cst.CSTNode]:
    """Yield what is inside the body of a function."""
    waiting: list[cst.CSTNode] = [function.body]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.children


def _is_text(mutation: Mutation) -> bool:
    """Return whether it changes a sentence: words are read by people, and tested where they are."""
    node = mutation.original_node
    return isinstance(node, cst.SimpleString) and " " in node.value


def _difference(before: list[str], after: list[str]) -> tuple[int, str, str]:
    """Return the first line that differs, and what the lines were and are, on one line each."""
    first = _same(before, after)
    last = _same(before[first:][::-1], after[first:][::-1])
    was, becomes = (lines[first : len(lines) - last] for lines in (before, after))
    number = first + 1 if was or becomes else 0
    return number, " ".join(map(str.strip, was)), " ".join(map(str.strip, becomes))


def _same(before: list[str], after: list[str]) -> int:
    """Return how many lines from the first on are the same."""
    pairs = zip(before, after, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
