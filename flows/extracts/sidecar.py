"""The file beside an extract that proves it: `NAME.sha256`, or `NAME.ctl` of lines `key=value`."""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from typing import Any, NamedTuple

from flows.errors import ExtractError
from flows.redaction import redact
from flows.runs.store import Store
from flows.steps import Option, Sentence
from schemas.source import SourceSettings

LARGEST = 1 << 16  # bytes of a sidecar
_SUM = re.compile(r"\\?(?P<sha256>[0-9A-Fa-f]{64})(?:\s+\*?(?P<path>\S.*))?")

Facts = dict[str, Any]


class _Form(NamedTuple):
    """How a fact is written, and what makes its value of the text."""

    shape: str
    convert: Callable[[str], Any]


# What a ctl file may say; no number has the digits of a card, since errors show them.
_FORMS = {
    "count": _Form("[0-9]{1,12}", int),
    "bytes": _Form("[0-9]{1,12}", int),
    "sha256": _Form("[0-9A-Fa-f]{64}", str.lower),
    "date": _Form("20[0-9]{2}-[0-9]{2}-[0-9]{2}|20[0-9]{6}", date.fromisoformat),
}


class SidecarError(ExtractError):
    """A sidecar cannot be read, or an extract is not what its sidecar says."""

    message = "{extract} is not proven by its sidecar: {problem}. Nothing was committed."
    next_step = Sentence(
        "Ask the issuer to send both files again, or compare `sidecar` in [source] with the file. "
        "A date given with {date} must be that of the sidecar.",
        date=Option("--date", of="submit"),
    )


class Sidecar(NamedTuple):
    """The facts that a sidecar gives of its extract: count, bytes, sha256, date, if it has them."""

    extract: str
    facts: Facts

    def prove(self, **actual: Any) -> None:
        """Raise SidecarError where a fact is another than the actual one."""
        for name, value in actual.items():
            expected = self.facts.get(name, value)
            if expected != value:
                problem = f"{name} is {value}, expected {expected}"
                raise SidecarError(extract=self.extract, problem=problem)


def read_sidecar(store: Store, source: SourceSettings, extract: str) -> Sidecar:
    """Return the facts of an extract's sidecar, none where the issuer has no sidecars.

    Raises SidecarError.
    """
    if source.sidecar is None:
        return Sidecar(extract, {})
    key = f"{extract}.{source.sidecar}"
    text = ""
    with store.open(key) as stream, suppress(UnicodeError):
        text = stream.read(LARGEST).decode("utf-8-sig")
    facts = facts_of(source.sidecar, text, extract.rpartition("/")[2])
    if isinstance(facts, str):
        raise SidecarError(extract=extract, problem=f"{key}: {facts}")
    return Sidecar(extract, facts)


def facts_of(kind: str, text: str, name: str) -> Facts | str:
    """Return the facts of a sidecar's text about the file `name`, or what is wrong with it."""
    if kind == "sha256":
        return _checksum(text.splitlines(), name)
    return _facts(text.splitlines())


def _checksum(lines: list[str], name: str) -> Facts | str:
    """Read what sha256sum writes, in text or binary mode, also of other files.

    Return what is wrong if that cannot be.
    """
    sums = [_SUM.fullmatch(line.strip()) for line in lines if line.strip()]
    own = [sum_ for sum_ in sums if sum_ and _file_name(sum_["path"] or name) == name]
    if not all(sums) or len(own) != 1:
        return (
            f"it is not one line of sha256sum for {name}: 64 hex digits, two spaces, the file name"
        )
    return {"sha256": own[0]["sha256"].lower()}


def _file_name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _facts(lines: list[str]) -> Facts | str:
    """Read `key=value` lines, blank ones and comments between them; else return what is wrong."""
    facts: Facts = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, value = (part.strip() for part in line.partition("="))
        problem = _problem_of_fact(name, value, facts)
        if problem:
            return f"line {number} has {problem}"
        facts[name] = _FORMS[name].convert(value)
    return facts or f"it has none of {', '.join(_FORMS)}"


def _problem_of_fact(name: str, value: str, facts: Facts) -> str:
    """Return what is wrong with a line beside the facts before it, "" if nothing is."""
    if name not in _FORMS:
        return f"the unknown key {redact(name)[:40]!r}; known: {', '.join(_FORMS)}"
    if name in facts:
        return f"a second {name}"
    if not re.fullmatch(_FORMS[name].shape, value):
        return f"no valid {name}"
    try:
        _FORMS[name].convert(value)
    except ValueError:  # 20260231 is not a date
        return f"no valid {name}"
    return ""
