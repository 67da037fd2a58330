"""Every key of an issuer's TOML explains itself: its example is valid, editors know it, a wrong one
is pointed at.
"""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # its stubs are a package of their own

from flows.configuration import ConfigurationError, load_issuer
from schemas import reference
from schemas.issuer import Issuer
from schemas.reference import BY_NAME, every_key, json_schema, toml

COPYBOOK = """\
01 CARD.
    05 REC-TYPE PIC XX.
    05 NAME PIC X(318).
01 ADDRESS.
    05 REC-TYPE PIC XX.
    05 STREET PIC X(30).
"""
EXAMPLE = reference.example()
EDITOR = Draft202012Validator(json_schema())


@pytest.fixture(autouse=True)
def _copybook(tmp_path: Path) -> None:
    """Write the file that the example names."""
    (tmp_path / "cards.cpy").write_text(COPYBOOK)


def as_json(given: dict[str, Any]) -> Any:
    """Return a TOML's content as editors hold it against a JSON Schema: dates and times as text."""
    return json.loads(json.dumps(given, default=str))


def told(folder: Path, text: str) -> str:
    """Return what is said of a TOML that is wrong."""
    (folder / "first-bank.toml").write_text(text, "utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_issuer(folder, "first-bank")
    return str(caught.value.fields["problems"])


def test_the_example_sets_every_key_and_is_an_issuer() -> None:
    given = tomllib.loads(EXAMPLE)

    issuer = Issuer.model_validate(given)

    assert [] == [one.path for one in every_key() if not one.example or not one.meaning]
    unset = [
        name for name, table in issuer if hasattr(table, "model_fields_set") and name not in given
    ]
    assert [] == unset


def test_an_editor_accepts_the_example_and_knows_every_key() -> None:
    text = json.dumps(json_schema())

    wrong = list(EDITOR.iter_errors(as_json(tomllib.loads(EXAMPLE))))

    assert [] == wrong
    assert [] == [one.path for one in every_key() if f'"{one.name}"' not in text]


@pytest.mark.parametrize("table", sorted({one.table for one in every_key()}))
def test_what_an_editor_and_cardlink_say_of_misspelt_keys_agrees(table: str) -> None:
    given = tomllib.loads(EXAMPLE)
    names = [one.name for one in every_key() if one.table == table]
    for name in names:
        cells = _table_with(given, table, name)
        cells[name + "x"] = copy.deepcopy(cells[name])

    in_editor = "\n".join(one.message for one in EDITOR.iter_errors(as_json(given)))
    with pytest.raises(ValueError, match="not permitted") as caught:
        Issuer.model_validate(given)

    assert [] == [name for name in names if f"{name}x" not in in_editor]
    assert [] == [name for name in names if f"{name}x" not in str(caught.value)]


def _table_with(given: dict[str, Any], table: str, name: str) -> dict[str, Any]:
    """Return a table of the TOML; of those by name, one that has the key."""
    cells = given
    for part in filter(None, table.split(".")):
        cells = cells[part]
    if table not in BY_NAME:
        return cells
    return next(cell for cell in cells.values() if isinstance(cell, dict) and name in cell)


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        (
            'encoding = "cp1252"',
            'encodng = "cp1252"',
            "line #, source.encodng: unknown key; did you mean encoding",
        ),
        (
            "test = true",
            'encoding = "cp1252"',
            "line #, encoding: unknown key; did you mean source.encoding",
        ),
        ("test = true", 'patern = "x"', "line #, patern: unknown key; did you mean source.pattern"),
        ("[limits]", "[limit]", "line #, limit: unknown key; did you mean limits"),
        (
            'quoting = "excel"',
            'quoting = "exel"',
            'takes "doubled", "excel", "backslash"; did you mean "excel"',
        ),
        (
            "width = 320",
            'width = "wide"',
            "line #, source.width: takes number; for example: width = 320",
        ),
        (
            '["mon", "tue", "wed", "thu", "fri"]',
            '["monday"]',
            'schedule.days.0: takes "mon", "tue"',
        ),
        (
            "pad = 5",
            "pda = 5",
            "line #, columns.service_card.address.postal_code.pda: unknown key; did you mean pad",
        ),
        (
            'BRANCH = "ignored"',
            "BRANCH = 1",
            "line #, status.BRANCH",
        ),
        (
            'root = "s3',
            '# root = "s3',
            'root: Field required; for example: root = "s3://first-bank-cards/cardlink"',
        ),
        ("allowed_hosts =", "# allowed_hosts =", "portal.allowed_hosts: Field required"),
        ('"service_card.pan" =', '"service_card.pam" =', "did you mean 'service_card.pan'"),
        (
            "lock_days = 400",
            "lock_days = 0",
            "greater than or equal to 1; for example: lock_days = 400",
        ),
        (
            'time_zone = "America/New_York"',
            'time_zone = "America/New_Yrok"',
            "line #, time_zone: no time zone has this name; one is named as Europe/Berlin",
        ),
        ("s3://first", "s3://me:secret@first", "the file as a whole: root contains credentials"),
        (
            "[service]",
            "[service]\ncolour = 1",
            "line @, service.colour: unknown key; did you mean ",
        ),
        ("strict = true", "strict = yes", "Invalid value (at line #, column 10)"),
        ("strict = true", "strict = true # caf\udce9", "line # is not in UTF-8"),
    ],
)
def test_a_wrong_key_or_value_gets_its_line_and_the_nearest_right_one(
    tmp_path: Path, right: str, wrong: str, sentence: str
) -> None:
    text = EXAMPLE.replace(right, wrong, 1)
    (tmp_path / "first-bank.toml").write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(ConfigurationError) as caught:
        load_issuer(tmp_path, "first-bank")

    line = str(EXAMPLE[: EXAMPLE.index(right)].count("\n") + 1)
    assert (
        sentence.replace("#", line).replace("@", str(int(line) + 1))
        in caught.value.fields["problems"]
    )


def test_everything_that_is_wrong_is_said_at_once_in_the_order_of_the_lines(tmp_path: Path) -> None:
    text = EXAMPLE.replace("width", "widht").replace("cron =", "corn =").replace("pad =", "pda =")

    problems = told(tmp_path, text)

    places = ["source.widht", "columns.service_card.address.postal_code.pda", "schedule.corn"]
    assert sorted(places, key=problems.index) == places


def test_a_wrong_value_is_never_repeated(tmp_path: Path) -> None:
    secrets = (
        'encoding = "hunter2"',
        'owner = "hunter2"',
        'test = "hunter2"',
        'cron = "hunter2"',
        'width = "hunter2"',
    )
    text = EXAMPLE
    for secret in secrets:
        name = secret.partition(" ")[0]
        text = "\n".join(
            secret if line.startswith(f"{name} =") else line for line in text.splitlines()
        )

    problems = told(tmp_path, text)

    assert "hunter2" not in problems
    assert all(
        f"{one}:" in problems for one in ("source.encoding", "store.owner", "test", "schedule.cron")
    )


def test_a_toml_that_begins_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "first-bank.toml").write_text(EXAMPLE, "utf-8-sig")

    issuer = load_issuer(tmp_path, "first-bank")

    assert "first-bank" == issuer.issuer


VALUES = st.recursive(
    st.text(st.characters(exclude_categories=["Cs"])) | st.booleans() | st.integers(-9, 9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="ascii")), inner)
    ),
    max_leaves=5,
)


@given(VALUES)
def test_a_value_is_read_as_it_was_written(value: Any) -> None:
    written = f"x = {toml(value)}"

    assert {"x": value} == tomllib.loads(written)
