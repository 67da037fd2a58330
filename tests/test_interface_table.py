"""`tests/INTERFACE.md` says of every section of the interface which tests show it; here it is held
to them.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
SECTIONS = ("1", *(f"2.{part}" for part in range(1, 11)), "3", "4", "5", "6", "7", "8", "9")
# Numbered rules and facts, by section, as the interface has them.
RULES = {"2.1": 4, "2.4": 4, "3": 3, "4": 3, "5": 3, "7": 3, "9": 2}


def sections() -> dict[str, list[tuple[str, list[str]]]]:
    """Return what is said of each section, and by which tests (`path::name`) it is shown."""
    found: dict[str, list[tuple[str, list[str]]]] = {}
    for part in re.split(r"^## ", (TESTS / "INTERFACE.md").read_text("utf-8"), flags=re.MULTILINE)[
        1:
    ]:
        number = part.split(" ", 1)[0].rstrip(".")
        lines = [line for line in part.splitlines() if line.startswith("| ")][1:]
        cells = [line.strip("| ").rsplit(" | ", 1) for line in lines]
        found[number] = [(what, re.findall(r"`([^`]+::[^`]+)`", shown)) for what, shown in cells]
    return found


def names_in(path: Path) -> set[str]:
    """Return the tests of a file, those of classes included."""
    tree = ast.walk(ast.parse(path.read_text("utf-8")))
    return {one.name for one in tree if isinstance(one, ast.FunctionDef | ast.ClassDef)}


def test_every_section_of_the_interface_has_its_lines_and_every_line_its_tests() -> None:
    table = sections()

    assert list(SECTIONS) == list(table)
    assert [what for lines in table.values() for what, shown in lines if not shown] == []


def test_every_numbered_rule_of_the_interface_has_a_line() -> None:
    table = sections()

    missing = [
        f"{section}, rule {number}"
        for section, last in RULES.items()
        for number in range(1, last + 1)
        if not any(re.match(rf"(rule|fact) {number}:", what) for what, _ in table[section])
    ]
    assert missing == []


def test_every_test_of_the_table_is_one_there_is() -> None:
    named = {one for lines in sections().values() for _, shown in lines for one in shown}

    there = {path: names_in(TESTS / path) for path in {one.partition("::")[0] for one in named}}

    assert [
        one for one in sorted(named) if one.partition("::")[2] not in there[one.partition("::")[0]]
    ] == []
