"""What an entry is: a command's function, its name on the command line and its form.

Parameters before the `*` are arguments of the command, those after it are options; a form has them
all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.form import Form
from flows.commands.named_files import usable_files
from flows.commands.parameters import Field
from flows.commands.result import Result, of_several
from flows.commands.signature import Parameter, examples_of, parameters_of, summary_of
from flows.errors import CardlinkError, OperatorError
from flows.extensions import act_options, hooks
from flows.redaction import redact
from flows.steps import Option, Step, is_placeholder
from flows.tracing import stage
from flows.wiring import acting, actors, deciding, governing, one_command, person

with on_first_use():
    from flows.runs import decisions, identity, shown_rows
    from schemas import settings

if TYPE_CHECKING:
    Values = Mapping[str, Any]
    Decides = Callable[[Context, str, Values], Collection[settings.Act]]

P = ParamSpec("P")
ACTOR = (
    "Who you are; recorded beside the worker. "
    "On the command line, the user of the machine by default."
)
_REFUSED = (2, 3)  # exit codes of a dry run that did not pass
_BY_NAME: dict[str, Any] = {}
_TARGETS = ("run", "target", "issuer")  # parameters that name a run, or an issuer
SUBJECTS = ("issuer", "run", "extract")  # parameters that say what a command is about


class PlaceholderError(OperatorError):
    """A line was pasted as it was printed, with a placeholder in it."""

    message = "{value} is {word}, a placeholder for a real value. Nothing was done."
    next_step = "Replace it, in quotes where the value has blanks, and run the command again."


@dataclass(frozen=True)
class Entry(Generic[P]):
    """A command: its name on the command line, its function, and its form or why it has none.

    `acts` are those that somebody may want to know of before, each with the parameter that makes
    the command one, or the parameter and its value; "" where it always is. `records`: it records
    something, though it needs no reason and has no form. `decides`: which acts it is for an issuer,
    where its parameters do not say. `ungoverned`: it works with any settings and database.
    """

    name: str
    run: Callable[Concatenate[Context, P], Result]
    form: Form | str
    acts: Mapping[settings.Act, str] = field(default_factory=dict)
    records: bool = False
    decides: Decides | None = None
    ungoverned: bool = False

    def __call__(self, context: Context, *args: P.args, **options: P.kwargs) -> Result:
        """Run the command in the name of who acts.

        ActorError where the name is not accepted.
        """
        _, *values = inspect.signature(self.run).bind(context, *args, **options).arguments.items()
        by_name = dict(values)
        self._refuse_placeholders(context, by_name)
        several = [each.name for each in parameters_of(self.run) if each.field.several]
        targets = str(by_name.get(several[0], "")) if several else ""
        if "," not in targets:
            return self._run_one(context, by_name)
        texts = [str(by_name.get(name, "")).split(",") for name in several]
        parted = [dict(zip(several, own, strict=True)) for own in zip_longest(*texts, fillvalue="")]
        return self._run_each(context, targets, [{**by_name, **own} for own in parted])

    def _run_each(
        self, context: Context, targets: str, of_each: Sequence[Mapping[str, Any]]
    ) -> Result:
        """Run the command once for each issuer or run, named with commas between, with its values.

        One that is refused does not stop the others.
        """
        by_target = dict(zip(targets.split(","), of_each, strict=False))

        def run_one(target: str) -> list[tuple[str, Result]]:
            return [(target, self._run_one(context, by_target[target]))]

        results, refused = context.each(targets, run_one)
        return of_several(results, refused)

    def _refuse_placeholders(self, context: Context, values: Mapping[str, Any]) -> None:
        """Raise PlaceholderError where a text is a placeholder as it is printed."""
        shared = {"actor": context.actor, "config": context.folder, **context.options}
        for name, value in shared.items():
            if is_placeholder(str(value), any_case=name == "actor"):
                raise PlaceholderError(value=Option(f"--{name}"), word=str(value))
        for parameter in parameters_of(self.run):
            word = parameter.unreplaced(values.get(parameter.name))
            if word:
                raise PlaceholderError(value=parameter.mention(self.name), word=word)

    def _run_one(self, context: Context, values: Mapping[str, Any]) -> Result:
        """Run the command about one issuer or run."""
        if not self.changes:
            return self.run_with(context, values)
        actor = person(context.actor, at_terminal=context.local_files)
        with acting(context.actor and actor):
            if not self.is_governed:
                return self._decide(context, actor, values)
            with governing(is_rehearsal=bool(values.get("dry_run"))) as remarks:
                result = self._decide(context, actor, values)
        return result.telling(remarks)

    def _decide(self, context: Context, actor: str, values: Mapping[str, Any]) -> Result:
        """Run the command; where it is refused since it did the same before, say so.

        A process that is killed right after its act has not said what it did, and who repeats the
        command has nothing left to decide.
        """
        command = self._digest(values)
        with deciding(command):
            try:
                return self._run_as(context, actor, values)
            except OperatorError as refusal:
                is_about_others = isinstance(refusal, shown_rows.OtherRowsError)
                done = None if is_about_others else self._done_before(context, values, command)
                if done is None:
                    raise
                return done

    def _digest(self, values: Mapping[str, Any]) -> str:
        """Return what tells the line of a decision, or of its dry run, from others; "" where it
        names a person.
        """
        if not values.get("reason") or values.get("cuid"):
            return ""
        line = self.step({**values, "dry_run": False}).line()
        return identity.digest(redact(line).encode())[:16]

    def _done_before(
        self, context: Context, values: Mapping[str, Any], command: str
    ) -> Result | None:
        """Return that the command was done before, by whom and when; None where it was not."""
        named = next((str(values[name]) for name in _TARGETS if values.get(name)), "")
        if not command or not named:
            return None
        with suppress(CardlinkError):
            issuer_context = context.context_of_target(named)
            issuer = issuer_context.issuer.issuer
            done = decisions.done_before(issuer_context.adapters, issuer, command)
            if done is not None:
                line = f"{named}: done already, by {done.by} on {done.at:%Y-%m-%d %H:%M} UTC"
                facts = {"done": {"what": done.what, "by": done.by, "at": done.at.isoformat()}}
                return Result(facts, [f"{line}: {done.what}"], Step("worklist", issuer))
        return None

    def _run_as(self, context: Context, actor: str, values: Mapping[str, Any]) -> Result:
        """Run the command, or what an extension wants before an act."""
        acts = [act for act, when in self.acts.items() if _holds(when, values)]
        if acts and not values.get("dry_run"):
            for before_act in hooks("before_act"):
                result: Result | None = before_act(self, context, actor, values, acts)
                if result is not None:
                    return result
        return self.run_with(context, values)

    def run_with(self, context: Context, values: Mapping[str, Any]) -> Result:
        """Run its function with these values of its parameters, whoever acts."""
        run: Callable[..., Result] = self.run
        about = {name: values[name] for name in SUBJECTS if values.get(name)}
        files = usable_files(self._named_files(values))
        with files, one_command(), stage(f"cardlink {self.name}", **about) as note:
            result = run(context, **values)
            note(exit_code=result.exit_code)
        return self._rehearsed(result, values) if values.get("dry_run") else result

    def is_act(self, act: settings.Act, context: Context, issuer: str, values: Values) -> bool:
        """Return whether a command with these values is this act for an issuer."""
        if self.decides is None:
            return True
        with usable_files(self._named_files(values)):
            return act in self.decides(context, issuer, values)

    def _named_files(self, values: Mapping[str, Any]) -> dict[str, Path]:
        """Return the files and folders that these values name, by option or placeholder."""
        named = {
            (each.field.metavar or "FILE") if each.argument else each.option: values.get(each.name)
            for each in parameters_of(self.run)
        }
        return {name: path for name, path in named.items() if isinstance(path, Path)}

    def _rehearsed(self, result: Result, values: Mapping[str, Any]) -> Result:
        """Return what came of a dry run: what is next is the command itself, if that would pass.

        What comes after the command would meet a store on which nothing was done.
        """
        if result.next_step is None or result.next_step.entry == self.name:
            return result
        would_pass = result.exit_code not in _REFUSED
        shown = {"dry_run": False, "rows": result.rows or values.get("rows")}
        own_step = self.step({**values, **shown})
        return result._replace(next_step=own_step if would_pass else None)

    def invoke(self, context: Context, values: Mapping[str, Any]) -> Result:
        """Run the command with all of its parameters by name, those of every entry too."""
        shared = {"actor", *(option.name for option in self.options)}
        options = {name: values[name] for name in shared if values.get(name)}
        own = {name: value for name, value in values.items() if name not in shared}
        who = options.pop("actor", context.actor)
        command: Callable[..., Result] = self
        return command(context._replace(actor=who, options={**context.options, **options}), **own)

    def step(self, values: Mapping[str, Any]) -> Step:
        """Return the step that runs it with these values of its parameters."""
        arguments = list[Any]()
        options = dict[str, Any]()
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

    def values_of(self, step: Step) -> dict[str, Any]:
        """Return the values of its parameters that a step has: what `step` makes one of."""
        arguments = list(step.arguments)
        options = {name.rstrip("_").replace("_", "-"): value for name, value in step.options}
        values: dict[str, Any] = {}
        for parameter in parameters_of(self.run):
            if not parameter.argument:
                value = options.get(parameter.option.removeprefix("--"))
            elif parameter.many:
                value = arguments
                arguments = []
            else:
                value = arguments.pop(0) if arguments else None
            if value is not None:
                values[parameter.name] = parameter.read(value)
        return values

    def has_parameter(self, name: str) -> bool:
        """Return whether its function has a parameter of that name."""
        return any(parameter.name == name for parameter in parameters_of(self.run))

    @property
    def changes(self) -> bool:
        """Whether it changes something, so that it has the parameter `actor`."""
        if self.records or self.has_parameter("reason") or self.has_parameter("override"):
            return True
        return isinstance(self.form, Form) and self.form.actor != "none"

    @property
    def is_governed(self) -> bool:
        """Whether it is refused under settings that nobody agreed to, or on a database that is not
        the store's; `agree` and `recover` are not.
        """
        return self.changes and not self.ungoverned

    @property
    def label(self) -> str:
        """The last word of its name, as a form offers it."""
        _, _, word = self.name.rpartition(" ")
        return word.replace("-", " ")

    @property
    def summary(self) -> str:
        """The docstring without its `Args:` and `Example:`."""
        return summary_of(self.run)

    @property
    def examples(self) -> list[str]:
        """Lines that can be pasted."""
        return examples_of(self.run)

    @property
    def parameters(self) -> list[Parameter]:
        """Its parameters without the context, in order."""
        parameters = [*parameters_of(self.run), *self.options]
        if self.changes:
            parameters.append(_shared("actor", actors(), ACTOR))
        return parameters

    @property
    def options(self) -> list[Parameter]:
        """The options that extensions add to it."""
        if not self.acts:
            return []
        return [_shared(name, *option) for name, option in act_options().items()]


def _shared(name: str, pattern: str, help_text: str) -> Parameter:
    """Return an option that is no parameter of the function."""
    shape = Field(pattern=pattern, longest=64)
    return Parameter(name, str, shape, "", argument=False, many=False, help=help_text)


def _holds(when: str, values: Mapping[str, Any]) -> bool:
    """Return whether a command with these values is the act that this condition makes it."""
    name, _, needed = when.partition("=")
    value = values.get(name)
    return not name or (value == needed if needed else bool(value))


def entry(
    name: str,
    form: Form | str,
    acts: Mapping[settings.Act, str] | None = None,
    *,
    records: bool = False,
    decides: Decides | None = None,
    ungoverned: bool = False,
) -> Callable[[Callable[Concatenate[Context, P], Result]], Entry[P]]:
    """Make an entry of a function; `form` is its Prefect form, or a sentence why it has none."""

    def of_function(run: Callable[Concatenate[Context, P], Result]) -> Entry[P]:
        command = Entry(name, run, form, acts or {}, records, decides, ungoverned)
        _BY_NAME[name] = command
        return command

    return of_function


def entry_named(name: str) -> Entry[...]:
    """Return an entry whose module is imported, as the registry imports all."""
    known: Entry[...] = _BY_NAME[name]
    return known


def entries_of(*modules: ModuleType) -> list[Entry[...]]:
    """Return the entries of modules in the order they are written."""
    values = chain.from_iterable(vars(module).values() for module in modules)
    return [value for value in values if type(value) is Entry]
