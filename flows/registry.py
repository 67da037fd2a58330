"""The registry: every entry of the pipeline, and next steps in the words of their forms.

Module by module in the order of a night; a new module of commands is named here.
"""

from dataclasses import dataclass
from typing import NamedTuple

from flows.commands import (
    audit,
    backfill,
    card_decisions,
    cardholders,
    changelog,
    check,
    link_forms,
    matters,
    outbox,
    overview,
    programme,
    purge,
    questions,
    recovery,
    remediation,
    renewal,
    resubmission,
    results,
    run_report,
    settings,
    submit,
    trace,
    upload,
    worklist,
)
from flows.commands.entry import entries_of
from flows.commands.form import Choice, Form
from flows.commands.signature import Parameter
from flows.extensions import modules_named
from flows.steps import (
    COMMAND_LINE,
    CommandName,
    Mention,
    Option,
    Placeholder,
    SameCommand,
    Step,
)

ENTRIES = entries_of(
    settings,
    check,
    changelog,
    submit,
    upload,
    outbox,
    results,
    run_report,
    worklist,
    matters,
    overview,
    programme,
    cardholders,
    questions,
    link_forms,
    trace,
    resubmission,
    renewal,
    backfill,
    remediation,
    card_decisions,
    purge,
    audit,
    recovery,
    *modules_named("COMMANDS"),
)
FORMED = [(entry, entry.form) for entry in ENTRIES if isinstance(entry.form, Form)]


class FormChoice(NamedTuple):
    """The form of a command: its name, and what is chosen in which field where it has several."""

    form: str
    picks: str
    label: str

    def __str__(self) -> str:
        picked = f" ({self.picks}: {self.label})" if self.picks else ""
        return f"the form {self.form}{picked}"


class FormField(NamedTuple):
    """The field that stands for an option, and its value, if that is known."""

    form: str
    name: str
    value: str

    def seen_from(self, form: str) -> str:
        """Return its words in a text of this form."""
        value = f": {self.value}" if self.value else ""
        other = f" of the form {self.form}" if self.form != form else ""
        return f"the field {self.name}{value}{other}"


@dataclass(frozen=True)
class FormWords:
    """The words of a form: commands are named by their forms, options by the fields for them.

    What has no form or no field is shown as on the command line.
    """

    form: str

    def __call__(self, mention: Mention, *, bare: bool = False) -> str:
        """Return the words of a mention."""
        match mention:
            case SameCommand():
                return "the same form"
            case Option():
                field = field_of(mention, self.form)
                return field.seen_from(self.form) if field else str(mention)
            case Step() | CommandName():
                choice = form_of(mention)
                return str(choice) if choice else COMMAND_LINE(mention, bare=bare)


def form_of(mention: Step | CommandName) -> FormChoice | None:
    """Return the form of a command, None where it has none."""
    for entry, form in FORMED:
        if entry.name == mention.entry:
            return FormChoice(form.name, form.picks, entry.label)
    return None


def field_of(option: Option, form_name: str) -> FormField | None:
    """Return the field for an option: of the form of its command, or of the form that is named.

    None where there is no such field.
    """
    for entry, form in FORMED:
        if entry.name == option.of or (not option.of and form.name == form_name):
            for parameter in entry.parameters:
                if _has_field(form, parameter) and parameter.option == option.name:
                    return _field(form, parameter, option.value)
    return None


def _has_field(form: Form, parameter: Parameter) -> bool:
    return not parameter.argument and parameter.name not in form.without


def _field(form: Form, parameter: Parameter, value: str | Placeholder) -> FormField:
    typed = value if isinstance(value, str) else ""
    for choice in form.choices:
        if any(parameter.name in sets for sets in choice.sets.values()):
            return FormField(form.name, choice.name, typed or _label(choice, parameter))
    return FormField(form.name, parameter.name, typed)


def _label(choice: Choice, parameter: Parameter) -> str:
    """Return the label that sets a flag and nothing else, "" where there is none."""
    labels = (label for label, sets in choice.sets.items() if sets == {parameter.name: True})
    return next(labels, "")
