"""What click makes of the entries: commands that also take the options of every command, and their
help.
"""

from __future__ import annotations

import click

from flows.cli.outcome import refuse
from flows.cli.sections import SECTIONS
from flows.cli.shared_options import options, shared_options


class Command(click.Command):
    """A command of an entry, with its own options and those of every command."""

    def get_params(self, context: click.Context) -> list[click.Parameter]:
        """Return its parameters, then those of every command."""
        own = super().get_params(context)
        *parameters, help_option = own
        return [*parameters, *options(), help_option]

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write its own options; those of every command are one line."""
        own = [
            parameter.get_help_record(context)
            for parameter in self.get_params(context)
            if isinstance(parameter, click.Option) and parameter not in options()
        ]
        with formatter.section("Options"):
            formatter.write_dl([record for record in own if record is not None])
        formatter.write_paragraph()
        formatter.write_text(f"Of every command: {_summary()}.")


def _summary() -> str:
    """Return the options of every command, as they are typed."""
    return ", ".join(option.opts[-1] for option in options())


class CommandGroup(click.Group):
    """Commands of two words with the same first one."""

    def get_params(self, context: click.Context) -> list[click.Parameter]:
        """Return the options of every command, and `--help`."""
        return [*options(), *super().get_params(context)]


class Commands(CommandGroup):
    """The commands; one of two words may begin with another command: `practice people`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Read the options before the command, and refuse a line in the way that it asks for."""
        shared_options(context).typed = [*args]
        try:
            return super().parse_args(context, args)
        except click.UsageError as error:
            refuse(error, context)

    def invoke(self, context: click.Context) -> object:
        """Run the command that the line names."""
        try:
            return super().invoke(context)
        except click.UsageError as error:
            refuse(error, context)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands section by section, those of every day first."""
        width = max(map(len, self.commands))
        for title, names in SECTIONS.items():
            lines = [
                (name.ljust(width), self._summary_of(name))
                for name in names
                if name in self.commands
            ]
            with formatter.section(title):
                formatter.write_dl(lines)

    def _summary_of(self, name: str) -> str:
        return self.commands[name].get_short_help_str(limit=70)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that a line begins with, and what follows it."""
        two_words = " ".join(args[:2])
        if two_words in self.commands:
            return two_words, self.commands[two_words], args[2:]
        return super().resolve_command(context, args)
