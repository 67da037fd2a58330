"""Whatever is typed, a command ends with a result or with a refusal, never as an internal error."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

from flows.cli.main import COMMANDS
from flows.commands.entry import Entry
from flows.commands.signature import Parameter
from tests.cli.test_mend import cardlink
from tests.copies import copy_folder
from tests.operations.test_questions import answered

# they serve until they are stopped, leave the machine, or fill it
NOT_TRIED = {"practice", "practice people", "demo", "install", "job follow", "job watch", "sample"}
TRIED = sorted({entry.name for entry in COMMANDS} - NOT_TRIED)
RUN = "bank-20261110-18112c2a"  # of `answered`
ODD = [
    *(
        "",
        " ",
        "x",
        "ü",
        "\u202e",
        "\n",
        "a\tb",
        "'; drop",
        "*",
        "[",
        "(?P<",
        "%s",
        "{}",
        "a" * 300,
    ),
    *("0", "-1", "1", "7d", "1e9", "nan", "9" * 21, "1000000"),
    *("2026-11-20", "2026-02-30", "0001-01-01", "9999-12-31"),
    *("bank", "Bank", "bank,bank", "bank,other", RUN, f"{RUN}-r2", "bank-20261120-zzzz"),
    *("chunk 1", "RESULT_SHORT", "lost", "c-1", "../../etc/passwd", "file.csv", "folder/file.csv"),
]
# what a parameter of this name, or type, is mostly
USUAL: dict[object, list[str]] = {
    "issuer": ["bank"],
    "run": [RUN],
    "target": [RUN, "bank"],
    "reason": ["the partner said so"],
    int: ["1", "2", "10"],
    date: ["2026-11-10"],
}


@pytest.mark.parametrize(
    ("lines", "seed"),
    [(1, 1), *(pytest.param(20, seed, marks=pytest.mark.slow) for seed in (2, 3))],
)
def test_no_odd_words_end_a_command_as_an_internal_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int, seed: int
) -> None:
    first = tmp_path / "first"
    first.mkdir()
    runs = answered(first)
    monkeypatch.chdir(tmp_path)
    chance = random.Random(seed)

    for name in TRIED * lines:
        folder = tmp_path / "folder"
        copy_folder(first, folder)
        words = [*name.split(), *_words(ENTRIES[name], chance)]
        done = cardlink(folder, *words)
        assert done.exit_code in (0, 2, 3, 4, 75), (words, done.output, done.exception)
        shutil.rmtree(folder)

    assert RUN in runs


ENTRIES: dict[str, Entry[...]] = {entry.name: entry for entry in COMMANDS}


def _words(entry: Entry[...], chance: random.Random) -> Iterator[str]:
    """Yield odd words for the parameters of a command, mostly all arguments and few options."""
    for parameter in entry.parameters:
        is_needed = parameter.argument or parameter.name == "reason"
        if chance.random() > (0.9 if is_needed else 0.3):
            continue
        if not parameter.argument:
            yield parameter.option
        if parameter.type is not bool:
            yield _word(parameter, chance)


def _word(parameter: Parameter, chance: random.Random) -> str:
    usual = USUAL.get(parameter.name) or USUAL.get(parameter.type) or _choices(parameter.type)
    return chance.choice(usual if usual and chance.random() < 0.6 else ODD)


def _choices(kind: Any) -> list[str]:
    return [str(choice) for choice in get_args(kind)] if get_origin(kind) else []
