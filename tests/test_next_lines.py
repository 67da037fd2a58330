"""Every command that cardlink shows or its pages name is one that the command line takes as it
is.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import click
import pytest
import yaml

from flows import steps
from flows.cli import shared_options
from flows.cli.main import main
from flows.commands.context import Context
from flows.commands.entry import PlaceholderError
from flows.commands.signature import REQUIRED, Parameter
from flows.errors import sentence_of
from flows.steps import CommandName, Mention, Option, Slot, Step
from tests import keys, mentions
from tests.mentions import ENTRIES, ROOT, refused
from tests.test_command_line import TOML

PAGES = [
    ROOT / "README.md",
    *sorted({*(ROOT / "deploy").glob("*.md")} - {ROOT / "deploy" / "COMMANDS.md"}),
]
QUOTED = re.compile(r"`cardlink ((?:--config \S+ |--json )?[a-z][^`\n]*)`")
PLAIN = re.compile(rf"\bcardlink (?:{'|'.join(main.commands)})\b")
GROUPS = {name: group for name, group in main.commands.items() if isinstance(group, click.Group)}
NAMES = {
    *" ".join(main.commands).split(),
    *(name for group in GROUPS.values() for name in group.commands),
}
# help of settings, which names commands in passing
HELP = {"flows/extensions/partner_api/settings.py"}


def bare(line: str) -> bool:
    """Return whether a line only names a command."""
    return set(line.split()) <= NAMES


def refused_line(line: str, *, named: bool = False) -> str:
    examples = {"ROW": "1", "N": "1", "VERSION": "0.1.0"}
    words = [examples.get(word, word) for word in shlex.split(line, comments=True)]
    return refused(words, named=named)


def refused_mention(mention: Mention) -> str:
    """Return what is wrong with a mention: the command line would not take it."""
    match mention:
        case Step():
            return refused(mentions.typed(mention))
        case CommandName():
            return "" if mention.entry in ENTRIES else f"no command {mention.entry}"
        case Option():
            entries = [ENTRIES[mention.of]] if mention.of else [*ENTRIES.values()]
            options = {parameter.option for entry in entries for parameter in entry.parameters}
            common = {option for shared in shared_options.options() for option in shared.opts}
            known = mention.name in options | common
            return "" if known else f"no option {mention.name} of {mention.of or 'any command'}"
    return ""


def literals(file: Path) -> Iterator[str]:
    """Yield the texts of a module that are neither docstrings nor the name of a mention."""
    tree = ast.parse(file.read_text("utf-8"))
    silent = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in silent
        ):
            yield node.value


def wrong_in(found: list[Mention]) -> list[str]:
    return [problem for mention in found if (problem := refused_mention(mention))]


def entries_in(found: list[Mention]) -> set[str]:
    return {mention.entry for mention in found if isinstance(mention, Step)}


def test_every_command_has_examples_that_the_command_line_takes() -> None:
    examples = {name: entry.examples for name, entry in ENTRIES.items()}

    wrong = [refused_line(line.removeprefix("cardlink ")) for line in chain(*examples.values())]

    assert [] == [name for name, lines in examples.items() if not lines]
    assert [] == [name for name, [line, *_] in examples.items() if f"cardlink {name}" not in line]
    assert "" == "".join(wrong)


def test_every_next_step_of_an_error_or_a_table_is_taken_by_the_command_line() -> None:
    found = mentions.of_tables()

    assert [] == wrong_in(found)
    assert len(found) > 50
    assert {"outbox cancel", "upload", "corrections", "purge"} <= entries_in(found)


def test_every_next_step_that_the_code_makes_is_taken_by_the_command_line() -> None:
    found = mentions.of_source()

    assert [] == wrong_in(found)
    assert len(found) > 100
    assert {"dismiss", "mend close", "mend reseal", "worklist", "deliver"} <= entries_in(found)


def test_a_step_that_no_command_takes_is_noticed() -> None:
    wrong: list[Mention] = [
        Step("submit", "bank", colour="red"),
        Step("trace"),
        Step("mend close", "run", "RESULT_SHORT", decision="tidy", reason=steps.WHY),
        CommandName("tidy"),
        Option("--colour"),
        Option("--within", of="submit"),
    ]

    assert len(wrong) == len(wrong_in(wrong))
    assert [] == wrong_in([Step("link", steps.RUN, Slot("row")), Option("--config")])


def test_every_placeholder_has_an_example_that_is_tried() -> None:
    assert steps.PLACEHOLDERS.keys() == mentions.REPLACED.keys()


def as_printed(step: Step) -> list[str]:
    """Return the words of a step, its placeholders as they are printed."""
    words = mentions.typed(step)
    for name in step.placeholders:
        words = [name if word == mentions.REPLACED[name] else word for word in words]
    return words


@pytest.mark.parametrize("find", [mentions.of_tables, mentions.of_source])
def test_every_next_step_is_refused_for_its_placeholder_when_it_is_pasted_as_printed(
    find: Callable[[], list[Mention]], tmp_path: Path
) -> None:
    printed = [step for step in find() if isinstance(step, Step) and step.placeholders]

    taken = list[str]()
    for step in printed:
        try:
            command = mentions.parsed(as_printed(step))
            ENTRIES[step.entry].invoke(Context(tmp_path), command.params)
        except (PlaceholderError, click.BadParameter):  # which refuses a number in capitals
            continue
        taken.append(str(step))

    assert [] == taken
    assert len(printed) > 15


@pytest.mark.parametrize("name", ENTRIES)
def test_no_text_of_a_command_or_form_can_be_a_placeholder(name: str, tmp_path: Path) -> None:
    entry = ENTRIES[name]
    own = [one for one in entry.parameters if one.name not in ("actor", "approve")]
    needed = {
        one.name: valued(one, mentions.example(Slot(""), one)) for one in own if is_needed(one)
    }
    texts = [one for one in entry.parameters if one.type in (str, Path)]

    taken = list[tuple[str, str]]()
    for parameter in texts:
        for word in steps.PLACEHOLDERS:
            values = {**needed, parameter.name: valued(parameter, word)}
            try:
                entry.invoke(Context(tmp_path), values)
            except PlaceholderError:
                continue
            taken.append((parameter.option, word))

    assert [] == taken


def is_needed(parameter: Parameter) -> bool:
    return parameter.default is REQUIRED and not parameter.many


def valued(parameter: Parameter, text: str) -> object:
    value: object = parameter.type(text) if parameter.type in (Path, int) else text
    return (value,) if parameter.many else value


@pytest.mark.parametrize(
    ("text", "any_case", "expected"),
    [
        ("WHY", False, True),
        (" WHY ", False, True),
        ("'WHY'", False, True),
        ("\u201cWHY\u201d", False, True),
        ("[RUN]", False, True),
        ("WHY?", False, True),
        ("why", True, True),
        ("Reason.", True, True),
        ("why", False, False),  # such as a folder, or an issuer
        ("WHY they asked", True, False),
        ("", True, False),
    ],
)
def test_a_placeholder_is_known_whatever_is_around_it(
    text: str, any_case: bool, expected: bool
) -> None:
    actual = steps.is_placeholder(text, any_case=any_case)

    assert expected == actual


def test_one_placeholder_among_several_issuers_refuses_the_command_for_all(tmp_path: Path) -> None:
    with pytest.raises(PlaceholderError) as refused:
        ENTRIES["purge"].invoke(Context(tmp_path), {"issuer": "bank,ISSUER"})

    assert str(refused.value).startswith("ISSUER is ISSUER, a placeholder")


def test_what_is_put_in_the_place_of_a_placeholder_can_have_blanks() -> None:
    line = str(Step("mend give-up", "bank", cuid="c 1", reason=steps.WHY))

    words = shlex.split(line.replace("WHY", "as they asked"))

    assert ["--cuid", "c 1", "--reason", "as they asked"] == words[4:]


def test_no_text_of_the_code_spells_a_command_line_out() -> None:
    files = [*(ROOT / "flows").rglob("*.py"), *(ROOT / "schemas").rglob("*.py")]
    pages = (ROOT / "flows").rglob("templates/*.html")

    spelled = [
        (file.name, text)
        for file in files
        if str(file.relative_to(ROOT)) not in HELP
        for text in literals(file)
        if PLAIN.search(text)
    ]

    assert [] == spelled
    assert [] == [page.name for page in pages if PLAIN.search(page.read_text("utf-8"))]


def test_no_error_spells_an_option_or_the_same_command_out() -> None:
    mentions.modules()
    options = {parameter.option for entry in ENTRIES.values() for parameter in entry.parameters}
    spelled = {"same command", "--config", *(option for option in options if option[:2] == "--")}

    templates = {kind.__name__: sentence_of(kind).template for kind in mentions.errors()}

    assert [] == [
        (name, word)
        for name, template in templates.items()
        for word in spelled
        if re.search(rf"(?<![\w-]){word}(?![\w-])", template, re.IGNORECASE)
    ]


@pytest.mark.slow
def test_a_night_goes_through_when_every_next_line_is_pasted_into_a_shell(tmp_path: Path) -> None:
    issuers, desk = tmp_path / "the issuers", tmp_path / "desk"
    for folder in (issuers / "store" / "bank" / "extracts", desk, tmp_path / "bin"):
        folder.mkdir(parents=True)
    (issuers / "bank.toml").write_text(TOML.format(fingerprint=keys.sound().fingerprint))
    (issuers / "portal.asc").write_bytes(keys.sound().public)
    (tmp_path / "secret.asc").write_bytes(keys.sound().secret)
    code = "from flows.cli.__main__ import run; run()"
    started = shlex.join([sys.executable, "-c", code])
    (tmp_path / "bin" / "cardlink").write_text(f'#!/bin/sh\nexec {started} "$@"\n')
    (tmp_path / "bin" / "cardlink").chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    pasted, printed = list[str](), list[str]()

    def paste(printed_line: str) -> str:
        pasted.append(printed_line)
        line = printed_line
        for word, value in mentions.REPLACED.items():
            line = line.replace(f'"{word}"', shlex.quote(value))
        done = subprocess.run(
            ["sh", "-c", line], cwd=desk, env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode in (0, 3), f"{line}\n{done.stdout}{done.stderr}"
        printed.append(done.stdout)
        return next(
            (said[6:] for said in done.stderr.splitlines() if said.startswith("next: ")), ""
        )

    def walk(line: str, last: str) -> str:
        while last not in line:
            line = paste(line)
            assert line, f"no next line: {pasted}"
        return line

    begin = f"cardlink --config {shlex.quote(str(issuers))} "
    extract = issuers / "store" / "bank" / "extracts" / "bank-20261120.csv"
    paste(f"cardlink sample {shlex.quote(str(extract))} --rows 60 --bad 0.1 --date 2026-11-20")
    ingest = walk(f"{begin}submit bank", "ingest bank")
    paste(
        f"{begin}simulate bank --secret-key {shlex.quote(str(tmp_path / 'secret.asc'))} --fail 0.2"
    )
    status = paste(ingest)
    paste(status)
    firsts = re.findall("first: (.* resubmit .*)", printed[-1])
    again = walk(firsts[0], "upload")
    paste(f"{begin}reconcile")

    assert all(line.startswith(begin) for line in (ingest, status, *firsts, again))
    copied = f'{begin}upload bank --to "FOLDER"'
    assert [copied, f"{copied} --done"] == [line for line in pasted if " upload " in line]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_can_be_typed(page: Path) -> None:
    text = page.read_text("utf-8")
    for one in yaml.safe_load((ROOT / "deploy" / "automations.yaml").read_text())["automations"]:
        text = text.replace(f"`{one['name']}`", "")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)

    lines = [
        line
        for block in blocks
        for line in re.findall(r"^cardlink (.*)", block.replace("\\\n", ""), re.MULTILINE)
    ]
    wrong = [problem for line in lines if (problem := refused_line(line))]
    for line in QUOTED.findall(text):
        wrong += filter(None, [refused_line(line, named=bare(line))])

    assert [] == wrong
