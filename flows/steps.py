"""What to do next as data: a command with its arguments, an option, or the command just run.

Sentences and error classes name such mentions in their templates; they are put into words only
where a person reads them. `COMMAND_LINE` has the words of a terminal and of all that is stored;
`flows.registry` has those of a form.

    >>> cancel = Step("outbox cancel", "bank-20261120-01234567", reason=WHY)
    >>> print(cancel)
    cardlink outbox cancel bank-20261120-01234567 --reason "WHY"
    >>> print(Sentence("Those that wait: {cancel}.", cancel=cancel))
    Those that wait: `cardlink outbox cancel bank-20261120-01234567 --reason "WHY"`.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain
from pathlib import Path
from string import Formatter
from typing import Any, Final, Protocol

PROGRAM: Final = "cardlink"
GROUPS: Final = ("audit", "mend", "outbox")  # first words of commands of two


@dataclass(frozen=True)
class Placeholder:
    """A word that a person replaces before the line is run, in quotes for a text with blanks.

    No command takes one as it is shown (`is_placeholder`).
    """

    name: str

    def __str__(self) -> str:
        return f'"{self.name}"'


WHY = Placeholder("WHY")
REASON = Placeholder("REASON")
RECEIPT = Placeholder("RECEIPT")
YOUR_NAME = Placeholder("YOUR_NAME")
ISSUER = Placeholder("ISSUER")
EXTRACT = Placeholder("EXTRACT")
RUN = Placeholder("RUN")
ROW = Placeholder("ROW")
CUID = Placeholder("CUID")
FILE = Placeholder("FILE")
FOLDER = Placeholder("FOLDER")
PLACEHOLDERS: Final = {
    placeholder.name: placeholder
    for placeholder in (
        *(WHY, REASON, RECEIPT, YOUR_NAME, ISSUER, EXTRACT),
        *(RUN, ROW, CUID, FILE, FOLDER),
    )
}
_AROUND = " \t\r\n\"'`\u2018\u2019\u201c\u201d<>[]{}.?!"  # what is typed around one


def is_placeholder(text: str, *, any_case: bool = False) -> bool:
    """Return whether a text is a placeholder that nobody has replaced, whatever is around it.

    >>> is_placeholder(" 'WHY' "), is_placeholder("folder"), is_placeholder("why", any_case=True)
    (True, False, True)
    """
    word = text.strip(_AROUND)
    return (word.upper() if any_case else word) in PLACEHOLDERS


@dataclass(frozen=True)
class Slot:
    """A value of a step in a class or a table, filled in from the field of that name.

    An argument may be filled with several values.
    """

    field: str


Value = str | int | date | Path | Placeholder | Slot
Values = Value | Sequence[Value] | None


@dataclass(frozen=True, init=False)
class Step:
    """A command with its arguments and options; empty ones are left out.

    Options are named as on the command line, with `_` for `-`, and with a final `_` where Python
    has the word: `Step("backfill", issuer, from_=first, to=last)`; True is a flag. `config` is the
    folder of the TOML files, where it is not that of the command that shows the step.
    """

    entry: str
    arguments: tuple[Value, ...]
    options: tuple[tuple[str, Values], ...]

    def __init__(self, entry: str, /, *arguments: Value | None, **options: Values) -> None:
        kept = tuple(value for value in arguments if value is not None and value != "")
        # a frozen class sets its fields so
        object.__setattr__(self, "entry", entry)
        object.__setattr__(self, "arguments", kept)
        object.__setattr__(self, "options", tuple(filter(_is_set, options.items())))

    def adding(self, **options: Values) -> "Step":
        """Return it with more options, or other values of those that it has."""
        return Step(self.entry, *self.arguments, **{**dict(self.options), **options})

    def about(self, before: str, target: str) -> "Step":
        """Return it with another target in the place of the one before."""
        arguments = [target if value == before else value for value in self.arguments]
        return Step(self.entry, *arguments, **dict(self.options))

    def filled(self, fields: Mapping[str, Any]) -> "Step":
        """Return it with its slots filled."""
        filled = (_filled(value, fields) for value in self.arguments)
        arguments = chain.from_iterable(map(_each, filled))
        options = {name: _filled(value, fields) for name, value in self.options}
        return Step(self.entry, *arguments, **options)

    def line(self, program: str = PROGRAM) -> str:
        """Return it as a line to paste into a shell; `program` is how the line begins."""
        return " ".join(self.pieces(program))

    def pieces(self, program: str = PROGRAM) -> list[str]:
        """Return the pieces of its line: the command with its arguments, then each option."""
        options = dict(self.options)
        folder = options.pop("config", None)
        if folder:
            program = f"{PROGRAM} --config {_word(folder)}"
        pieces = [" ".join([program, self.entry, *map(_word, self.arguments)])]
        for name, values in options.items():
            pieces += _typed(name, values)
        return pieces

    def __str__(self) -> str:
        return self.line()

    @property
    def values(self) -> Iterator[Value]:
        """All of its values, those of arguments first."""
        yield from self.arguments
        for _, values in self.options:
            yield from _each(values)

    @property
    def placeholders(self) -> list[str]:
        """The words to replace before it is run."""
        names = [value.name for value in self.values if isinstance(value, Placeholder)]
        return list(dict.fromkeys(names))

    @property
    def slots(self) -> frozenset[str]:
        """The fields that its slots are filled from."""
        return frozenset(value.field for value in self.values if isinstance(value, Slot))


@dataclass(frozen=True)
class CommandName:
    """A command that is only named, without its arguments."""

    entry: str


@dataclass(frozen=True)
class Option:
    """An option with its value, if any, of the command `of`; by default of the one just run."""

    name: str
    value: str | Placeholder = ""
    of: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.value}".rstrip()


@dataclass(frozen=True)
class SameCommand:
    """The command just run, with the same arguments."""


Mention = Step | CommandName | Option | SameCommand
# what every template may name
COMMON: Final[Mapping[str, Mention]] = {"same_command": SameCommand()}


class Words(Protocol):
    """How mentions are put: in the words of a command line, or of a form."""

    def __call__(self, mention: Mention, *, bare: bool = False) -> str:
        """Return the words of a mention within a sentence, or `bare`."""


@dataclass(frozen=True)
class CommandLine:
    """The words of a command line whose commands begin with `program`."""

    program: str = PROGRAM

    def __call__(self, mention: Mention, *, bare: bool = False) -> str:
        """Return the words of a mention: commands in backquotes, unless they are `bare`."""
        match mention:
            case Step():
                line = mention.line(self.program)
            case CommandName():
                line = f"{self.program} {mention.entry}"
            case Option():
                return str(mention)
            case SameCommand():
                return "the same command"
        return line if bare else f"`{line}`"


COMMAND_LINE: Final = CommandLine()


@dataclass(frozen=True, init=False)
class Sentence:
    """A text with mentions in it: a template as of `str.format`, and its values by name.

    `{step:bare}` shows a command without backquotes, `{count:row}` a number with its noun. A value
    may be a sentence.
    """

    template: str
    values: Mapping[str, Any]

    def __init__(self, template: str, /, **values: Any) -> None:
        object.__setattr__(self, "template", template)
        object.__setattr__(self, "values", values)

    def filled(self, fields: Mapping[str, Any]) -> "Sentence":
        """Return it with these fields as values, and the slots of its steps filled from them."""
        steps = {
            name: value.filled(fields)
            for name, value in self.values.items()
            if isinstance(value, Step)
        }
        return Sentence(self.template, **{**fields, **self.values, **steps})

    @property
    def fields(self) -> frozenset[str]:
        """The names in its template, and the slots of its steps, that have no value yet."""
        parsed = Formatter().parse(self.template)
        names = frozenset(name for _, name, _, _ in parsed if name)
        steps = [value for value in self.values.values() if isinstance(value, Step)]
        slots = frozenset[str]().union(*(step.slots for step in steps))
        return (names | slots) - self.values.keys() - COMMON.keys()

    @property
    def steps(self) -> list[Step]:
        """The steps in it, in order."""
        steps = list[Step]()
        for value in self.values.values():
            if isinstance(value, Sentence):
                steps += value.steps
            elif isinstance(value, Step):
                steps.append(value)
        return steps

    def in_words(self, words: Words) -> str:
        """Return the text in these words."""
        return _InWords(words).vformat(self.template, (), {**COMMON, **self.values})

    def __str__(self) -> str:
        return self.in_words(COMMAND_LINE)


Text = str | Sentence


def joined(*texts: Text) -> Sentence:
    """Return texts as one sentence; those with values must name them differently."""
    sentences = [Sentence(text) if isinstance(text, str) else text for text in texts if text]
    values: dict[str, Any] = {}
    for sentence in sentences:
        values |= sentence.values
    return Sentence(" ".join(sentence.template for sentence in sentences), **values)


def in_words(text: object, words: Words = COMMAND_LINE) -> str:
    """Return a text, or a step alone, in these words; anything else as `str` has it."""
    if isinstance(text, Sentence):
        return text.in_words(words)
    return words(text, bare=True) if isinstance(text, Mention) else str(text)


class _InWords(Formatter):
    """Fill a template with mentions in these words."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return the text of one field."""
        if isinstance(value, Mention):
            return self._words(value, bare=format_spec == "bare")
        if isinstance(value, Sentence):
            value = value.in_words(self._words)
        if isinstance(value, int) and len(format_spec) > 1 and format_spec.isalpha():
            return counted(value, format_spec)
        return format(value, format_spec.removeprefix("bare"))


def counted(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun, and the verb where it is given with it.

    >>> counted(1, "chunk waits", "chunks wait"), counted(2000, "row"), counted(1, "day")
    ('1 chunk waits', '2,000 rows', '1 day')
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def option_name(name: str) -> str:
    """Return an option as it is typed, from its name in a `Step`."""
    return f"--{name.rstrip('_').replace('_', '-')}"


def parsed_line(line: str) -> Step:
    """Return the step that a line of `Step.line` came from.

    >>> print(parsed_line("cardlink outbox release bank-20261120-01234567 2 --reason 'ticket 7'"))
    cardlink outbox release bank-20261120-01234567 2 --reason 'ticket 7'
    """
    _, name, *words = shlex.split(line)
    if name in GROUPS:
        name = f"{name} {words.pop(0)}"
    typed_options = [place for place, word in enumerate(words) if word.startswith("--")]
    first = typed_options[0] if typed_options else len(words)
    options: dict[str, Any] = {}
    for place in typed_options:
        option = words[place].removeprefix("--").replace("-", "_")
        value = words[place + 1] if place + 1 < len(words) else "--"
        if value.startswith("--"):
            options[option] = True
        else:
            options[option] = [*options.get(option, []), value]
    return Step(name, *words[:first], **options)


def _is_set(option: tuple[str, Values]) -> bool:
    _, value = option
    return value is not None and value is not False and value not in ("", (), [])


def _each(values: Values) -> Sequence[Value]:
    if values is None:
        return ()
    if isinstance(values, list | tuple):
        return values
    return [values]  # type: ignore[list-item]  # no other sequence is a value of an option


def _filled(values: Values, fields: Mapping[str, Any]) -> Any:
    if isinstance(values, list | tuple):
        return tuple(_filled(value, fields) for value in values)
    return fields[values.field] if isinstance(values, Slot) else values


def _typed(name: str, values: Values) -> list[str]:
    if values is True:
        return [option_name(name)]
    return [f"{option_name(name)} {_word(value)}" for value in _each(values)]


def _word(value: object) -> str:
    return str(value) if isinstance(value, Placeholder) else shlex.quote(str(value))
