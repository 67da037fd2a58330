"""The issuers' TOML files: which there are, and what each says, checked by its model; and the
errors of named files.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.errors import CardlinkError, OperatorError
from flows.extensions import hooks
from flows.redaction import redact
from flows.steps import Option, Sentence, Slot, Step

if TYPE_CHECKING:
    from schemas.issuer import Issuer


CONFIG = Option("--config")


class NoIssuerError(OperatorError):
    """The issuer has no TOML."""

    message = "No issuer {issuer} in {folder}. Available: {available}."
    next_step = Sentence(
        "Create one with {init}, or name the folder of the TOML files: {config} FOLDER, "
        "or CARDLINK_CONFIG.",
        init=Step("init", Slot("issuer")),
        config=CONFIG,
    )


class IssuerNameError(OperatorError):
    """Something that cannot be an issuer's name, such as a path, stands where an issuer is
    named.
    """

    message = (
        "{issuer!r} is not an issuer name: lower case, digits and hyphens, at most 41 characters."
    )
    next_step = Sentence(
        "Name it as its TOML file is named, without the folder; "
        "the folder is {config}, or CARDLINK_CONFIG.",
        config=CONFIG,
    )


class ConfigurationError(OperatorError):
    """The issuer's TOML has an unknown or wrong key."""

    message = "{file}: {problems}."
    next_step = Sentence(
        "Correct the file; {settings} explains every key.",
        settings=Step("settings"),
    )


class FileUnreadableError(OperatorError):
    """A file named in the configuration or the environment cannot be read."""

    message = "{file} ({purpose}) cannot be read: {reason}."
    next_step = "Correct the path or its permissions."


class FileUnusableError(OperatorError):
    """A file or folder that a command is told to read or write cannot be."""

    message = "{file} ({purpose}) cannot be read or written: {reason}."
    next_step = "Correct the path or its permissions."


class FileThereError(OperatorError):
    """The command would overwrite a file."""

    message = "{path} already exists. Nothing was written."
    next_step = "Move it away first, or name another."


def require_folder(folder: Path) -> None:
    """Raise FileUnreadableError where the issuers' folder cannot be listed: it would pass for one
    without issuers.
    """
    try:
        next(folder.iterdir(), None)
        return
    except OSError as error:
        reason = error.strerror or type(error).__name__
    purpose = Sentence("the issuers' folder: {config} or CARDLINK_CONFIG", config=CONFIG)
    raise FileUnreadableError(file=str(folder), purpose=purpose, reason=reason)


def issuers(folder: Path) -> list[str]:
    """Return the names of the issuers configured in a folder: its TOML files with `issuer` or
    `root`, or unreadable.
    """
    named = []
    for file in sorted(folder.glob("*.toml")):
        with suppress(OperatorError):
            if not {"issuer", "root"} & read_toml(file)[0].keys():
                continue
        named.append(file.stem)
    return named


def issuer_file(folder: Path, name: str) -> Path:
    """Return where an issuer's TOML is; IssuerNameError for anything but a plain name."""
    from schemas.issuer import ISSUER

    if not re.fullmatch(ISSUER, name):
        raise IssuerNameError(issuer=redact(name))
    return folder / f"{name}.toml"


def read_toml(file: Path) -> tuple[dict[str, Any], str]:
    """Return the content of a TOML file, and its text; FileUnreadableError, ConfigurationError."""
    content = read_file(file, "the issuer's TOML")
    try:
        text = content.decode("utf-8-sig")
        return tomllib.loads(text), text
    except UnicodeDecodeError as error:
        problem = f"line {1 + content.count(10, 0, error.start)} is not in UTF-8"
    except tomllib.TOMLDecodeError as error:
        problem = str(error)
    raise ConfigurationError(file=str(file), problems=problem)


def load_issuer(
    folder: Path, name: str, note: Callable[[CardlinkError], None] | None = None
) -> Issuer:
    """Read `<folder>/<name>.toml`; ConfigurationError names every wrong or unknown key.

    With `note`, the error goes there, and the issuer is returned without these keys where it can do
    without.
    """
    from pydantic import ValidationError

    from schemas.issuer import Issuer
    from schemas.toml_problems import problems, without

    file = issuer_file(folder, name)
    with suppress(PermissionError):  # reading the file says so
        _require_toml(file, folder, name)
    content, text = read_toml(file)
    content |= _with_lookups({"columns": content.get("columns", {})}, folder)
    content = with_texts(content, folder)
    issuer: Issuer | None = None
    mistakes: list[str] = []
    try:
        issuer = Issuer.model_validate(content)
    except ValidationError as invalid:
        wrong = problems(invalid, content, text)
        mistakes += wrong.values()
        with suppress(ValidationError):
            issuer = Issuer.model_validate(without(content, wrong))
    if issuer is not None and issuer.issuer != name:
        mistakes.append(f'issuer = "{issuer.issuer}", but a TOML file is named after its issuer')
        issuer = None
    error = ConfigurationError(file=str(file), problems=redact(". ".join(mistakes)))
    if issuer is None or (mistakes and note is None):
        raise error
    if mistakes and note is not None:
        note(error)
    return issuer


def _require_toml(file: Path, folder: Path, name: str) -> None:
    """Raise NoIssuerError where an issuer has no TOML."""
    try:
        file.stat()  # `is_file` says no from Python 3.14 on, too, where this user may not look
    except (FileNotFoundError, NotADirectoryError):
        available = ", ".join(issuers(folder)) or "none"
        place = str(folder.absolute())  # a "." would be lost before the sentence's own
        raise NoIssuerError(issuer=redact(name), folder=place, available=available) from None


def _with_lookups(value: Any, folder: Path) -> Any:
    """Return `[columns]` with the content of each lookup file in its place; ConfigurationError
    names a wrong line.
    """
    if isinstance(value, list):
        return [_with_lookups(element, folder) for element in value]
    if not isinstance(value, dict):
        return value
    filled = {key: _with_lookups(nested, folder) for key, nested in value.items()}
    file_name = value.get("lookup")
    if isinstance(file_name, str):
        filled["lookup"] = _read_lookup(folder / file_name)
    return filled


def with_texts(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the content of a TOML with the text of files that extensions' settings name."""
    for with_files in hooks("with_files"):
        content = with_files(content, folder)
    return content


def _read_lookup(file: Path) -> dict[str, str]:
    """Return the replacements of a lookup file by their texts; ConfigurationError."""
    replacements: dict[str, str] = {}
    content = read_file(file, "a lookup of [columns]").decode("utf-8-sig", "replace")
    for number, row in enumerate(csv.reader(content.splitlines()), 1):
        if len(row) != 2 or row[0].strip() in replacements or "\ufffd" in "".join(row):
            problem = (
                f"line {number} is not a text and its replacement in UTF-8, or a text a second time"
            )
            raise ConfigurationError(file=str(file), problems=problem)
        replacements[row[0].strip()] = row[1].strip()
    return replacements


def read_file(path: Path, purpose: str | Option) -> bytes:
    """Return the bytes of a file an operator named; FileUnreadableError."""
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise FileUnreadableError(file=str(path), purpose=purpose, reason=reason)
