"""What an entry is: a verb's function, its name and its form; and the types its parameters are written with.

Parameters before the `*` are arguments of the command, those after it are options; a form has them all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from flows.commands.result import Result
from flows.wiring import config_folder, issuers, wire

if TYPE_CHECKING:
    from flows.partner_api.terminal import Terminal
    from flows.runs.context import IssuerContext
    from flows.submissions.build import Progress

P = ParamSpec("P")
REQUIRED = inspect.Parameter.empty


class Cli(NamedTuple):
    """How the command line spells a parameter, where it is not its name."""

    option: str = ""
    metavar: str = ""


class Help(NamedTuple):
    """The help of a parameter that many verbs have, where their docstrings do not say more."""

    text: str


class Text(NamedTuple):
    """What a form takes as a whole text; the command line answers with the verb's own error."""

    pattern: str
    longest: int = 200


class Range(NamedTuple):
    """The numbers that are taken, both ends included unless it says above."""

    least: float
    most: float | None = None
    above: bool = False


class OneOf(NamedTuple):
    """The names a form offers, read when it is made; unless `checked`, a command answers with the verb's own error."""

    names: Callable[[], Sequence[str]]
    checked: bool = False


class Folder:
    """Marks a path as that of a folder, not of a file."""


class DayCount:
    """Marks a number of days, which the command line takes with its d too: 14d."""


def _breaks() -> Sequence[str]:
    from schemas.breaks import KINDS

    return [name for name, kind in KINDS.items() if not kind.notice]


Issuer = Annotated[str, OneOf(lambda: issuers(config_folder())), Help("The issuer, as its TOML file is named.")]
RunName = Annotated[str, Text(r"[a-z0-9][a-z0-9-]*-\d{8}-[0-9a-f]{8}(-r\d+)?"), Help("The run's id.")]
ExtractName = Annotated[str, Text(r"[^/\\.][^/\\]*(/[^/\\.][^/\\]*)*")]
Reason = Annotated[str, Text(r"[^0-9]*([0-9][^0-9]*){0,12}"), Help("Why; recorded with the change.")]  # no card number
ReasonCode = Annotated[str, Text(r"[a-z_]+(\.[a-z0-9_]+){0,2}", 80)]
ListDigest = Annotated[str, Text(r"[0-9a-f]{12}")]
BreakName = Annotated[str, OneOf(_breaks)]
ChunkPlace = Annotated[str, Text(r"chunk [0-9]{1,5}")]
Number = Annotated[int, Range(1)]
Share = Annotated[float, Range(0, 1)]
Days = Annotated[int, Range(0, 365), DayCount()]
Day = Annotated[date | None, Cli("--date")]
DryRun = Annotated[bool, Help("Report what would be done, and refuse what would be refused; change nothing.")]


def silent(_name: str) -> AbstractContextManager[Callable[[Progress], None]]:
    """Show no progress."""
    return nullcontext(lambda _progress: None)


class Nobody:
    """No terminal: nothing is shown, and nobody answers."""

    attended = False

    def show(self, text: str) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Show nothing."""

    def ask(self, label: str, *, secret: bool = False, default: str | None = None, show_default: bool = False) -> str:
        """Leave the prompt."""
        raise KeyboardInterrupt


class Context(NamedTuple):
    """Where a verb runs: the folder of the TOMLs, what shows its progress, the terminal, and if files here count."""

    folder: Path
    progress: Callable[[str], AbstractContextManager[Callable[[Progress], None]]] = silent
    terminal: Terminal = Nobody()
    local_files: bool = False

    def context_of(self, run: str) -> IssuerContext:
        """Return the edges of the issuer of a run; UnknownRunError where the text is no run's id."""
        from flows.runs.documents import run_of

        return wire(self.folder, run_of(run).issuer)


class Choice(NamedTuple):
    """A field of a form that stands for parameters of the command: what each label sets; the first is preselected."""

    name: str
    help: str
    sets: Mapping[str, Mapping[str, object]]


DRY_OR_SEND = Choice(
    "mode",
    "A dry run shows what would be sent, what is left out, and why; nothing is written.",
    {"dry run": {"dry_run": True}, "send": {"dry_run": False}},
)


class Form(NamedTuple):
    """The Prefect form of an entry; one of several entries where it picks the verb."""

    name: str
    run_name: str
    hours: float | None = None
    needs: Sequence[str] = ()  # parameters a form requires, though a command does not
    without: Sequence[str] = ()  # parameters a form does not have
    choices: Sequence[Choice] = ()
    picks: str = ""  # the field that picks one of the form's entries
    picked: str = ""  # what it is preset to
    retries: Sequence[int] = ()  # seconds to wait before each retry of passing trouble


class Parameter(NamedTuple):
    """One parameter of an entry, as its signature and docstring say it."""

    name: str
    type: Any
    marks: tuple[object, ...]
    default: Any
    argument: bool
    many: bool
    help: str

    def mark(self, kind: type[Any]) -> Any:
        """Return the mark of a kind, None where there is none."""
        return next((marker for marker in self.marks if isinstance(marker, kind)), None)


@dataclass(frozen=True)
class Entry(Generic[P]):
    """A verb: its name on the command line, its function, and its form or why it has none."""

    name: str
    run: Callable[Concatenate[Context, P], Result]
    form: Form | str

    def __call__(self, context: Context, *args: P.args, **options: P.kwargs) -> Result:
        """Run the verb."""
        return self.run(context, *args, **options)

    @property
    def label(self) -> str:
        """Its last word, as a form offers it."""
        return self.name.rpartition(" ")[2].replace("-", " ")

    @property
    def summary(self) -> str:
        """The docstring without its `Args:`."""
        return inspect.cleandoc(self.run.__doc__ or "").partition("\nArgs:")[0].strip()

    @property
    def parameters(self) -> list[Parameter]:
        """Its parameters but the context, in order."""
        hints = get_type_hints(self.run, include_extras=True)
        helps = _helps(self.run.__doc__ or "")
        found = list(inspect.signature(self.run).parameters.values())[1:]
        return [_parameter(one, hints[one.name], helps.get(one.name, "")) for one in found]


def entry(name: str, form: Form | str) -> Callable[[Callable[Concatenate[Context, P], Result]], Entry[P]]:
    """Make an entry of a function; `form` is its Prefect form, or a sentence saying why it has none."""
    return lambda run: Entry(name, run, form)


def entries_of(*modules: ModuleType) -> list[Entry[...]]:
    """Return the entries of modules in the order they are written."""
    return [found for module in modules for found in vars(module).values() if isinstance(found, Entry)]


def _parameter(written: inspect.Parameter, hint: Any, described: str) -> Parameter:
    plain, markers = _unwrapped(hint)
    many = get_origin(plain) is Sequence
    if many:
        plain, inner = _unwrapped(get_args(plain)[0])
        markers += inner
    shared = next((marker.text for marker in markers if isinstance(marker, Help)), "")
    described = described or shared
    argument = written.kind is not inspect.Parameter.KEYWORD_ONLY
    return Parameter(written.name, plain, markers, written.default, argument, many, described)


def _unwrapped(hint: Any) -> tuple[Any, tuple[object, ...]]:
    """Return a type without its marks and its None, and the marks."""
    markers: tuple[object, ...] = ()
    while True:
        if get_origin(hint) is Annotated:
            hint, *more = get_args(hint)
            markers = (*more, *markers)
        elif get_origin(hint) in (Union, UnionType):
            [hint] = [one for one in get_args(hint) if one is not NoneType]
        else:
            return hint, markers


def _helps(doc: str) -> dict[str, str]:
    """Read the `Args:` of a docstring: a name and its text each, goes on where it is indented deeper."""
    found: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(doc).partition("\nArgs:\n")[2].splitlines():
        if line.startswith("    ") and not line.startswith("     "):
            name, _, text = line.strip().partition(": ")
            found[name] = text
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return found
