"""A bank that begins with one export: `init`, its doubts answered by somebody who knows the bank,
`check`, `submit`, and what the partner then opens.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner, Result

from flows.adapters.gpg_opener import GpgOpener
from flows.cli.main import main
from flows.commands.context import Context, Terminal
from flows.errors import CardlinkError
from flows.extensions.init.command import init
from schemas import portal
from schemas.reference import BARE, toml
from tests import keys
from tests.extracts.exports import Row
from tests.onboarding.layouts import Export
from tests.sample_rows import hashed

AT_ONCE = "right at once"
AFTER_DOUBTS = "right after doubts"
REFUSED = "refused"
WRONG = "wrong"
ISSUER = "bank"


class Person:
    """Somebody who knows the bank, and answers what `init` asks on a terminal."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._heading = ""
        self._options: list[str] = []
        self.questions = 0
        self.to_edit: dict[str, object] = {}  # of [status], what has to be said in the TOML
        self.to_write: dict[str, str] = {}  # of [columns], what has to be written there

    def say(self, text: object) -> None:
        line = str(text)
        if re.match(r"  \d+  ", line):
            self._options.append(line[5:].strip())
        else:
            self._heading = line

    def ask(self, label: str, **_: object) -> str:
        options = self._options
        self._options = []
        if label != "Number":
            return self._decision(label)
        self.questions += 1
        subject = self._heading.partition(": ")[0]
        if subject.startswith("[status] "):
            return self._of_status(subject.removeprefix("[status] "), options)
        known = {**self._export.columns, **{k: (v,) for k, v in self._export.source.items()}}
        needed = known.get(subject, ())
        for number, option in enumerate(options, 1):
            if needed and all(part in option for part in needed):
                return str(number)
        if subject in self._export.places:
            self.to_write[subject] = self._export.places[subject]
            return "1"
        for last in ("another column", "(none)"):
            is_there = subject in portal.columns() and bool(needed) == (last == "another column")
            if last in options and is_there:
                return str(options.index(last) + 1)
        return "1"

    def _of_status(self, column: str, options: list[str]) -> str:
        wanted = self._wanted(column)
        for number, option in enumerate(options, 1):
            if _same(option, wanted):
                return str(number)
        self._column = column
        if "value by value" in options:
            return str(options.index("value by value") + 1)
        self.to_edit[column] = wanted
        undecided = next(option for option in options if option.startswith('"undecided"'))
        return str(options.index(undecided) + 1)

    def _decision(self, label: str) -> str:
        value = label.partition(": ")[0].replace("(empty)", "")
        lists: Any = self._wanted(self._column)
        [decision] = [str(decision) for decision, values in lists.items() if value in values]
        return decision

    def _wanted(self, column: str) -> object:
        """Return what [status] is to say of a column; of one by its place its beginning tells."""
        known = (key for key in self._export.statuses if f"{column},".startswith(f"{key},"))
        return self._export.statuses.get(next(known, ""), "ignored")


def _same(option: str, wanted: object) -> bool:
    """Return whether an option of `[status]` is what a person wants."""
    try:
        offered = tomllib.loads(f"x = {option.partition('  (')[0]}")["x"]
    except tomllib.TOMLDecodeError:
        return False
    return _plain(offered) == _plain(wanted)


def _plain(answer: Any) -> object:
    if not isinstance(answer, dict):
        return answer
    return {
        key: sorted(value) if isinstance(value, list) else value
        for key, value in answer.items()
        if key != "at"
    }


class Outcome(NamedTuple):
    """What became of an export."""

    verdict: str
    sent: dict[str, Row]  # by card number
    text: str  # what the commands said


class Bank(NamedTuple):
    """A folder with the settings of a bank, and its store."""

    folder: Path
    export: Export

    @property
    def file(self) -> Path:
        return self.folder / "from" / self.export.name

    def receive(self) -> None:
        """Put the export and what comes with it where somebody looks at it."""
        self.file.parent.mkdir(parents=True)
        self.file.write_bytes(self.export.content)
        for ending, content in self.export.beside.items():
            self.file.with_name(self.file.name + ending).write_bytes(content)
        if self.export.copybook:
            (self.file.parent / "cards.cpy").write_text(self.export.copybook)
        (self.folder / "portal.asc").write_bytes(keys.sound().public)

    def begin(self, person: Person | None) -> str:
        """Run `init`, with somebody at the terminal or with nobody; return what it says."""
        terminal = Terminal()
        if person is not None:
            terminal = Terminal(attended=True, say=person.say, ask=person.ask)
        copybook = self.file.parent / "cards.cpy" if self.export.copybook else None
        result = init(
            Context(self.folder, terminal=terminal, local_files=True),
            ISSUER,
            extract=self.file,
            copybook=copybook,
            root=str(self.folder / "store"),
        )
        self._edit(person.to_edit if person else {}, person.to_write if person else {})
        return "\n".join(map(str, result.shown))

    def _edit(self, statuses: Mapping[str, object], columns: Mapping[str, str]) -> None:
        """Fill in [portal], and what could not be said on the terminal."""
        file = self.folder / f"{ISSUER}.toml"
        text = file.read_text("utf-8").replace("0" * 40, keys.sound().fingerprint)
        for column, answer in statuses.items():
            name = column if BARE.fullmatch(column) else toml(column)
            text = text.replace(f'{name} = "undecided"', f"{name} = {toml(answer)}")
        for column, value in columns.items():
            text = re.sub(f'(?m)^(# )?"{column}" = .*$', f'"{column}" = {value}', text)
        file.write_text(text, "utf-8")

    def send(self) -> str:
        """Run `check` and `submit`; return what they say."""
        extracts = self.folder / "store" / ISSUER / "extracts"
        extracts.mkdir(parents=True)
        for file in self.file.parent.iterdir():
            if file.suffix != ".cpy":
                (extracts / file.name).write_bytes(file.read_bytes())
        checked = self._cardlink("check", ISSUER, self.export.name)
        return checked.output + self._cardlink("submit", ISSUER).output

    def opened(self) -> dict[str, Row]:
        """Return what the partner opens, by card number."""
        rows: dict[str, Row] = {}
        with GpgOpener([keys.sound().secret]) as opener:
            for chunk in sorted((self.folder / "store").rglob("*.pgp")):
                if "extracts" in chunk.parts:
                    continue
                text = opener.open(chunk.read_bytes(), 1 << 24).decode()
                for row in csv.DictReader(StringIO(text)):
                    assert row[portal.PAN] not in rows
                    rows[row[portal.PAN]] = row
        return rows

    def _cardlink(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["--config", str(self.folder), *arguments])


def onboarded(folder: Path, export: Export, person: Person | None) -> Outcome:
    """Begin with an export; a person answers the doubts, or nobody does."""
    bank = Bank(folder, export)
    bank.receive()
    try:
        text = bank.begin(person)
    except CardlinkError as error:
        return Outcome(REFUSED, {}, str(error.text))
    text += bank.send()
    sent = bank.opened()
    if differences(export, sent):
        return Outcome(WRONG if sent else REFUSED, sent, text)
    return Outcome(AFTER_DOUBTS if person and person.questions else AT_ONCE, sent, text)


def differences(export: Export, sent: Mapping[str, Row]) -> list[str]:
    """Return in what the rows that were sent are not those of the oracle; no cell is shown."""
    wrong = [f"{len(export.sent.keys() - sent.keys())} not sent"] * bool(
        export.sent.keys() - sent.keys()
    )
    beyond = sent.keys() - export.sent.keys()
    if beyond:
        wrong.append(f"{len(beyond)} too many, {len(beyond & export.ended)} of them ended")
    columns = set()
    for card in export.sent.keys() & sent.keys():
        for column, cell in export.sent[card].items():
            if column == portal.CVV:
                is_right = sent[card][portal.CVV_HASH] == hashed(cell)
            else:
                is_right = sent[card][column] == cell
            columns |= set() if is_right else {column}
    return wrong + sorted(columns)
