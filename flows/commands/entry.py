"""What an entry is: a command's function, its name on the command line and its form.

Parameters before the `*` are arguments of the command, those after it are options; a form has them all.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    get_args,
    get_origin,
)

from flows.commands.parameters import Cli, Help
from flows.commands.result import Result
from flows.wiring import wire

if TYPE_CHECKING:
    from flows.partner_api.terminal import Terminal
    from flows.runs.context import IssuerContext
    from flows.submissions.build import Progress

P = ParamSpec("P")
REQUIRED = inspect.Parameter.empty


class _NoTerminal:
    attended = False

    def show(self, text: str) -> None:
        """Show nothing."""

    say = show

    def ask(self, label: str, *, secret: bool = False, default: str | None = None, show_default: bool = False) -> str:
        raise KeyboardInterrupt


class Context(NamedTuple):
    """Where a command runs: the folder of the TOML files, progress display, terminal, whether it may read local files.

    The defaults show nothing, and leave every prompt.
    """

    folder: Path
    progress: Callable[[str], AbstractContextManager[Callable[[Progress], None]]] = lambda _: nullcontext(
        lambda _: None
    )
    terminal: Terminal = _NoTerminal()
    local_files: bool = False

    def context_of(self, run: str) -> IssuerContext:
        """Return the context of a run's issuer; UnknownRunError if the text is no run id."""
        from flows.runs.documents import keys_of

        return wire(self.folder, keys_of(run).run.issuer)


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
    """The Prefect form of an entry. Where several entries share it, `picks` is the field that selects the command."""

    name: str
    run_name: str
    hours: float | None = None
    needs: Sequence[str] = ()  # parameters the form requires, though the command does not
    without: Sequence[str] = ()  # parameters the form leaves out
    choices: Sequence[Choice] = ()
    picks: str = ""
    retries: Sequence[int] = ()  # seconds to wait before each retry after a TryAgainError


class Parameter(NamedTuple):
    """One parameter of an entry, from its signature and docstring."""

    name: str
    type: Any
    marks: tuple[object, ...]
    default: Any
    argument: bool
    many: bool
    help: str

    def mark(self, kind: type[Any]) -> Any:
        """Return the mark of a kind, if any."""
        return next((mark for mark in self.marks if isinstance(mark, kind)), None)

    @property
    def cli(self) -> Cli:
        """How the command line spells it."""
        return self.mark(Cli) or Cli()


@dataclass(frozen=True)
class Entry(Generic[P]):
    """A command: its name on the command line, its function, and its form or why it has none."""

    name: str
    run: Callable[Concatenate[Context, P], Result]
    form: Form | str

    def __call__(self, context: Context, *args: P.args, **options: P.kwargs) -> Result:
        """Run the command."""
        return self.run(context, *args, **options)

    @property
    def label(self) -> str:
        """The last word of its name, as a form offers it."""
        return self.name.rpartition(" ")[2].replace("-", " ")

    @property
    def summary(self) -> str:
        """The docstring without its `Args:`."""
        return inspect.cleandoc(self.run.__doc__ or "").partition("\nArgs:")[0].strip()

    @property
    def parameters(self) -> list[Parameter]:
        """Its parameters without the context, in order."""
        described = inspect.cleandoc(self.run.__doc__ or "").partition("\nArgs:\n")[2]
        helps = {name: " ".join(text.split()) for name, text in _ARGS.findall(described)}
        declared = list(inspect.signature(self.run, eval_str=True).parameters.values())[1:]
        return [_parameter(one, helps.get(one.name, "")) for one in declared]


_ARGS = re.compile(r"^    (\w+): (.*(?:\n     .*)*)", re.MULTILINE)  # a name, and its text until the indent ends


def entry(name: str, form: Form | str) -> Callable[[Callable[Concatenate[Context, P], Result]], Entry[P]]:
    """Make an entry of a function; `form` is its Prefect form, or a sentence saying why it has none."""
    return lambda run: Entry(name, run, form)


def entries_of(*modules: ModuleType) -> list[Entry[...]]:
    """Return the entries of modules in the order they are written."""
    return [found for module in modules for found in vars(module).values() if isinstance(found, Entry)]


def _parameter(declared: inspect.Parameter, described: str) -> Parameter:
    plain, many = declared.annotation, False
    marks: tuple[object, ...] = ()
    while (origin := get_origin(plain)) not in (None, Literal):
        if origin is Annotated:
            plain, *more = get_args(plain)
            marks = (*marks, *more)
        elif origin is Sequence:
            [plain], many = get_args(plain), True
        else:
            [plain] = [one for one in get_args(plain) if one is not NoneType]
    shared = next((mark.text for mark in marks if isinstance(mark, Help)), "")
    argument = declared.kind is not inspect.Parameter.KEYWORD_ONLY
    return Parameter(declared.name, plain, marks, declared.default, argument, many, described or shared)
