"""Every entry of the pipeline, and a sentence that names commands and options in the words of their
forms.

Module by module in the order of a night; a new module of commands is named here.
"""

import re

from flows.commands import mend, outbox, resend, results, retention, settings, submit
from flows.commands.entry import Form, entries_of
from flows.partner_api import commands as partner

ENTRIES = entries_of(settings, submit, outbox, results, resend, mend, retention, partner)

FORMED = [(one, one.form) for one in ENTRIES if isinstance(one.form, Form)]
_COMMAND = re.compile(r"`cardlink ([^`]+)`|\bcardlink ([a-z][^`;)\n]*?)(?=[;)`]|[.,](?:\s|$)|\s*$)")
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*)(?: ([A-Z]{3,}|[a-z]+-[a-z]+)\b)?")


def in_form_words(text: str, name: str) -> str:
    """Return a text with commands replaced by their forms, and options by the fields of the form
    `name`.

    A command without a form stays as it is, for the command line. `nightly` has the fields of
    `rerun`.
    """
    home = {"nightly": "rerun"}.get(name, name)
    fields = _fields(home)

    def command(found: re.Match[str]) -> str:
        line = f"{found[1] or found[2]} "
        for one, form in FORMED:
            if line.startswith(one.name + " "):
                return f"the form {form.name}" + (
                    f" ({form.picks}: {one.label})" if form.picks else ""
                )
        return found[0]

    def option(found: re.Match[str]) -> str:
        field, value = fields.get(found[1], ""), found[2] or ""
        value = f": {value}" if value and value.islower() else ""
        return (
            f"the field {field}{value}{f' of the form {home}' if home != name else ''}"
            if field
            else found[0]
        )

    text = re.sub(r"\b([Tt])he same command\b", r"\1he same form", _COMMAND.sub(command, text))
    return _OPTION.sub(option, text)


def _fields(name: str) -> dict[str, str]:
    """Return the fields of a form by the option they stand for; a choice with the label that sets a
    flag.
    """
    found = dict[str, str]()
    for entry, form in FORMED:
        for one in (one for one in entry.parameters if form.name == name and not one.argument):
            flag = [
                f"{choice.name}: {label}"
                for choice in form.choices
                for label, sets in choice.sets.items()
                if sets == {one.name: True}
            ]
            choice = [
                choice.name
                for choice in form.choices
                if any(one.name in sets for sets in choice.sets.values())
            ]
            found[one.option] = next(iter(flag + choice), one.name)
    return found
