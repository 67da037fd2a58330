"""What an entry is: a command's function, its name on the command line and its form.

Parameters before the `*` are arguments of the command, those after it are options; a form has them
all.
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
    Annotated,
    Any,
    Concatenate,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
)

from flows.commands import on_first_use
from flows.commands.parameters import Field
from flows.commands.result import Result
from flows.configuration import issuers, load_issuer, require_folder
from flows.errors import BugError, CardlinkError, kind_and_place
from flows.steps import YOUR_NAME, Step, Text
from flows.wiring import acting, actors, person, wire

with on_first_use():
    from flows.operations import four_eyes
    from flows.runs import context as contexts
    from flows.runs import identity, keys
    from flows.submissions import build
    from schemas import settings

P = ParamSpec("P")
T = TypeVar("T")
REQUIRED = inspect.Parameter.empty
WAITING = 3  # exit code where a second person is needed
ACTOR = "Who you are; recorded beside the worker. On the command line, the user of the machine by default."
APPROVE = "ID of another person's request for exactly this command, which is then carried out."


def _unasked(*_: object, **__: object) -> str:
    raise KeyboardInterrupt


class Terminal(NamedTuple):
    """A person at a terminal; by default nobody: nothing is shown, and every prompt is left."""

    attended: bool = False  # a person can be prompted
    show: Callable[[Text], None] = lambda _: None  # a result before the command ends
    say: Callable[[Text], None] = lambda _: None  # a line that is no result
    # the label; `secret`, `default`, `show_default`: what is typed
    ask: Callable[..., str] = _unasked


class Context(NamedTuple):
    """Where a command runs: the folder of the TOML files, progress display, terminal, whether it
    may read local files.

    The defaults show nothing, and leave every prompt. `actor` is the person who acts, `approve`
    another's request.
    """

    folder: Path
    progress: Callable[[str], AbstractContextManager[Callable[[build.Progress], None]]] = lambda _: (
        nullcontext(lambda _: None)
    )
    terminal: Terminal = Terminal()
    local_files: bool = False
    actor: str = ""
    approve: str = ""

    def context_of(self, run: str, *, dry_run: bool = False) -> contexts.IssuerContext:
        """Return the context of a run's issuer, as `wire` does; UnknownRunError if the text is no
        run id.
        """
        return wire(self.folder, keys.keys_of(run).run.issuer, dry_run=dry_run)

    def each(
        self, issuer: str, act: Callable[[str], list[T]]
    ) -> tuple[list[T], dict[str, CardlinkError]]:
        """Return what `act` finds for an issuer, or for all of them, and why some of all could not
        be read.
        """
        if issuer:
            return act(issuer), {}
        require_folder(self.folder)
        done, unread = list[T](), dict[str, CardlinkError]()
        for name in issuers(self.folder):
            try:
                done += act(name)
            except CardlinkError as error:
                unread[name] = error
            except Exception as error:  # noqa: BLE001 - a document that nobody foresaw, of this issuer alone
                unread[name] = BugError(place=name, kind=kind_and_place(error))
        return done, unread


class Choice(NamedTuple):
    """A field of a form that stands for parameters of the command: what each label sets; the first
    is preselected.
    """

    name: str
    help: str
    sets: Mapping[str, Mapping[str, object]]


DRY_OR_SEND = Choice(
    "mode",
    "A dry run shows what would be sent, what is left out, and why; nothing is written.",
    {"dry run": {"dry_run": True}, "send": {"dry_run": False}},
)


class Form(NamedTuple):
    """The Prefect form of an entry. Where several entries share it, `picks` is the field that
    selects the command.
    """

    name: str
    run_name: str
    hours: float | None = None
    needs: Sequence[str] = ()  # parameters the form requires, though the command does not
    without: Sequence[str] = ()  # parameters the form leaves out: it has at most eight fields
    choices: Sequence[Choice] = ()
    picks: str = ""
    retries: Sequence[int] = ()  # seconds to wait before each retry after a TryAgainError
    # optional on a schedule; none changes nothing
    actor: Literal["required", "optional", "none"] = "required"


class Parameter(NamedTuple):
    """One parameter of an entry, from its signature and docstring."""

    name: str
    type: Any
    said: Field
    default: Any
    argument: bool
    many: bool
    help: str

    @property
    def option(self) -> str:
        """The option's name on the command line."""
        return self.said.option or f"--{self.name.replace('_', '-')}"

    def is_set(self, value: Any) -> bool:
        """Return whether a command line has to give it this value."""
        return value not in (None, "", (), False, self.default)


@dataclass(frozen=True)
class Entry(Generic[P]):
    """A command: its name on the command line, its function, and its form or why it has none.

    `second`: the act that may need a second person; `when`: the parameter that makes it one, if it is not always.
    """

    name: str
    run: Callable[Concatenate[Context, P], Result]
    form: Form | str
    second: settings.Act | None = None
    when: str = ""

    def __call__(self, context: Context, *args: P.args, **options: P.kwargs) -> Result:
        """Run the command in the name of who acts, unless it has to wait for a second person;
        ActorError.
        """
        if not self.changes:
            return self.run(context, *args, **options)
        who = person(context.actor, at_terminal=context.local_files)
        given = inspect.signature(self.run).bind(context, *args, **options).arguments
        with acting(context.actor and who):
            if self.second and not given.get("dry_run") and (not self.when or given.get(self.when)):
                return self._by_two(context, who, given, self.second)
            return self.run(context, *args, **options)

    def invoke(self, context: Context, given: Mapping[str, Any]) -> Result:
        """Run the command with all of its parameters by name, those of every entry too."""
        shared = {name: given[name] for name in ("actor", "approve") if given.get(name)}
        run: Callable[..., Result] = self
        own = {name: value for name, value in given.items() if name not in ("actor", "approve")}
        return run(context._replace(**shared), **own)

    @property
    def changes(self) -> bool:
        """Whether it changes something, so that it has the parameter `actor`."""
        reads = isinstance(self.form, str) or self.form.actor == "none"
        return not reads or bool(
            {"reason", "override"} & inspect.signature(self.run).parameters.keys()
        )

    def _by_two(
        self, context: Context, who: str, given: Mapping[str, Any], act: settings.Act
    ) -> Result:
        """Store a request, or carry out another person's, if the issuer's settings want a second
        one.
        """
        run: Callable[..., Result] = self.run
        own = {name: value for name, value in given.items() if name != "context"}
        target = keys.RunId.parse(str(own.get("run") or own.get("target")))
        name = target.issuer if target else own.get("issuer") or own.get("target")
        named, _ = context.each(name or "", lambda one: [load_issuer(context.folder, one)])
        needing = [one.issuer for one in named if act in one.four_eyes.acts]
        if not needing:
            return run(context, **own)
        step = self.step(own)
        files = [str(own[name]) for name in ("extract", "corrections", "key") if own.get(name)]
        # without a name, a gate is opened for every extract
        files = files or [""] * (act == "gates")
        reason = next(
            (str(own[name]) for name in ("override_reason", "override", "reason") if own.get(name)),
            "",
        )
        local = [
            identity.digest(Path(one).read_bytes())
            for one in files
            if context.local_files and Path(one).is_file()
        ]
        asked = four_eyes.Command(act, step.line(), files, local, who, reason)
        issuer_context = wire(context.folder, needing[0])
        if context.approve:
            with (
                four_eyes.carrying_out(issuer_context, context.approve, asked) as first,
                acting(f"{who} for {first}"),
            ):
                return run(context, **own)
        would = (
            run(context, **{**own, "dry_run": True})
            if "dry_run" in self.run.__annotations__
            else Result({})
        )
        number, record = four_eyes.request(issuer_context, asked)
        waits = f"nothing has been done yet; a second person must carry it out by {record.until:%Y-%m-%d %H:%M} UTC"
        facts = {
            "request": number,
            "until": record.until.isoformat(),
            "digest": record.digest,
            "would": would.facts,
        }
        shown = [f"request {number} of {record.actor}: {waits}", *would.shown]
        return Result(facts, shown, step.adding(approve=number, actor=YOUR_NAME), WAITING)

    def step(self, values: Mapping[str, Any]) -> Step:
        """Return the step that runs it with these values of its parameters."""
        arguments, options = list[Any](), dict[str, Any]()
        for parameter in self.parameters:
            value: Any = values.get(parameter.name)
            if not parameter.is_set(value):
                continue
            if not parameter.argument:
                options[parameter.option.removeprefix("--")] = value
            elif parameter.many:
                arguments.extend(value)
            else:
                arguments.append(value)
        return Step(self.name, *arguments, **options)

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
        shared = [("approve", r"[0-9a-f]{12}", APPROVE)] if self.second else []
        shared += [("actor", actors(), ACTOR)] if self.changes else []
        own = [_parameter(one, helps.get(one.name, "")) for one in declared]
        fields = [(name, Field(pattern=rule, longest=64), text) for name, rule, text in shared]
        return own + [
            Parameter(name, str, said, "", False, False, text) for name, said, text in fields
        ]


_UNSAID = Field()._asdict().items()
# a name, and its text until the indent ends
_ARGS = re.compile(r"^    (\w+): (.*(?:\n     .*)*)", re.MULTILINE)


def entry(
    name: str, form: Form | str, second: settings.Act | None = None, when: str = ""
) -> Callable[[Callable[Concatenate[Context, P], Result]], Entry[P]]:
    """Make an entry of a function; `form` is its Prefect form, or a sentence saying why it has
    none.
    """
    return lambda run: Entry(name, run, form, second, when)


def entries_of(*modules: ModuleType) -> list[Entry[...]]:
    """Return the entries of modules in the order they are written."""
    return [found for module in modules for found in vars(module).values() if type(found) is Entry]


def _parameter(declared: inspect.Parameter, described: str) -> Parameter:
    plain, many, given = declared.annotation, False, dict[str, Any]()
    while (origin := get_origin(plain)) not in (None, Literal):
        if origin is Annotated:
            plain, *inner = get_args(plain)
            for one in reversed(inner):
                given = dict(one._asdict().items() - _UNSAID) | given
        elif origin is Sequence:
            [plain], many = get_args(plain), True
        else:
            [plain] = [one for one in get_args(plain) if one is not NoneType]
    said, argument = Field(**given), declared.kind is not inspect.Parameter.KEYWORD_ONLY
    return Parameter(
        declared.name, plain, said, declared.default, argument, many, described or said.help
    )
