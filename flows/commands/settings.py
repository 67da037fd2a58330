"""The reference of what can be set in an issuer's TOML."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.result import Result
from flows.errors import OperatorError
from flows.steps import Sentence, Step

with on_first_use():
    from schemas import mapping, reference


class NoSettingError(OperatorError):
    """A key was asked about that does not exist."""

    message = "There is no setting {key!r}. Did you mean {nearest}?"
    next_step = Sentence("{settings} prints all of them.", settings=Step("settings"))


@entry("settings", form="it prints a reference; `deploy/SETTINGS.md` is the same as a page")
def settings(context: Context, key: str = "", *, schema: bool = False) -> Result:
    """Explain every key of the issuer's TOML with an example, or one of them.

    Args:
        key: A key, such as encoding or source.encoding, or a table, such as source.
        schema: Write the JSON Schema beside the TOML files anew, by which editors complete and
            check them.

    Example:
        cardlink settings source.encoding
    """
    if schema:
        file = str(write_schema(context.folder))
        return Result({"file": file}, [f"{file} written"])
    named = _named(key)
    facts = [{"path": setting.path, **setting._asdict()} for setting in named]
    return Result({"keys": facts}, list(_lines(key, named)))


def _named(key: str) -> list[reference.Key]:
    """Return the settings that a key or a table names; NoSettingError where there is none."""
    every_key = list(reference.every_key())
    named = [
        setting for setting in every_key if key in ("", setting.table, setting.name, setting.path)
    ]
    if named:
        return named
    paths = dict[str, str]()
    for setting in reversed(every_key):  # of two tables the outer one
        paths |= {setting.name: setting.path, setting.path: setting.path}
    raise NoSettingError(key=key, nearest=paths[mapping.nearest(key, paths)])


def _lines(key: str, named: Sequence[reference.Key]) -> Iterator[str]:
    """Yield each setting, below its table where all of the table are shown."""
    table = ""
    for setting in named:
        if setting.table != table and key in ("", setting.table):
            table = setting.table
            description = reference.tables()[table]["description"]
            yield ""
            yield f"[{table}]  {description.splitlines()[0]}"
        yield setting.name if table == setting.table else setting.path
        yield f"    {setting.meaning}"
        yield f"    {_about(setting)}"
        yield f"    example: {setting.name} = {setting.example}"


def _about(setting: reference.Key) -> str:
    takes = f"takes {setting.takes}"
    if not setting.default:
        return takes
    if setting.default == "required":
        return f"{takes}; required"
    return f"{takes}; default: {setting.default}"


def write_schema(folder: Path) -> Path:
    """Write the JSON Schema that the first line of each TOML names; return where."""
    file = folder / reference.SCHEMA_FILE
    schema = json.dumps(reference.json_schema(), indent=1, ensure_ascii=False)
    file.write_text(f"{schema}\n", "utf-8")
    return file
