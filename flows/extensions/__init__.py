"""The extensions: each folder here brings something more, and can be taken away.

An extension reads what the kernel has and writes its own. The kernel imports none of them. It finds
those that are there, and asks their packages for:

- `COMMANDS`: the names of its modules with commands;
- `DROPPED`: folders of an issuer in the store into which others drop files;
- `OPTIONS`: pattern and help, by name, of options that it adds to commands with `acts`, whose
  context has the values in `options`;
- `settings.TABLES`: its tables of an issuer's TOML, by name; in the place of one of the kernel, its
  model with more keys; `example.toml` has an example of each key;
- `settings.validate(issuer)`, where it is there: ValueError with what tables of a TOML may not say
  together;
- its module `tables`: tables of the database on `schemas.database.METADATA`; and `views`: `VIEWS`
  of them for analysts, with `COLUMNS`;
- `HOOKS`: by the name of a hook (below), which of its modules has the function of that name.

The hooks, by what asks for them:

- `after_commit(context, result)`, `after_ingest(context, result)`: what is to be done at the end of
  `submit` and of `ingest`; they return the result of the command with what came of it;
- `work_kinds()`: kinds of lines of the worklist (`Kind`), and `matters(context, book, now)`: the
  lines (`Work`) of an issuer, of whose cards the book says where each stands;
- `news(context, failures)`: the same, which only people are told (`Kind.is_news`), and flows that
  failed;
- `checks(context)`: lines of `check` as pairs, the part of the installation and what is fine about
  it, or the CardlinkError of what is not; one that it raises is of the part named like its folder;
- `open_rows(stream, settings, name, proven=…, block=…)`: the rows of an extract of a form that it
  reads (`flows.extracts.row_source.Rows`), None of any other; `with_files(content, folder)`: a TOML
  with the text of files that it names; `sampled(stream, name, copybook)`: for `init`, how a file of
  such a form is written, None of any other;
- `before_act(entry, context, actor, values, acts)`: the result of a command that is these acts,
  where the extension does it or lets it wait; None where the command simply runs;
- `govern(context, is_rehearsal=…)`: raises where a command that changes something may not work with
  an issuer's settings; what a person should know of them;
- `evidence_of(run)`: what it has about a run, as JSON by the name of a file;
- `row_finding(table, entered, values)`: what is wrong with a row, beyond what the journal says;
- `condition(issuer, store, now)`: a `Condition` of what runs beside the flows;
- `gauges()`: its metrics; `schedules(issuer)`: the variables of `prefect.yaml` that it sets, and
  `scheduled(issuer)`: deployments of its own (`Scheduled`);
- `events(context)`: what `watch` emits (`Event`); one was emitted when the next is asked for; then
  `after_watch(context)`, which returns a line for each thing that it did;
- `saved_channels()`: saves channels to people on the Prefect server, ids of their blocks by name;
- `exposed(folder, accept)`: what a scraper of metrics is sent, and its media type;
- `stages(runs)`: what says of cards how far their links came, with columns of
  `flows.book.stages.KNOWN`;
- `summary_facts(run, today)` and `across_facts(context)`: what the facts of a run's report, and of
  that across runs, say beside the kernel's own; `sections(facts)`: how such facts are shown;
- `balance_lines(context, run)`: equations of a run's balance (`Line`);
- `delivered_links(connection, issuer)`: links that somebody was handed (DELIVERED_LINK), and
  `history(adapters, issuer, cuid)`: what it knows of a cardholder (`History`);
- `evidence()`: the pattern of the objects that decide who has which link; `folders()`: its folders
  in the store that retention and erasures clean.

What names cardholders is found, erased, purged and recovered by these:

- `places()`: places of personal data by name (`Place`), and `mentions(context, people, runs)`: the
  objects there (`Mention`) that name some people, of whom these runs have rows;
- `erase(context, cleaner, people, named)`: remove them, but for places that wait, before the rows
  by which they are found; `names_erased(adapters, issuer)`: whether there may be any that wait;
- `withdrawal_step(context, people)`: the step by which others are told not to use a link of theirs,
  None where nobody may; then `erase_confirmed(context, cleaner, people, named, note)`: remove what
  waited, and `note` first the keys of the objects that go;
- `finish_erasures(context, cleaner)`: at the end of a purge, go on with what waited;
- `purgeable(context, until)`: objects by kind that are as old as that;
  `before_purge(context, keys)` is called before objects go;
- `recovered(adapters, issuer)`: read from the store what the journal has not, where a database was
  lost.

"""

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")


def extensions() -> Iterator[ModuleType]:
    """Yield the packages of the extensions that are there, by name."""
    for module in iter_modules(__path__, f"{__name__}."):
        yield import_module(module.name)


def modules_named(kind: str) -> Iterator[ModuleType]:
    """Yield the modules of the extensions that their packages name as theirs of this kind."""
    for extension in extensions():
        for name in getattr(extension, kind, ()):
            yield import_module(f"{extension.__name__}.{name}")


def names(kind: str) -> list[str]:
    """Return the names of this kind that the packages of the extensions have."""
    listed: list[str] = []
    for extension in extensions():
        listed += getattr(extension, kind, ())
    return listed


@cache
def act_options() -> dict[str, tuple[str, str]]:
    """Return the options that the extensions add to commands with acts."""
    options: dict[str, tuple[str, str]] = {}
    for extension in extensions():
        options |= getattr(extension, "OPTIONS", {})
    return options


def hooks(name: str) -> Iterator[Callable[..., Any]]:
    """Yield the functions of that name of the extensions that have one; each is imported when it is
    asked for.
    """
    for extension in extensions():
        module = getattr(extension, "HOOKS", {}).get(name)
        if module is not None:
            yield getattr(import_module(f"{extension.__name__}.{module}"), name)


def continued(name: str, context: Any, result: T) -> T:
    """Return the result of a command with what the extensions do at its end, one after another."""
    for hook in hooks(name):
        result = hook(context, result)
    return result


def starts_often(issuer: Any) -> bool:
    """Return whether an extension starts an issuer's runs more often than its schedule says."""
    return any(variables(issuer) for variables in hooks("schedules"))


def settings_tables() -> dict[str, Any]:
    """Return the tables that the extensions bring to a TOML: field and default by name."""
    tables: dict[str, Any] = {}
    for module in modules("settings"):
        tables |= module.TABLES
    return tables


def validate(issuer: Any) -> None:
    """Raise ValueError where an extension finds that tables of a TOML do not fit together."""
    for module in modules("settings"):
        if hasattr(module, "validate"):
            module.validate(issuer)


def import_tables() -> None:
    """Add the tables of the extensions to the database."""
    for _ in modules("tables"):
        pass


def settings_examples() -> Iterator[str]:
    """Yield the examples of the keys of these tables, as TOML."""
    for module in modules("settings"):
        yield Path(str(module.__file__)).with_name("example.toml").read_text("utf-8")


def modules(name: str) -> Iterator[ModuleType]:
    """Yield the modules of that name of the extensions that have one."""
    for extension in extensions():
        module = f"{extension.__name__}.{name}"
        if find_spec(module) is not None:
            yield import_module(module)
