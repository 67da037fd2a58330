"""Hold the product to statements that a reader can unpack at first reading; part of `make check`.

Complexity counts the branches within expressions too, so that none can be hidden in one. The width
of a line is judged by ruff (`line-length`).
"""

import ast
import re
import sys
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import lizard

# options that users type, and fields of forms
PUBLIC: Final = {
    ("flows/extensions/partner_api/commands.py", "again"),
    ("flows/runs/journal.py", "what"),  # as the columns of the table are called
}

FOLDERS: Final = ("flows", "schemas")
HARD: Final = 10  # complexity above which a function is hard to unpack
HARD_IN_A_THOUSAND: Final = 20  # functions that may be
WORST: Final = 20  # complexity that no function may exceed
# They do not say what a thing is. Fields of records keep the names under which they are stored.
VAGUE: Final = re.compile(
    r"^(one|found|mine|ours|alike|asked|said|told|made|given|again|at|what|how|here|rest|wanted)$"
)
UNFORMATTED: Final = re.compile(
    r"^\s*[^\s)\]}].*# fmt: skip"
)  # and it is not a bracket that closes
COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Finding(NamedTuple):
    """A place that is hard to unpack, and why."""

    path: Path
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.why}"


def findings(folders: Collection[Path]) -> list[Finding]:
    """Return what is hard to unpack in the Python files below some folders."""
    paths = sorted(chain.from_iterable(folder.rglob("*.py") for folder in folders))
    return [*_complex_functions(paths), *chain.from_iterable(map(_in_file, paths))]


def _complex_functions(paths: Collection[Path]) -> list[Finding]:
    """Return the functions above the limit; where too many are hard, all hard ones."""
    files = [lizard.analyze_file(str(path)) for path in paths]
    functions = list(chain.from_iterable(file.function_list for file in files))
    hard = [function for function in functions if function.cyclomatic_complexity > HARD]
    too_many = 1000 * len(hard) > HARD_IN_A_THOUSAND * len(functions)
    limit = HARD if too_many else WORST
    return [
        Finding(
            Path(function.filename),
            function.start_line,
            f"{function.name} has a complexity of {function.cyclomatic_complexity}",
        )
        for function in hard
        if function.cyclomatic_complexity > limit
    ]


def _in_file(path: Path) -> Iterator[Finding]:
    text = path.read_text()
    for number, line in enumerate(text.splitlines(), 1):
        if UNFORMATTED.search(line):
            yield Finding(path, number, "`fmt: skip` belongs to the bracket that closes a table")
    nodes = list(ast.walk(ast.parse(text)))
    fields = {id(node.target) for node in nodes if isinstance(node, ast.AnnAssign)}
    for node in nodes:
        line_number = getattr(node, "lineno", 1)
        for why in _reasons(node):
            yield Finding(path, line_number, why)
        name = _bound_name(node)
        if VAGUE.match(name) and id(node) not in fields and not _is_public(path, name):
            yield Finding(path, line_number, f"`{name}` does not say what it is")


def _reasons(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.IfExp() if _holds(ast.iter_child_nodes(node), (ast.IfExp,)):
            yield "a conditional expression within another"
        case ast.Assign(targets=[ast.Tuple()], value=ast.Tuple()):
            yield "values of their own assigned in one statement"
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            if len(node.generators) > 1 or _holds(node.generators, COMPREHENSIONS):
                yield "a comprehension within another"


def _holds(nodes: Iterator[ast.AST] | list[ast.comprehension], kinds: tuple[type, ...]) -> bool:
    """Return whether one of these kinds of node is anywhere within these nodes."""
    within = chain.from_iterable(map(ast.walk, nodes))
    return any(isinstance(node, kinds) for node in within)


def _is_public(path: Path, name: str) -> bool:
    return any(path.match(file) and name == known for file, known in PUBLIC)


def _bound_name(node: ast.AST) -> str:
    """Return the name that a node binds, or an empty text."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
    return ""


def main() -> int:
    """Print the findings and return the exit code: 1 where there are any."""
    places = findings([Path(folder) for folder in FOLDERS])
    for finding in places:
        print(finding)
    return 1 if places else 0


if __name__ == "__main__":
    sys.exit(main())
