"""Whatever a key of the settings says, a command ends with a result or with a refusal."""

from __future__ import annotations

import json
import random
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, time
from pathlib import Path
from typing import Any

import pytest

from schemas import reference
from tests.cli.test_mend import cardlink
from tests.copies import copy_folder
from tests.operations.test_questions import answered

ODD: list[Any] = [
    *("", " ", "x", "\u202e", "a" * 300, "../../etc", "(", "(?P<a>", "[", "%", "\n", "\\", ";;"),
    *("s3://", "s3://x/y", "http://", "https://h/x", "2026-02-30", "99 99 * * *", "Mars/Phobos"),
    *("utf-99", "cp037", 0, -1, 1, 10**18, 1.5, float("nan"), float("inf"), True, False),
    *([], ["x"], [1], [""], [[1]], ["x"] * 50, {}, {"x": "y"}, {"": ""}),
]
LINES = (
    "check bank",
    "check bank bank-20261110.csv",
    "submit bank",
    "ingest bank",
    "worklist bank",
    "deliver bank",
)
FIXED = ("root", "portal.fingerprints")  # where the store is, and a key that is there
Key = tuple[str, ...]


@pytest.mark.parametrize(
    ("number", "seed"),
    [(3, 1), *(pytest.param(150, seed, marks=pytest.mark.slow) for seed in (2, 3))],
)
def test_no_odd_setting_ends_a_command_as_an_internal_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, seed: int
) -> None:
    first = tmp_path / "first"
    first.mkdir()
    answered(first)
    monkeypatch.chdir(tmp_path)
    settings = dict(leaves(tomllib.loads((first / "bank.toml").read_text())))
    keys = {key: value for key, value in keys_of_example().items() if ".".join(key) not in FIXED}
    chance = random.Random(seed)

    for _ in range(number):
        changed = {
            key: chance.choice(ODD) if chance.random() < 0.75 else keys[key]
            for key in chance.sample([*keys], chance.choice([1, 1, 1, 2, 3]))
        }
        folder = tmp_path / "folder"
        copy_folder(first, folder)
        (folder / "bank.toml").write_text(toml({**settings, **changed}))
        for line in LINES:
            done = cardlink(folder, *line.split())
            assert done.exit_code in (0, 2, 3, 4, 75), (changed, line, done.output, done.exception)
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("columns", ["x"]),
        ('columns."service_card.expiration_year".from', []),
        ('columns."service_card.pan".at', [[1]]),
    ],
)
def test_a_mapping_that_is_none_is_named_with_its_line(
    tmp_path: Path, key: str, value: list[Any]
) -> None:
    answered(tmp_path)
    file = tmp_path / "bank.toml"
    file.write_text(f"{key} = {value}\n{file.read_text()}")

    done = cardlink(tmp_path, "check", "bank")

    assert 2 == done.exit_code
    assert "line 1, " + key.replace('"', "") in done.stdout


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ('columns."service_card.pan".at', [1, 16], "`at`, which is for format = 'fixed'"),
        ('columns."service_card.pan"', "CARD_NO", "; CARD_NO (nearest: "),
        ("status.CARD_STATE.send", ["A"], "no column CARD_STATE"),
    ],
)
def test_check_names_a_column_that_an_extract_does_not_have_though_it_was_committed(
    tmp_path: Path, key: str, value: Any, named: str
) -> None:
    answered(tmp_path)
    file = tmp_path / "bank.toml"
    file.write_text(f"{key} = {value!r}\n{file.read_text()}")

    done = cardlink(tmp_path, "check", "bank", "bank-20261110.csv")

    [mapping] = [line for line in done.stdout.splitlines() if line.startswith("mapping")]
    assert (2, True) == (done.exit_code, "WRONG" in mapping)
    assert named in mapping


def keys_of_example() -> dict[Key, Any]:
    """Return every key that there is, with its example: tables too."""
    example = tomllib.loads(reference.example())
    return {**dict(leaves(example)), **{(name,): value for name, value in example.items()}}


def leaves(table: Mapping[str, Any], above: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Yield the keys of a table and of those in it, with their values."""
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*above, name))
        else:
            yield (*above, name), value


def toml(settings: Mapping[Key, Any]) -> str:
    """Return settings as TOML, a line each; a key that is within another one is left out."""
    kept = {
        key: value
        for key, value in settings.items()
        if not any(key[:end] in settings for end in range(1, len(key)))
    }
    return "".join(f"{'.'.join(map(json.dumps, key))} = {_inline(kept[key])}\n" for key in kept)


def _inline(value: Any) -> str:
    match value:
        case dict():
            pairs = (f"{json.dumps(name)} = {_inline(part)}" for name, part in value.items())
            return "{" + ", ".join(pairs) + "}"
        case list():
            return "[" + ", ".join(map(_inline, value)) + "]"
        case float():
            return str(value)
        case date() | time():
            return value.isoformat()
        case _:
            return json.dumps(value)
