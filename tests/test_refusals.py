"""Whoever obeys a refusal harms nothing, and gets on: each line that it shows is pasted on the store
where it was refused, and what it shows of options is tried with the refused line.
"""

from __future__ import annotations

import ast
import re
import shlex
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

import polars as pl
import pytest

from flows.adapters.local import LocalStore
from flows.book.book import read_book
from flows.commands.entry import Entry
from flows.commands.result import Result
from flows.database.connection import Database
from flows.errors import CardlinkError
from flows.runs.adapters import Adapters
from flows.steps import Option, Sentence, Step
from flows.wiring import now
from schemas.ledger import AWAITING, LINKED
from tests import mentions
from tests.copies import copy_folder
from tests.refusals import CASES, ELSEWHERE, INSTEAD, SLOW
from tests.refused import Refusal, typed

# every line that they show is refused for another reason, which shows the way on
ON_TO_ANOTHER = {"SettingsChangedError"}


def named(case: str) -> str:
    """Return the error of a case."""
    return case.partition(": ")[0]


def place_of(case: str) -> str:
    """Return the function that raises the error of a case, "" where it has only one case."""
    _, place, *_ = f"{case}: : ".split(": ")
    return place


def shown_by_classes() -> set[str]:
    """Return the errors whose class shows a command line or an option."""
    mentions.modules()
    return {
        kind.__name__
        for kind in mentions.errors()
        if any(isinstance(mention, Step | Option) for mention in mentions.mentions_in(kind))
    }


def shown_by_raising() -> set[str]:
    """Return the errors that are raised with a step in one of their fields."""
    mentions.modules()
    texts = (file.read_text("utf-8") for file in (mentions.ROOT / "flows").rglob("*.py"))
    return {
        call.func.id
        for text in texts
        if re.search(r"Error\((?s:.{0,400}?)[sS]tep\(", text)
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if call.func.id.endswith("Error") and any(map(_is_step, call.keywords))
    }


def _is_step(keyword: ast.keyword) -> bool:
    """Return whether a field is filled with a step, made by a function of that name."""
    value = keyword.value
    return isinstance(value, ast.Call) and ast.unparse(value.func).lower().endswith("step")


def test_every_error_that_shows_a_command_line_has_a_case() -> None:
    shown = shown_by_classes() | shown_by_raising()

    assert set() == shown - ELSEWHERE.keys() - set(map(named, CASES))
    assert set() == ELSEWHERE.keys() - shown


@pytest.mark.parametrize("error", ELSEWHERE)
def test_what_other_tests_try_is_in_their_file(error: str) -> None:
    elsewhere = ELSEWHERE[error]

    text = (Path(__file__).parent / elsewhere.file).read_text("utf-8")

    assert (elsewhere.shown or error) in text


def test_each_function_that_finds_nothing_of_a_name_has_a_case() -> None:
    functions = {place for place in map(place_of, CASES) if place}

    assert set() == set(raising("NotFoundError")) - functions


def raising(error: str) -> Iterator[str]:
    """Yield the functions that raise an error, each behind its module."""
    for file in (mentions.ROOT / "flows").rglob("*.py"):
        text = file.read_text("utf-8")
        if f"{error}(" in text:
            for function in _functions(ast.parse(text)):
                if any(_raised(function, error)):
                    yield f"{file.stem}.{function.name}"


def _functions(module: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the functions of a module and of its classes; those within others are part of these."""
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    for node in chain(module.body, *(each.body for each in classes)):
        if isinstance(node, ast.FunctionDef):
            yield node


def _raised(function: ast.FunctionDef, error: str) -> Iterator[bool]:
    """Yield for each `raise` of a function whether it raises that error."""
    for node in ast.walk(function):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield ast.unparse(node.exc.func).rpartition(".")[2] == error


def raised_by(error: BaseException) -> str:
    """Return the function that raised an error, behind its module."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    function = frame.f_code.co_qualname.partition(".<locals>")[0].rpartition(".")[2]
    return f"{Path(frame.f_code.co_filename).stem}.{function}"


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if case in SLOW else []) for case in CASES],
)
def test_whoever_obeys_a_refusal_harms_nothing_and_gets_on(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = tmp_path / "first"
    first.mkdir()
    refusal = CASES[case](first)
    error = refusal.error or ended(first, refusal.line, refusal)
    assert isinstance(error, CardlinkError), error
    assert named(case) == type(error).__name__, str(error)
    assert not place_of(case) or place_of(case) == raised_by(error)
    before = standing(first)

    ends = dict[str, Result | BaseException]()
    for number, line in enumerate(shown(refusal, error)):
        folder = tmp_path / str(number)
        copy_folder(first, folder)
        ends[line] = end = ended(folder, line.replace(str(first), str(folder)), refusal)
        assert not isinstance(end, type(error)), line
        assert is_reading(line) or not is_shown_only(case), line
        assert "--override" in line or not sent_again(before, standing(folder)), line
        if isinstance(end, Result) and is_way_back(line, refusal, case):
            again = ended(folder, refusal.line.replace(str(first), str(folder)), refusal)
            assert not isinstance(again, type(error)), line

    assert any(isinstance(end, Result) for end in ends.values()) or case in ON_TO_ANOTHER, ends


def is_way_back(line: str, refusal: Refusal, case: str) -> bool:
    """Return whether the refused line should pass once this one is obeyed."""
    entry = entry_of(line)
    is_instead = entry is entry_of(refusal.line) or entry.name == "dismiss"
    return not (is_reading(line) or is_instead or named(case) in INSTEAD)


def is_reading(line: str) -> bool:
    """Return whether a line changes nothing."""
    return not entry_of(line).changes or " --dry-run" in line


def is_shown_only(case: str) -> bool:
    """Return whether a refusal shows its lines as those that only show something."""
    return INSTEAD.get(named(case)) == "shows what there is"


def entry_of(line: str) -> Entry[...]:
    """Return the entry of a line."""
    _, first, second, *_ = shlex.split(f"{line} - -")
    entries = mentions.ENTRIES
    return entries.get(f"{first} {second}") or entries[first]


def shown(refusal: Refusal, error: CardlinkError) -> Iterator[str]:
    """Yield the lines that a refusal shows, and the refused line as it says to complete it."""
    yield from map(str, error.text.steps)
    for option in options(error.text):
        line = refusal.line if option.of in ("", entry_of(refusal.line).name) else refusal.other
        if line and mentions.option_of(entry_of(line), option.name):
            yield completed(line, option, refusal.words)


def options(sentence: Sentence) -> Iterator[Option]:
    """Yield the options that a sentence shows."""
    for value in sentence.values.values():
        if isinstance(value, Sentence):
            yield from options(value)
        elif isinstance(value, Option):
            yield value


def completed(line: str, option: Option, values: Mapping[str, str]) -> str:
    """Return a line with an option more, with another value of it, or without it."""
    words = shlex.split(line)
    name = option.name
    parameter = mentions.option_of(entry_of(line), name)
    is_flag = parameter is not None and parameter.type is bool
    value = values.get(name.removeprefix("--"), str(option.value))
    if name in words:
        place = words.index(name)
        del words[place : place + (1 if is_flag else 2)]
        return shlex.join([*words, name, value] if value else words)
    return " ".join([line, name, value]).rstrip()


def ended(folder: Path, line: str, refusal: Refusal) -> Result | BaseException:
    """Return what a line comes to; where it asks for a second person, there is one."""
    try:
        result = typed(folder, line, refusal.words, refusal.actor)
        if "request" in result.facts:
            second = {**refusal.words, "YOUR_NAME": "bert"}
            result = typed(folder, str(result.next_step), second, "bert")
    except (CardlinkError, KeyboardInterrupt) as end:
        return end
    return result


def standing(folder: Path) -> Counter[str]:
    """Return how often each cardholder was sent and not refused by the partner."""
    outside = Adapters(LocalStore(folder / "store"), now, "tester", Database("sqlite://"))
    book = read_book(outside, "bank")
    return Counter(book.attempts.filter(pl.col("state").is_in([AWAITING, LINKED]))["cuid"])


def sent_again(before: Counter[str], after: Counter[str]) -> Counter[str]:
    """Return whose card is sent more often than before and than once."""
    more = after - before
    return Counter({cuid: after[cuid] for cuid in more if after[cuid] > 1})
