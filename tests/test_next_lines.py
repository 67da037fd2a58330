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
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from flows.cli.main import main
from tests import keys
from tests.test_command_line import TOML

ROOT = Path(__file__).parent.parent
MODULES = sorted({*(ROOT / "flows").rglob("*.py"), ROOT / "schemas" / "breaks.py"})
PAGES = [
    ROOT / "README.md",
    *sorted({*(ROOT / "deploy").glob("*.md")} - {ROOT / "deploy" / "COMMANDS.md"}),
]
QUOTED = re.compile(r"`cardlink ((?:--config \S+ |--json )?[a-z][^`\n]*)`")
PLAIN = re.compile(
    rf"(?:^|[:;,(] )cardlink ((?:{'|'.join(main.commands)})\b[^`;\n)]*?)\.?(?=$|; |  # |\))"
)
NAMES = {
    *main.commands,
    *(
        name
        for group in main.commands.values()
        if isinstance(group, click.Group)
        for name in group.commands
    ),
}
DAYS = ("first_day", "last_day", "start", "end")


def refused(line: str, *, named: bool = False) -> str:
    """Return what the command line would say against a line; where a command is only named, it may
    lack arguments.
    """
    words = ["1" if one in ("ROW", "N") else one for one in shlex.split(line, comments=True)]
    try:
        command: click.Command = main
        context = main.make_context("cardlink", words)
        while isinstance(command, click.Group):
            name, found, words = command.resolve_command(
                context, [*context._protected_args, *context.args]
            )
            assert found is not None
            if named and not words:
                return ""
            command, context = found, found.make_context(name, words, parent=context)
    except click.exceptions.Exit:  # --help, --version
        return ""
    except click.ClickException as wrong:
        if named and isinstance(wrong, click.MissingParameter):
            return ""
        return f"cardlink {line}: {wrong.format_message()}"
    return ""


def text_of(node: ast.AST) -> str:
    """Return a text as it is shown, a plain word in place of each field."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    if isinstance(node, ast.Constant):
        return re.sub(r"\{(\w+)[^}]*\}", lambda field: word(field[1]), str(node.value))
    return word(ast.unparse(node.value) if isinstance(node, ast.FormattedValue) else "")


def bare(line: str) -> bool:
    """Return whether a line only names a command."""
    return set(line.split()) <= NAMES


def word(field: str) -> str:
    return "2026-11-20" if field.endswith(DAYS) else "1"


def shown(module: Path) -> Iterator[tuple[str, bool]]:
    """Yield the commands in the texts a module can show; True for those that are only named."""
    text = module.read_text("utf-8")
    tree = ast.parse(text if "cardlink " in text or '"cardlink"' in text else "")
    within = {
        id(part)
        for one in ast.walk(tree)
        for part in (*getattr(one, "values", []), getattr(one, "left", None))
    }
    for one in ast.walk(tree):
        if isinstance(one, ast.List) and one.elts and text_of(one.elts[0]).startswith("cardlink"):
            words = [text_of(part) for part in one.elts if not isinstance(part, ast.Starred)]
            within |= {id(part) for part in one.elts}
            if (
                line := " ".join([words[0], *map(shlex.quote, words[1:])])
                .removeprefix("cardlink")
                .strip()
            ).partition(" ")[0] in NAMES:
                yield line, len(words) < len(one.elts)  # the rest is joined to it later
        elif isinstance(one, ast.JoinedStr | ast.Constant) and id(one) not in within:
            yield from ((found, bare(found)) for found in QUOTED.findall(text_of(one)))
            yield from ((found, False) for found in PLAIN.findall(text_of(one)))


def test_every_command_that_a_text_of_ours_shows_can_be_typed() -> None:
    found = {line: named for module in MODULES for line, named in shown(module)}

    wrong = [said for line, named in found.items() if (said := refused(line, named=named))]

    assert [] == wrong
    assert len(found) > 60
    assert {"outbox uploaded 1", "dismiss 1 1 --reason WHY", "status"} <= set(found)
    assert "No such option" in refused("submit bank --colour")
    assert "Missing argument" in refused("trace")


@pytest.mark.slow
def test_a_night_goes_through_when_every_next_line_is_pasted_into_a_shell(tmp_path: Path) -> None:
    issuers, desk = tmp_path / "the issuers", tmp_path / "desk"
    for folder in (issuers / "store" / "bank" / "extracts", desk, tmp_path / "bin"):
        folder.mkdir(parents=True)
    (issuers / "bank.toml").write_text(TOML.format(fingerprint=keys.sound().fingerprint))
    (issuers / "portal.asc").write_bytes(keys.sound().public)
    (tmp_path / "secret.asc").write_bytes(keys.sound().secret)
    started = f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -c 'from flows.cli.__main__ import run; run()' \"$@\"\n"
    (tmp_path / "bin" / "cardlink").write_text(started)
    (tmp_path / "bin" / "cardlink").chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    pasted = list[str]()

    def paste(line: str) -> str:
        pasted.append(line)
        done = subprocess.run(
            ["sh", "-c", line], cwd=desk, env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode in (0, 3), f"{line}\n{done.stdout}{done.stderr}"
        return next(
            (said[6:] for said in done.stderr.splitlines() if said.startswith("next: ")), ""
        )

    def walk(line: str, last: str) -> str:
        while last not in line:
            line = paste(line)
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
    resubmit = walk(f"{begin}worklist", "resubmit")
    again = walk(f"{resubmit} --dry-run", "outbox")
    paste(f"{begin}reconcile")

    assert all(line.startswith(begin) for line in (ingest, status, resubmit, again))
    assert ["fetch", "uploaded"] == [
        word for word in ("fetch", "uploaded") if f"outbox {word}" in " ".join(pasted)
    ]


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
    wrong = [said for line in lines if (said := refused(line))]
    wrong += [said for line in QUOTED.findall(text) if (said := refused(line, named=bare(line)))]

    assert [] == wrong
