"""What `make check` says of statements that are hard to unpack; it also holds the product to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shape import findings

BRANCHES = "    if value:\n        value -= 1\n"


def reasons_in(text: str, folder: Path) -> list[str]:
    (folder / "module.py").write_text(text)
    return [finding.why for finding in findings([folder])]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1 if a else 2 if b else 3", "a conditional expression within another"),
        ("x, y = 1, 2", "values of their own assigned in one statement"),
        ("x = [b for a in c for b in a]", "a comprehension within another"),
        ("x = {a for a in [b for b in c]}", "a comprehension within another"),
        ("for one in names:\n    pass", "`one` does not say what it is"),
        ("def look(what):\n    pass", "`what` does not say what it is"),
        ("x = [1]  # fmt: skip", "`fmt: skip` belongs to the bracket that closes a table"),
        (f"def count(value):\n{BRANCHES * 20}", "count has a complexity of 21"),
        (f"def count(value):\n{BRANCHES * 10}", "count has a complexity of 11"),
    ],
)
def test_a_statement_that_is_hard_to_unpack_is_named(text: str, why: str, tmp_path: Path) -> None:
    assert [why] == reasons_in(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "x = 1 if a else 2",
        "x, y = pair()",
        "x = [b for b in c if b]",
        "class Row(NamedTuple):\n    at: int",
        "TABLE = (\n    1, 2,\n)  # fmt: skip",
        f"def count(value):\n{BRANCHES * 9}",
    ],
)
def test_a_plain_statement_passes(text: str, tmp_path: Path) -> None:
    assert [] == reasons_in(text, tmp_path)


def test_a_branch_within_an_expression_counts_as_one(tmp_path: Path) -> None:
    text = "def count(value):\n    return value" + " and value" * 20

    assert ["count has a complexity of 21"] == reasons_in(text, tmp_path)


def test_some_hard_functions_are_let_pass_among_many(tmp_path: Path) -> None:
    plain = "".join(f"def plain{number}():\n    pass\n" for number in range(60))

    assert [] == reasons_in(f"{plain}def hard(value):\n{BRANCHES * 11}", tmp_path)
