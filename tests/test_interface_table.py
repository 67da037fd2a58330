"""`tests/INTERFACE.md` says of every section of the interface which tests show it, and how a user
reaches it; here it is held to them, and to the commands, settings and questions that it names.
"""

from __future__ import annotations

import ast
import re
import shlex
from itertools import chain
from pathlib import Path

import pytest

from flows.cli.main import command_of
from schemas.reference import every_key, tables
from tests.interface_table import Statement, sections
from tests.mentions import ENTRIES

TESTS = Path(__file__).parent
SECTIONS = ("1", *(f"2.{part}" for part in range(1, 11)), "3", "4", "5", "6", "7", "8", "9")
# Numbered rules and facts, by section, as the interface has them.
RULES = {"2.1": 4, "2.4": 4, "3": 3, "4": 3, "5": 3, "7": 3, "9": 2}
# The questions by which the interface's "not shown" is asked, by the section that says it.
NOT_SHOWN = {
    "2.2": {"record-fields"},
    "2.3": {"statuses"},
    "2.9": {"record-fields"},
    "3": {"transitions"},
    "4": {"envelopes", "posted-answers", "access-key", "job-hydration", "link-path"},
    "2.8": {"institution-keys", "card-reference"},
    "5": {"session", "signing"},
    "6": {"push"},
    "7": {"errors"},
    "8": {"rate-limit"},
    "9": {"versions"},
}
STATEMENTS = [statement for _, statements in sections().values() for statement in statements]


def names_in(path: Path) -> set[str]:
    """Return the tests of a file, those of classes included."""
    tree = ast.walk(ast.parse(path.read_text("utf-8")))
    return {one.name for one in tree if isinstance(one, ast.FunctionDef | ast.ClassDef)}


def questions() -> set[str]:
    """Return the names of the questions to the partner."""
    page = TESTS.parent / "deploy/INTERFACE_QUESTIONS.md"
    return set(re.findall(r"^\| `([a-z-]+)` \|", page.read_text("utf-8"), re.MULTILINE))


def unknown_words(line: str) -> list[str]:
    """Return what a command line has that its command does not take; all of it for no command."""
    program, *words = shlex.split(line)
    names = [" ".join(words[:length]) for length in (2, 1)]
    name = next((name for name in names if name in ENTRIES), None)
    if program != "cardlink" or name is None:
        return [line]
    options = set(chain.from_iterable(each.opts for each in command_of(ENTRIES[name]).params))
    return [word for word in words if word.startswith("--") and word not in options]


def test_every_section_of_the_interface_has_its_lines_and_every_line_its_tests() -> None:
    assert list(SECTIONS) == list(sections())
    assert [] == [statement.what for statement in STATEMENTS if not statement.tests]


def test_every_numbered_rule_of_the_interface_has_a_line() -> None:
    table = sections()

    missing = [
        f"{section}, rule {number}"
        for section, last in RULES.items()
        for number in range(1, last + 1)
        if not any(re.match(rf"(rule|fact) {number}:", row.what) for row in table[section][1])
    ]
    assert missing == []


def test_every_test_of_the_table_is_one_there_is() -> None:
    named = {one for statement in STATEMENTS for one in statement.tests}

    there = {path: names_in(TESTS / path) for path in {one.partition("::")[0] for one in named}}

    assert [
        one for one in sorted(named) if one.partition("::")[2] not in there[one.partition("::")[0]]
    ] == []


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.what[:40])
def test_every_statement_says_what_to_type_in_commands_and_settings_there_are(
    statement: Statement,
) -> None:
    known = {key.path for key in every_key()} | tables().keys()

    assert statement.commands
    assert [] == [*chain.from_iterable(unknown_words(line) for line in statement.commands)]
    assert [] == [name for name in statement.setting_names if name not in known]
    assert set() == set(statement.question_names) - questions()


def test_what_the_interface_does_not_show_is_a_question_beside_its_statement() -> None:
    table = sections()

    unasked = {
        section: names - {name for row in table[section][1] for name in row.question_names}
        for section, names in NOT_SHOWN.items()
    }

    assert {} == {section: names for section, names in unasked.items() if names}


def test_what_is_no_command_or_option_would_be_noticed() -> None:
    assert ["cardlink jobs watch"] == unknown_words("cardlink jobs watch")
    assert ["--nothing"] == unknown_words("cardlink job watch ISSUER JOB --nothing")
    assert [] == unknown_words("cardlink link RUN ROW --expires 60d")
