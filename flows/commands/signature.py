"""The parameters of an entry, read from its function's signature and docstring."""

import inspect
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from flows.commands.parameters import Field
from flows.steps import Option, Placeholder, is_placeholder

REQUIRED = inspect.Parameter.empty
_DEFAULT_FIELD = Field()._asdict()
# a name, and its text until the indent ends
_EXAMPLE = re.compile(r"\nExample:\n((?:    .*\n?)+)")
_ARGS = re.compile(r"^    (\w+): (.*(?:\n     .*)*)", re.MULTILINE)


class Parameter(NamedTuple):
    """One parameter of an entry."""

    name: str
    type: Any
    field: Field
    default: Any
    argument: bool
    many: bool
    help: str

    @property
    def option(self) -> str:
        """The option's name on the command line."""
        return self.field.option or f"--{self.name.replace('_', '-')}"

    @property
    def metavar(self) -> str:
        """What stands for its value in usage and help."""
        return self.field.metavar or self.name.upper()

    def mention(self, entry: str) -> str | Option:
        """Return how a sentence names it, as a parameter of this entry."""
        return self.metavar if self.argument else Option(self.option, of=entry)

    def unreplaced(self, value: Any) -> str:
        """Return the first text of a value that is a placeholder as it is printed, "" for none."""
        values = value if isinstance(value, list | tuple) else [value]
        texts = [str(each) for each in values if isinstance(each, str | Path)]
        if self.field.several:
            texts = ",".join(texts).split(",")
        return next(filter(self._is_placeholder, texts), "")

    def _is_placeholder(self, text: str) -> bool:
        return text == self.metavar or is_placeholder(text, any_case=self.field.words)

    def read(self, value: Any) -> Any:
        """Return a value of a step as the function takes it."""
        if self.many:
            return list(value) if isinstance(value, list | tuple) else [value]
        if self.type is int and isinstance(value, str):
            return int(value.removesuffix("d"))
        is_text = self.type is str and not isinstance(value, Placeholder)
        return str(value) if is_text else value

    def is_set(self, value: Any) -> bool:
        """Return whether a command line has to give it this value."""
        return value not in (None, "", (), False, self.default)


class _Type(NamedTuple):
    """What an annotation says: the plain type, whether there are many, and the field."""

    plain: Any
    many: bool
    field: Field


@cache  # reading a signature takes a tenth of a millisecond, and there are sixty
def parameters_of(run: Callable[..., Any]) -> tuple[Parameter, ...]:
    """Return the parameters of an entry's function without its context, in order."""
    _, _, described = inspect.cleandoc(run.__doc__ or "").partition("\nArgs:\n")
    helps = {name: " ".join(text.split()) for name, text in _ARGS.findall(described)}
    _context, *declared = inspect.signature(run, eval_str=True).parameters.values()
    return tuple(_parameter(parameter, helps.get(parameter.name, "")) for parameter in declared)


def summary_of(run: Callable[..., Any]) -> str:
    """Return the docstring without `Args:` and `Example:`, each paragraph on one line."""
    summary, *_ = re.split(r"\n(?:Args|Example):", inspect.cleandoc(run.__doc__ or ""))
    paragraphs = summary.strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def examples_of(run: Callable[..., Any]) -> list[str]:
    """Return the lines of the docstring's `Example:`, each of which can be pasted."""
    [lines] = _EXAMPLE.findall(inspect.cleandoc(run.__doc__ or "")) or [""]
    return [line.strip() for line in lines.splitlines()]


def _parameter(declared: inspect.Parameter, described: str) -> Parameter:
    plain, many, field = _type_of(declared.annotation)
    is_argument = declared.kind is not inspect.Parameter.KEYWORD_ONLY
    help_text = described or field.help
    return Parameter(declared.name, plain, field, declared.default, is_argument, many, help_text)


def _type_of(annotation: Any) -> _Type:
    """Return what an annotation says, wrapped in Annotated, Sequence and optional as it may be.

    Of several fields, the outermost counts, part by part.
    """
    origin = get_origin(annotation)
    if origin in (None, Literal):
        return _Type(annotation, many=False, field=Field())
    if origin is Annotated:
        plain, *fields = get_args(annotation)
        inner = _type_of(plain)
        return inner._replace(field=_merged([inner.field, *fields]))
    if origin is Sequence:
        [plain] = get_args(annotation)
        return _type_of(plain)._replace(many=True)
    [plain] = [part for part in get_args(annotation) if part is not NoneType]
    return _type_of(plain)


def _merged(fields: Sequence[Field]) -> Field:
    """Return what these fields say together; of what several say, the last counts."""
    merged = dict[str, Any]()
    for field in fields:
        for name, value in field._asdict().items():
            if value != _DEFAULT_FIELD[name]:
                merged[name] = value
    return Field(**merged)
